"""The bill: what AWS charged for each instance in an hour, and for commitments that no instance used.

A bill's line is an *amount*: the cost of the instance-hour, regardless of how long the node was in Kubernetes. Billed
time outside Kubernetes counts as stranded.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from gpucost.core.hour_record import ClusterCharge


class BilledHour(Struct, frozen=True):
    """One instance in one hour of the bill, with fixed-point amounts."""

    amount: int
    """The net amortized cost of the instance-hour, blended if the settings say so."""
    currency: str
    billed_ms: int
    """The part of the hour that AWS charged for."""
    is_final: bool
    """Whether the month's bill is closed; until then amounts may change."""
    unblended_amount: int | None = None
    """The instance's amount in the bill, if `amount` is blended."""
    is_block_fee: bool = False
    """Whether it is the fee of an instance of a Capacity Block, whose price was paid in advance."""


def sagemaker_rate_id(instance_type: str, region: str) -> str:
    """Return the key of the mean cost of an instance-hour of SageMaker HyperPod, whose lines may name no instance."""
    return f"{instance_type} {region}"


class Bill(Struct, frozen=True):
    """One hour of the bill."""

    instances: Mapping[str, BilledHour] = field(default_factory=dict)
    """By instance id; and by `sagemaker_rate_id` the mean cost of an instance-hour."""
    charges: Mapping[str, Sequence[ClusterCharge]] = field(default_factory=dict)
    """By cluster."""
    is_final: bool = False
    """Whether the month's bill is closed, so that no instances are added to it."""

    def billed_hour_of(self, instance_id: str) -> BilledHour | None:
        """Return the bill of one instance; None if it is not in the bill (yet)."""
        return self.instances.get(instance_id) if instance_id else None

    def sagemaker_rate_of(self, instance_type: str, region: str) -> BilledHour | None:
        """Return the mean cost of an instance-hour of one type of SageMaker HyperPod; None if the bill has none."""
        rate = self.instances.get(sagemaker_rate_id(instance_type, region))
        return rate if rate is not None and rate.billed_ms else None

    def charges_to(self, cluster: str) -> Sequence[ClusterCharge]:
        """Return the charges of a cluster other than for its nodes."""
        return self.charges.get(cluster, ())
