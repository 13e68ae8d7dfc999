"""What recommendations need from storage and Prometheus, as Protocols."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from gpucost.features.recommendations.history import KarpenterDisruption, PodWait
from gpucost.features.recommendations.model import Recommendation, Review
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings


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


class WaitingPodsReader(Protocol):
    """Reads pods that wait for GPUs from a cluster's Prometheus."""

    def waits(self, day: datetime) -> list[PodWait]:
        """The waits of pods on a UTC day, by name.

        Raises:
            SourceError: the metrics are not available.
        """
        ...


class DisruptionReader(Protocol):
    """Reads from a cluster's Prometheus which nodes Karpenter could have removed."""

    def week(self, end: datetime) -> KarpenterDisruption:
        """The maximum of the seven days before a time. Reasons without samples are absent.

        Raises:
            SourceError: the metrics are not available.
        """
        ...


MemoryReaderFactory = Callable[[ClusterSettings, Deadline | None], MemoryReader]
WaitingPodsReaderFactory = Callable[[ClusterSettings, Deadline | None], WaitingPodsReader]
DisruptionReaders = Callable[[ClusterSettings, Deadline | None], DisruptionReader]
"""Make the reader of a cluster; all its queries end before the deadline."""
