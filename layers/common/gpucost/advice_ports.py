"""What advice needs from the outside, as Protocols."""

from datetime import datetime
from typing import Protocol

from gpucost.domain.advice.model import Recommendation, Review
from gpucost.domain.ledger import Manifest
from gpucost.domain.model import ClusterCharge, Line, NodeHour


class AdvisedHours(Protocol):
    """The ledger, version by version. Every read is consistent."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """The hours in force in `[start, end)`, oldest first."""
        ...

    def lines_of(self, manifest: Manifest) -> list[Line]:
        """The lines of this very version."""
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
