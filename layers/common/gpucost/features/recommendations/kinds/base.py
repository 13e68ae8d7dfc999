"""What all kinds have: how they are recommended and combined, how a change shows, and what their savings are."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import (
    SERVICE_KINDS,
    SubjectHour,
    WorkloadMeasures,
    held_by_hour,
    subject_hours,
    with_figures,
)
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject

Choice = Literal["largest", "always", "otherwise"]


class ReviewedCluster(Struct, frozen=True):
    """What a review of a cluster is based on."""

    look_back: LookBack
    measured: Sequence[WorkloadMeasures]
    """The workloads that may get recommendations."""
    since: Mapping[str, int]
    """Index of the first hour after a recommendation was applied, by its id."""


class PoolPlan(Struct, frozen=True):
    """A change of a node pool and of workloads in it."""

    content: RecommendationContent
    workloads: frozenset[RecommendationSubject]
    """The workloads that take part."""
    parts: tuple[RecommendationContent, ...] = ()
    """Recommendations for these workloads, whose saving the change of the pool already counts."""


class RecommendationKind:
    """A kind of recommendations. A new one needs its texts, and `recommend_for` or `recommend`."""

    name: ClassVar[str]
    """In ids, in the API and on the command line."""
    title: ClassVar[str]
    """What the page calls it."""
    when: ClassVar[str]
    """The condition, for the tables of docs/explanation/recommendations.md; so are the next three."""
    change: ClassVar[str]
    verified: ClassVar[str]
    """What counts as the verified saving."""
    not_verified: ClassVar[str] = ""

    choice: ClassVar[Choice] = "always"
    """Which other kinds it excludes. `largest`: of these, a workload gets the one that saves most. `otherwise`: only
    workloads without any other recommendation get it."""
    is_after_plan: ClassVar[bool] = False
    """Whether it is for what remains after the plan, so that its saving is not added to the others."""
    lowers_price: ClassVar[bool] = False
    """Whether as many GPUs or nodes are held at a lower price."""
    shows_in_week: ClassVar[bool] = False
    """Whether a change shows in the mean of a week, and not in every hour."""
    keeps_resource: ClassVar[bool] = True
    """Whether a workload's pods request the same resource after the change."""

    @classmethod
    def recommend(cls, cluster: ReviewedCluster) -> Iterable[RecommendationContent | None]:
        """Recommend changes in a cluster; by default, each workload on its own."""
        return (cls.recommend_for(cluster.look_back, measures) for measures in cluster.measured)

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend a change of a workload."""
        return None

    @classmethod
    def plans(cls, cluster: ReviewedCluster, excluded: set[RecommendationSubject]) -> Iterable[PoolPlan]:
        """Plan changes of pools together with their workloads. A pool gets the plan that saves most.

        Args:
            cluster: the cluster.
            excluded: workloads that already have another recommendation.
        """
        return ()

    @classmethod
    def hourly_gpus(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[float | None] | None:
        """The GPUs (for a pool: nodes) in every hour, which show whether the change was made.

        Returns:
            None for hours without figures; None instead of the list if the subject is gone.
        """
        held = held_by_hour(look_back, content, keeps_resource=cls.keeps_resource)
        return None if held is None else with_figures(look_back, held)

    @classmethod
    def hourly_use_and_cost(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What the subject held and cost in every hour; None for hours without figures."""
        return subject_hours(look_back, content, keeps_resource=cls.keeps_resource)

    @classmethod
    def expected_amount(cls, content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
        """What an hour would hold without the change: of the earlier amount, the part whose work is still there."""
        if not current.held:
            return 0.0
        if content.subject.workload_kind in SERVICE_KINDS:
            return before.held  # fewer replicas are the change
        return before.held * remaining_work(current, before)


def remaining_work(current: SubjectHour, before: SubjectHour) -> float:
    """The part of an hour's pods that is still there. Pods that are gone took their part of the GPUs with them."""
    return min(1.0, current.demand / before.demand) if before.demand else 0.0


# Manifests and commands for recommendations: strategic merge patches for `kubectl patch --patch-file`.
#
# There is a patch only if the workload's object can be patched. The ledger does not hold containers, so requests are
# changed with `kubectl set resources`, which covers all of them.

API_VERSION_OF_SCALABLE_KIND = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}


def replicas_patch(subject: RecommendationSubject, replicas: int) -> str:
    """A patch with another number of replicas; empty for kinds without replicas."""
    version = API_VERSION_OF_SCALABLE_KIND.get(subject.workload_kind)
    if version is None:
        return ""
    return (
        f"apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {quoted(subject.workload)}\n  namespace: {quoted(subject.namespace)}\n"
        f"spec:\n  replicas: {replicas}\n"
    )


def quoted(text: str) -> str:
    """Quote a text as a YAML string."""
    return json.dumps(text)


def single_line(text: str) -> str:
    """Write a text so that a comment does not end within it."""
    return " ".join(text.split())


def affinity_patch(subject: RecommendationSubject, terms: Sequence[str], comment: str) -> str:
    """A patch of the node affinity of pods; empty for kinds without a pod template."""
    version = {**API_VERSION_OF_SCALABLE_KIND, "CronJob": "batch/v1"}.get(subject.workload_kind)
    if version is None:
        return ""
    pods = ["template:", "  spec:", "    affinity:", "      nodeAffinity:", *(f"        {line}" for line in terms)]
    if subject.workload_kind == "CronJob":
        pods = ["jobTemplate:", "  spec:", *(f"    {line}" for line in pods)]
    return (
        f"{comment}apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {quoted(subject.workload)}\n  namespace: {quoted(subject.namespace)}\n"
        "spec:\n" + "".join(f"  {line}\n" for line in pods)
    )
