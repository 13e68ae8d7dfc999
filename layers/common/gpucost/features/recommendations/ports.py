"""What advice needs from the outside, as Protocols."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gpucost.core.ledger import Manifest
from gpucost.core.line_use import LineUse
from gpucost.core.model import ClusterCharge, NodeHour
from gpucost.features.recommendations.history import Disruption, Wait
from gpucost.features.recommendations.model import Recommendation, Review
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings


class AdvisedHours(Protocol):
    """The ledger, version by version. Every read is consistent."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """The hours in force in `[start, end)`, oldest first."""
        ...

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published."""
        ...

    def uses_of(self, manifest: Manifest) -> list[LineUse]:
        """The lines of this very version, as advice looks at them."""
        ...

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """The nodes of this very version, and what was paid for without one."""
        ...


class AdviceStore(Protocol):
    """Recommendations and the reviews that they are from. Every read is consistent."""

    def recommendations(self, cluster: str) -> list[Recommendation]:
        """A cluster's, in order of id; withdrawn ones until they expire."""
        ...

    def review(self, cluster: str) -> Review | None:
        """The newest review of a cluster, without its advice: that stands in the recommendations."""
        ...

    def put(self, recommendation: Recommendation) -> Recommendation:
        """Write one on condition that its version is still the stored one; returns it with the next version.

        Raises:
            ConflictError: somebody else wrote first.
        """
        ...

    def put_review(self, review: Review) -> None:
        """Keep a review in place of the one before, unless that is newer."""
        ...


class MemoryReader(Protocol):
    """What a cluster's Prometheus says of GPU memory."""

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        """The most bytes that each pod (namespace, name) used of any GPU on a UTC day.

        Raises:
            SourceError: the metrics could not be had.
        """
        ...


class MemoryReaders(Protocol):
    """A reader for each cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> MemoryReader:
        """The reader of one cluster, whose queries all end by a deadline."""
        ...


class MemoryStore(Protocol):
    """Memory peaks of whole days."""

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        """Keep a day's until a time."""
        ...

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        """Those of days in `[start, end)` that were kept; days on which nobody saw any are there and empty."""
        ...


class WaitingReader(Protocol):
    """What a cluster's Prometheus says of pods that wait for GPUs."""

    def waits(self, day: datetime) -> list[Wait]:
        """What pods waited on a UTC day, in order of name.

        Raises:
            SourceError: the metrics could not be had.
        """
        ...


class WaitingReaders(Protocol):
    """A reader for each cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> WaitingReader:
        """The reader of one cluster, whose queries all end by a deadline."""
        ...


class WaitingStore(Protocol):
    """Who waited on whole days."""

    def put_waits(self, cluster: str, day: datetime, waits: Sequence[Wait], expires_at: datetime) -> None:
        """Keep a day's until a time."""
        ...

    def waits(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[Wait]]:
        """Those of days in `[start, end)` that were kept; days on which nobody waited are there and empty."""
        ...


class DisruptionReader(Protocol):
    """What a cluster's Prometheus says of nodes that Karpenter could have let go."""

    def week(self, end: datetime) -> Disruption:
        """The most of the seven days before a moment; what nobody told is not there.

        Raises:
            SourceError: the metrics could not be had.
        """
        ...


class DisruptionReaders(Protocol):
    """A reader for each cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> DisruptionReader:
        """The reader of one cluster, whose queries all end by a deadline."""
        ...
