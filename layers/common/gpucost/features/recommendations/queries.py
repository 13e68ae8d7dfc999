"""What people do with advice: look at it, dismiss it with a reason, open it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.errors import ConflictError, NotFoundError
from gpucost.features.recommendations.lifecycle import dismiss, reopen
from gpucost.features.recommendations.model import Recommendation, RecommendationState, WorkloadAssessment
from gpucost.features.recommendations.ports import RecommendationStore
from gpucost.reports.parameters import select_clusters
from gpucost.storage.ports import Clock, SettingsStore

_ORDER: tuple[RecommendationState, ...] = ("open", "applied", "verified", "dismissed", "withdrawn")


@dataclass(frozen=True, slots=True)
class ReviewSummary:
    """When a cluster was reviewed, on which hours, and how its workloads stand."""

    cluster: str
    start: datetime
    end: datetime
    reviewed_at: datetime
    hours_known: int
    assessments: tuple[WorkloadAssessment, ...]


@dataclass(frozen=True, slots=True)
class RecommendationList:
    """What is advised, open ones first and what saves most first, and the reviews that it is from."""

    rows: tuple[Recommendation, ...]
    reviews: tuple[ReviewSummary, ...]


class RecommendationQueries:
    """Lists and manages recommendations.

    Args:
        settings_store: names the clusters.
        store: recommendations.
        clock: the time now.
    """

    def __init__(self, settings_store: SettingsStore, store: RecommendationStore, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._store = store
        self._clock = clock

    def recommendations(self, *, cluster: str | None = None, scope: Scope = FULL_ACCESS) -> RecommendationList:
        """All recommendations, as far as a caller may see them.

        Who may see some business units sees their workloads' alone: none of node pools.

        Raises:
            ParameterError: a cluster that the settings do not know.
            SettingsMissingError: no settings yet.
        """
        rows: list[Recommendation] = []
        reviews: list[ReviewSummary] = []
        for name in self._clusters(cluster, scope):
            rows += [one for one in self._store.recommendations(name) if _may_see(scope, one)]
            found = self._store.review(name)
            if found is not None:
                judged = tuple(one for one in found.assessments if scope.covers(one.subject.business_unit))
                reviews.append(ReviewSummary(name, found.start, found.end, found.reviewed_at, found.hours_known, judged))
        return RecommendationList(tuple(sorted(rows, key=_place)), tuple(reviews))

    def find(self, advice_id: str) -> Recommendation:
        """One, by its id.

        Raises:
            NotFoundError: there is none.
        """
        found = [one for name in self._clusters(None, FULL_ACCESS) for one in self._store.recommendations(name)]
        own = next((one for one in found if one.id == advice_id), None)
        if own is None:
            raise NotFoundError(f"there is no recommendation {advice_id!r}; `gpucost advise` lists them")
        return own

    def dismiss(self, advice_id: str, *, author: str, reason: str) -> Recommendation:
        """Somebody does not want it: it is not advised again until it is opened again.

        Raises:
            NotFoundError: there is none of that id.
            InvalidInputError: no reason, or it is not open.
            ConflictError: the daily run wrote it at that very moment; try again.
        """
        return self._write(dismiss(self.find(advice_id), author=author, reason=reason, now=self._now()))

    def reopen(self, advice_id: str) -> Recommendation:
        """Somebody wants it after all.

        Raises:
            NotFoundError: there is none of that id.
            InvalidInputError: it was not dismissed.
            ConflictError: the daily run wrote it at that very moment; try again.
        """
        return self._write(reopen(self.find(advice_id), now=self._now()))

    def _write(self, changed: Recommendation) -> Recommendation:
        try:
            return self._store.put(changed)
        except ConflictError as error:
            raise ConflictError(f"{changed.id} was written by somebody else just now; try again") from error

    def _now(self) -> datetime:
        return self._clock().replace(microsecond=0)

    def _clusters(self, cluster: str | None, scope: Scope) -> Sequence[str]:
        return select_clusters(cluster, self._settings_store.current(), scope)


def _may_see(scope: Scope, one: Recommendation) -> bool:
    return scope.is_fleet or (one.content.subject.is_workload and scope.covers(one.content.subject.business_unit))


def _place(one: Recommendation) -> tuple[int, float, str]:
    return _ORDER.index(one.state), -float(one.content.saving.usd), one.id
