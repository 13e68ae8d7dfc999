"""Combines the open recommendations into one plan: changes that can all be made, and whose savings add up.

A review recommends at most one change for a workload. Changes that remove nodes of a pool free GPUs that no workload
holds, or nodes that its pods then no longer need, so they add to what its workloads free: no GPU-hour counts twice. Two
kinds of changes are not consistent with that:

- Nodes for waiting pods, or more replicas, in a pool whose nodes are to be removed. The pool gets the change that is
  worth more. The others are its alternatives.
- Nodes that cost more than the waiting is worth. They are not offered.

A plan is computed whenever recommendations are read, so that it is right after one of them was dismissed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.model import Offer, Recommendation, RecommendationContent

_Pool = tuple[str, str, str, str, str]
_ZERO = Decimal(0)


def offered(recommendations: Iterable[Recommendation]) -> list[Recommendation]:
    """Set how each open recommendation is offered next to the others.

    Args:
        recommendations: all that are stored for one or more clusters, in any state.
    """
    rows = list(recommendations)
    open_rows = [row for row in rows if row.state == "open"]
    offers = _offers([row.content for row in open_rows])
    return [
        replace(row, offer=offers[row.id][0], alternative_to=offers[row.id][1])
        if row.state == "open"
        else replace(row, offer=None, alternative_to="")
        for row in rows
    ]


def _offers(contents: Sequence[RecommendationContent]) -> dict[str, tuple[Offer, str]]:
    """How each is offered, and the id of the one that it is an alternative to."""
    offers: dict[str, tuple[Offer, str]] = {content.id: _alone(content) for content in contents}
    by_pool: dict[_Pool, list[RecommendationContent]] = {}
    for content in contents:
        if not content.subject.is_workload and not KINDS_BY_NAME[content.kind].is_after_plan:
            by_pool.setdefault(_pool_of(content), []).append(content)
    shrinking: dict[tuple[str, str, str], str] = {}
    """Id of the largest change that removes nodes, by cluster, node pool and instance type."""
    for pool_contents in by_pool.values():
        removals = [content for content in pool_contents if content.saving.usd > 0]
        additions = [content for content in pool_contents if offers[content.id][0] == "cost"]
        if removals and additions:
            is_worth_more = sum(map(_net_worth, additions), _ZERO) > sum(map(_net_worth, removals), _ZERO)
            chosen, others = (additions, removals) if is_worth_more else (removals, additions)
            best = max(chosen, key=lambda content: (_net_worth(content), content.id))
            offers.update({content.id: ("alternative", best.id) for content in others})
            removals = [] if is_worth_more else removals
        if removals:
            best = max(removals, key=lambda content: (content.saving.usd, content.id))
            subject = best.subject
            shrinking[subject.cluster, subject.node_pool, subject.instance_type] = best.id
            offers.update(
                {
                    content.id: ("alternative", best.id)
                    for content in pool_contents
                    if offers[content.id] == ("alternative", "")
                }
            )
    for content in contents:
        removal = next(
            (shrinking[key] for pool in content.pools if (key := (content.subject.cluster, *pool)) in shrinking), ""
        )
        if removal and content.saving.usd < 0:
            offers[content.id] = "alternative", removal
        elif content.part_of in offers:  # a slice comes with the plan of its pool
            offers[content.id] = offers[content.part_of]
    return offers


def _alone(content: RecommendationContent) -> tuple[Offer, str]:
    """How a recommendation is offered if nothing contradicts it."""
    if KINDS_BY_NAME[content.kind].is_after_plan:
        return "after-plan", ""
    if content.saving.usd >= 0:
        return "plan", ""
    is_loss = content.worth_usd is not None and content.worth_usd + content.saving.usd < 0
    return ("alternative" if is_loss else "cost"), ""


def _net_worth(content: RecommendationContent) -> Decimal:
    return content.saving.usd + (content.worth_usd or _ZERO)


def _pool_of(content: RecommendationContent) -> _Pool:
    """The pool of a recommendation. The requested resource does not make it another one."""
    subject = content.subject
    return subject.cluster, subject.node_pool, subject.instance_type, subject.capacity_type, subject.gpu_model
