"""What recommendations need from storage and Prometheus, as Protocols."""

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


class LedgerHours(Protocol):
    """Reads the hours of the ledger, version by version. Every read is consistent."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """The current versions of the hours in `[start, end)`, oldest first."""
        ...

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published; None if there is none."""
        ...

    def uses_of(self, manifest: Manifest) -> list[LineUse]:
        """The lines of exactly this version, reduced to what recommendations need."""
        ...

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """The nodes of exactly this version, and the charges that belong to no node."""
        ...


class RecommendationStore(Protocol):
    """Stores recommendations and reviews. Every read is consistent."""

    def recommendations(self, cluster: str) -> list[Recommendation]:
        """All recommendations of a cluster by id; withdrawn ones until they expire."""
        ...

    def review(self, cluster: str) -> Review | None:
        """The newest review of a cluster, without its recommendations, which are stored separately."""
        ...

    def put(self, recommendation: Recommendation) -> Recommendation:
        """Write a recommendation if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: someone else wrote first.
        """
        ...

    def put_review(self, review: Review) -> None:
        """Replace a cluster's review, unless the stored one is newer."""
        ...


class MemoryReader(Protocol):
    """Reads GPU memory from a cluster's Prometheus."""

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        """The largest GPU memory that each pod (namespace, name) used on a UTC day, in bytes.

        Raises:
            SourceError: the metrics are not available.
        """
        ...


class MemoryReaders(Protocol):
    """Makes the reader of a cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> MemoryReader:
        """The reader of a cluster; all its queries end before the deadline."""
        ...


class MemoryStore(Protocol):
    """Stores the GPU memory peaks of whole days."""

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        """Store a day until a time."""
        ...

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        """The stored days in `[start, end)`. A day without samples is there and empty."""
        ...


class WaitingPodsReader(Protocol):
    """Reads pods that wait for GPUs from a cluster's Prometheus."""

    def waits(self, day: datetime) -> list[Wait]:
        """The waits of pods on a UTC day, by name.

        Raises:
            SourceError: the metrics are not available.
        """
        ...


class WaitingPodsReaders(Protocol):
    """Makes the reader of a cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> WaitingPodsReader:
        """The reader of a cluster; all its queries end before the deadline."""
        ...


class WaitingPodsStore(Protocol):
    """Stores the pods that waited, for whole days."""

    def put_waits(self, cluster: str, day: datetime, waits: Sequence[Wait], expires_at: datetime) -> None:
        """Store a day until a time."""
        ...

    def waits(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[Wait]]:
        """The stored days in `[start, end)`. A day on which no pod waited is there and empty."""
        ...


class DisruptionReader(Protocol):
    """Reads from a cluster's Prometheus which nodes Karpenter could have removed."""

    def week(self, end: datetime) -> Disruption:
        """The maximum of the seven days before a time. Reasons without samples are absent.

        Raises:
            SourceError: the metrics are not available.
        """
        ...


class DisruptionReaders(Protocol):
    """Makes the reader of a cluster."""

    def __call__(self, cluster: ClusterSettings, deadline: Deadline | None = None, /) -> DisruptionReader:
        """The reader of a cluster; all its queries end before the deadline."""
        ...
