"""The bill: what AWS charged for each instance in an hour, and for commitments that no instance used (design §4).

A bill's line is an *amount*: the instance-hour's cost whatever part of it Kubernetes saw. Billed time beyond that
shows as stranded, outside Kubernetes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpucost.core.model import ClusterCharge


@dataclass(frozen=True, slots=True)
class BilledHour:
    """One instance in one hour of the bill."""

    amount: Decimal
    """Net amortized cost of the instance-hour, after blending where the settings ask for it."""
    currency: str
    billed_ms: int
    """How much of the hour AWS charged for."""
    is_final: bool
    """Whether the month's bill is closed; until then amounts may still move."""
    unblended: Decimal | None = None
    """The instance's own amount, where `amount` is a blend."""


@dataclass(frozen=True, slots=True)
class Bill:
    """One hour of the bill."""

    instances: Mapping[str, BilledHour] = field(default_factory=dict)
    """By instance id."""
    charges: Mapping[str, Sequence[ClusterCharge]] = field(default_factory=dict)
    """By cluster."""
    is_final: bool = False
    """Whether the month's bill is closed: an instance that is not in it never will be."""

    def billed_hour_of(self, instance_id: str) -> BilledHour | None:
        """What the bill says of one instance; None where it does not know it (yet)."""
        return self.instances.get(instance_id) if instance_id else None

    def charges_to(self, cluster: str) -> Sequence[ClusterCharge]:
        """What is charged to a cluster beyond its nodes."""
        return self.charges.get(cluster, ())
