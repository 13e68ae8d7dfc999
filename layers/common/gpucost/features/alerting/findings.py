"""What rules find about a subject: the records that the kinds of rules share with the states and notifications.

They are not in `model`, so that settings do not import the records.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from msgspec import Struct

Severity = Literal["info", "warning", "critical"]

FLEET_SCOPE = "*"
"""The scope of rules that are evaluated on the schedule, over all clusters. No cluster can have this name."""
CROSS_CLUSTER_WASTE_SCOPE = "*hours"
"""The scope of waste rules over several clusters. No cluster can have this name."""


class Subject(NamedTuple):
    """What an alert is about. Fields that a rule does not use are empty."""

    cluster: str = ""
    """Empty for all clusters together."""
    business_unit: str = ""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    detail: str = ""
    """Distinguishes alerts of one rule on the same subject: `2026-11 spent 80`, `coverage`, the name of a model."""


class WastefulWorkload(NamedTuple):
    """One of the workloads with the most waste in the evaluated hour."""

    namespace: str
    kind: str
    name: str
    gpu_hours: Decimal
    waste_usd: Decimal
    """Per hour. In a digest: over its period."""


class FiringPolicy(Struct, frozen=True):
    """How long a condition must hold before an alert fires, and be over before it resolves."""

    for_hours: int = 1
    keep_firing_hours: int = 0

    @property
    def evaluations_to_keep(self) -> int:
        """How many evaluations are kept: a run that fires an alert, a run that resolves it, and the hour before."""
        return self.for_hours + max(1, self.keep_firing_hours) + 1


class Finding(Struct, frozen=True):
    """What a rule found for one subject in one hour."""

    subject: Subject
    hour: datetime
    is_breach: bool | None
    threshold: str
    figures: dict[str, Decimal | None]
    currency: str
    firing_policy: FiringPolicy
    read_top_wasters: Callable[[], tuple[WastefulWorkload, ...]] = lambda: ()
    """Reads the workloads with the most waste; called only for a notification, because it costs reads."""
    note: str = ""
    is_history_only: bool = False
    """Recorded in the history and sent to no one, because an alert of a higher threshold covers it."""


class Digest(Struct, frozen=True):
    """A digest of a business unit that is due."""

    period: str
    subject: Subject
    start: datetime
    newest_hour: datetime
    figures: dict[str, Decimal | None]
    currency: str
    workloads: tuple[WastefulWorkload, ...]
    note: str
