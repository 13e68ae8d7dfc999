"""List recommendations, dismiss them with a reason, and reopen them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.errors import ConflictError, NotFoundError
from gpucost.features.recommendations.lifecycle import offered
from gpucost.features.recommendations.model import Recommendation, RecommendationState, Review
from gpucost.features.recommendations.ports import RecommendationStore
from gpucost.reports.parameters import select_clusters
from gpucost.storage.ports import Clock, SettingsStore

_ORDER: tuple[RecommendationState, ...] = ("open", "applied", "verified", "dismissed", "withdrawn")


class RecommendationQueries:
    """Lists and manages recommendations.

    Args:
        settings_store: names the clusters.
        store: stores recommendations.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, store: RecommendationStore, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._store = store
        self._clock = clock

    def recommendations(
        self, *, cluster: str | None = None, scope: Scope = FULL_ACCESS
    ) -> tuple[list[Recommendation], list[Review]]:
        """All recommendations and assessments that a caller may see.

        A caller who may see only some business units sees only their workloads, and no node pools.

        Returns:
            The recommendations, open ones first and the largest saving first, and the newest review of each cluster.

        Raises:
            ParameterError: a cluster that the settings do not know.
            SettingsMissingError: no settings yet.
        """
        rows: list[Recommendation] = []
        reviews: list[Review] = []
        for cluster_name in self._clusters(cluster, scope):
            rows += [
                recommendation
                for recommendation in offered(self._store.recommendations(cluster_name))
                if _may_see(scope, recommendation)
            ]
            review = self._store.review(cluster_name)
            if review is not None:
                assessments = tuple(
                    assessment for assessment in review.assessments if scope.covers(assessment.subject.business_unit)
                )
                reviews.append(replace(review, assessments=assessments))
        return sorted(rows, key=_sort_key), reviews

    def find(self, recommendation_id: str) -> Recommendation:
        """The recommendation with an id.

        Raises:
            NotFoundError: there is no such recommendation.
        """
        recommendations = [
            candidate
            for cluster_name in self._clusters(None, FULL_ACCESS)
            for candidate in offered(self._store.recommendations(cluster_name))
        ]
        recommendation = next((candidate for candidate in recommendations if candidate.id == recommendation_id), None)
        if recommendation is None:
            raise NotFoundError(
                f"there is no recommendation {recommendation_id!r}; "
                "list them with `gpucost recommendations list --state all`"
            )
        return recommendation

    def dismiss(self, recommendation_id: str, *, author: str, reason: str) -> Recommendation:
        """Dismiss a recommendation. It is not recommended again until it is reopened.

        Raises:
            NotFoundError: there is no such recommendation.
            InvalidInputError: no reason, or it is not open.
            ConflictError: the daily review wrote it at the same time; try again.
        """
        from gpucost.features.recommendations.lifecycle import dismiss  # the API only reads

        return self._write(dismiss(self.find(recommendation_id), author=author, reason=reason, now=self._now()))

    def reopen(self, recommendation_id: str) -> Recommendation:
        """Reopen a dismissed recommendation.

        Raises:
            NotFoundError: there is no such recommendation.
            InvalidInputError: it was not dismissed.
            ConflictError: the daily review wrote it at the same time; try again.
        """
        from gpucost.features.recommendations.lifecycle import reopen

        return self._write(reopen(self.find(recommendation_id), now=self._now()))

    def _write(self, changed: Recommendation) -> Recommendation:
        try:
            return self._store.put(changed)
        except ConflictError as error:
            raise ConflictError(f"{changed.id} was changed by someone else at the same time; try again") from error

    def _now(self) -> datetime:
        return self._clock().replace(microsecond=0)

    def _clusters(self, cluster: str | None, scope: Scope) -> Sequence[str]:
        return select_clusters(cluster, self._settings_store.current(), scope)


def _may_see(scope: Scope, recommendation: Recommendation) -> bool:
    return scope.is_fleet or (
        recommendation.content.subject.is_workload and scope.covers(recommendation.content.subject.business_unit)
    )


def _sort_key(recommendation: Recommendation) -> tuple[int, float, str]:
    return _ORDER.index(recommendation.state), -float(recommendation.content.saving.usd), recommendation.id
