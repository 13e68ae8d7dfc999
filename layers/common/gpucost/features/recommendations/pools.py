"""What recommendations say about node pools: subject, evidence, node costs, and when freed GPUs become cash."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.measuring import (
    MIN_PRICED_SHARE,
    NEWEST_HOURS,
    WorkloadMeasures,
    estimate_saving,
    unpriced_facts,
)
from gpucost.features.recommendations.model import Evidence, RecommendationSubject, Saving, format_count


def pool_subject(look_back: LookBack, pool: PoolHourlySeries, resource: str = "") -> RecommendationSubject:
    """The subject of recommendations for a pool."""
    key = pool.key
    return RecommendationSubject(
        look_back.cluster,
        node_pool=key.node_pool,
        instance_type=key.instance_type,
        capacity_type=key.capacity_type,
        gpu_model=key.gpu_model,
        resource=resource,
    )


def pool_evidence(look_back: LookBack, pool: PoolHourlySeries, first: int, facts: dict[str, str]) -> Evidence:
    """The evidence of a recommendation for a pool, from the first hour that counts."""
    hours_with_nodes = [
        index for index in range(first, look_back.hours) if look_back.has_figures[index] and pool.node_counts[index]
    ]
    return Evidence(
        look_back.hour_at(first),
        look_back.hour_at(look_back.hours - 1),
        len(hours_with_nodes),
        look_back.hours - first - sum(look_back.has_figures[first:]),
        None,
        None,
        None,
        facts | unpriced_facts(sum(pool.is_unpriced[index] for index in hours_with_nodes), len(hours_with_nodes)),
    )


def has_enough_prices(look_back: LookBack, pool: PoolHourlySeries) -> bool:
    """Whether enough of a pool's hours are completely priced for an estimate of amounts."""
    hours_with_nodes = [
        index for index in range(look_back.hours) if look_back.has_figures[index] and pool.node_counts[index]
    ]
    return sum(not pool.is_unpriced[index] for index in hours_with_nodes) >= max(
        1, MIN_PRICED_SHARE * len(hours_with_nodes)
    )


def mean_pool_cost(look_back: LookBack, pool: PoolHourlySeries, first: int) -> float:
    """The mean cost of a pool per hour, over its priced hours."""
    priced = look_back.priced_hour_indexes(pool.is_unpriced, first)
    return sum(pool.cost_usd[index] for index in priced) / max(1, len(priced))


def mean_node_cost(pool: PoolHourlySeries, index: int) -> float:
    """The mean cost of a pool's nodes in an hour; 0 without nodes."""
    return pool.cost_usd[index] / pool.node_counts[index] if pool.node_counts[index] else 0.0


def newest_hour_indexes(look_back: LookBack, first: int) -> list[int]:
    """Indexes of the newest day's hours that have figures."""
    return [
        index
        for index in range(max(first, look_back.hours - NEWEST_HOURS), look_back.hours)
        if look_back.has_figures[index]
    ]


def gpus_per_node(pool: PoolHourlySeries) -> int:
    """Physical GPUs per node: the maximum over all hours, because nodes that start or stop count only in part."""
    return round(
        max(
            (
                gpu_hours / nodes
                for gpu_hours, nodes in zip(pool.capacity_gpu_hours, pool.node_counts, strict=True)
                if nodes
            ),
            default=0.0,
        )
    )


def pool_list_price_ratio(look_back: LookBack, pool: PoolHourlySeries) -> float | None:
    """List price ÷ what was charged for a pool's nodes; None if its list price is not known."""
    if pool.spend.is_all_at_list_price:
        return 1.0
    list_price = look_back.list_prices.get(pool.key.instance_type)
    priced = look_back.priced_hour_indexes(pool.is_unpriced)
    cost = sum(pool.cost_usd[index] for index in priced)
    nodes = sum(pool.node_counts[index] for index in priced)
    return None if list_price is None or not cost else list_price * nodes / cost


def estimate_pool_saving(
    look_back: LookBack, pool: PoolHourlySeries, first: int, freed_by_hour: Callable[[int], tuple[float, float]]
) -> Saving:
    """Estimate the saving of a change that removes nodes of a pool; see `estimate_saving`."""
    cash, list_ratio = pool.spend.avoidable_share(), pool_list_price_ratio(look_back, pool)
    return estimate_saving(look_back, first, freed_by_hour, cash, list_ratio, pool.is_unpriced)


def workload_cash_share(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None if it is not known.

    Freed GPUs become cash when their node is removed. That is not known for fewer GPUs than a node has.
    """
    share = measures.history.spend.avoidable_share()
    return None if share and freed < largest_node_gpus(look_back, measures) else share


def largest_node_gpus(look_back: LookBack, measures: WorkloadMeasures) -> int:
    """GPUs of the largest node on which the workload runs."""
    return max((gpus_per_node(look_back.pools[pool]) for pool in measures.history.gpu_millihours_by_pool), default=0)


def cash_fact(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> dict[str, str]:
    """A fact that freed GPUs are no cash yet; empty if they are a whole node."""
    node_gpus = largest_node_gpus(look_back, measures)
    if freed >= node_gpus:
        return {}
    return {
        "cash": f"when a node is removed: {format_count(freed)} of {node_gpus} GPUs become free, others may be held"
    }


# Says with how many nodes a pool is enough, and in which hours, as an engineer would.

_SAME_SHARE: Final = 0.9
"""Part of the hours from which on they count as alike."""
_ALL_SHARE: Final = 0.995
"""Part of the hours that is written as all hours."""
_NAMED_SHARE: Final = 0.01
"""Part of the hours from which on another number of nodes is named, because the saving includes it."""
_REGULAR_SHARE: Final = 0.5
"""Part of the times of an hour of the week that must be alike for the hour to be named."""
_MOST_TIMES: Final = 3
"""Times of the week that are named."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = 24


def fewer_nodes_phrase(before: Sequence[int], after: Sequence[int]) -> str:
    """How many nodes are enough in how many hours, for example `with 1 node in 28% of hours`.

    The saving is of all these hours, so a number of nodes that some of them have is not left out.

    Args:
        before: the nodes of each hour.
        after: the nodes that are enough.
    """
    pairs = Counter(pair for pair in zip(before, after, strict=True) if pair[1] < pair[0])
    hours = sum(pairs.values())
    if not hours:
        return "with nodes that end sooner"
    share = hours / len(before)
    in_hours = "" if share >= _ALL_SHARE else f" in {_format_share(share)} of hours"
    (usual_before, usual_after), count = pairs.most_common(1)[0]
    if count >= _SAME_SHARE * hours:
        others = {
            after: number
            for (nodes, after), number in pairs.items()
            if nodes == usual_before and after != usual_after and number >= _NAMED_SHARE * len(before)
        }
        return f"with {_count_nodes(usual_after)}" + _usual_and_others(
            len(before), hours, in_hours or f" instead of {format_count(usual_before)}", others
        )
    if sum(pairs[pair] for pair in pairs if pair[0] == usual_before) >= _SAME_SHARE * hours:
        fewest, most = min(after for _, after in pairs), max(after for _, after in pairs)
        between = _count_nodes(most) if fewest == most else f"{format_count(fewest)} to {_count_nodes(most)}"
        return f"with {between} instead of {format_count(usual_before)}{in_hours}"
    fewest, most = min(before - after for before, after in pairs), max(before - after for before, after in pairs)
    between = format_count(fewest) if fewest == most else f"{format_count(fewest)} to {format_count(most)}"
    return f"with {between} fewer node{'' if most == 1 else 's'}{in_hours}"


def _usual_and_others(total: int, hours: int, usual: str, others: Mapping[int, int]) -> str:
    """The hours of the usual number of nodes and of others, for example ` instead of 4, and 2 in 7% of hours`.

    Args:
        total: all hours.
        hours: those in which fewer nodes are enough.
        usual: of the usual number alone.
        others: how many hours have each of the other numbers.
    """
    if not others:
        return usual
    count = sum(others.values())
    fewest, most = min(others), max(others)
    named = (
        (format_count(most) if most else "none")
        if fewest == most
        else f"{format_count(fewest)} to {format_count(most)}"
    )
    if hours >= _ALL_SHARE * total:
        return f"{usual}, and {named} in {_format_share(count / total)} of hours"
    return f" in {_format_share((hours - count) / total)} of hours, and {named} in {_format_share(count / total)}"


def enough_nodes_fact(before: Sequence[int], after: Sequence[int]) -> str:
    """The hours in which fewer nodes are enough, by number, for example `1 is enough in 202 of 720 hours`."""
    counts = Counter(after for before, after in zip(before, after, strict=True) if after < before)
    if not counts:
        return f"as many as now in each of {format_count(len(before))} whole hours"
    shown = sorted(counts.most_common(_MOST_TIMES))
    phrases = [
        f"{format_count(nodes)} {'is' if nodes == 1 else 'are'} enough in {hours} of {len(before)} hours"
        for nodes, hours in shown
    ]
    more = len(counts) - len(shown)
    return "; ".join([*phrases, *([f"{more} other numbers in the rest"] if more else [])])


def regular_hours(start: datetime, indexes: Sequence[int], marked: Iterable[bool], zone: ZoneInfo | None) -> str:
    """The times of the week that most of the marked hours are at, for example `Sat and Sun all day`; may be empty.

    Args:
        start: the first hour of the look-back.
        indexes: the hours that count, by index.
        marked: whether each of them is marked.
        zone: the time zone of the text; None for UTC.
    """
    seen, hits = [0] * 168, [0] * 168
    for index, is_marked in zip(indexes, marked, strict=True):
        local = (start + timedelta(hours=index)).astimezone(zone or UTC)
        slot = _DAY * local.weekday() + local.hour
        seen[slot] += 1
        hits[slot] += is_marked
    is_regular = [bool(count) and hits[slot] >= _REGULAR_SHARE * count for slot, count in enumerate(seen)]
    if not any(is_regular) or all(is_regular):
        return ""
    days_by_hours: dict[str, list[int]] = {}
    for day in range(7):
        if any(hours := is_regular[_DAY * day : _DAY * (day + 1)]):
            days_by_hours.setdefault(_format_hours(hours), []).append(day)
    if len(days_by_hours) > _MOST_TIMES or any(hours.count(" and ") > 1 for hours in days_by_hours):
        return ""
    times = [f"{_format_days(days)} {hours}" for hours, days in days_by_hours.items()]
    return f"mostly {', '.join(times)} ({zone.key if zone else 'UTC'})"


def _format_hours(hours: Sequence[bool]) -> str:
    """The hours of a day, for example `00:00 to 08:00 and 20:00 to 24:00`."""
    if all(hours):
        return "all day"
    edges = [hour for hour in range(_DAY + 1) if (hour < _DAY and hours[hour]) != (hour > 0 and hours[hour - 1])]
    return " and ".join(f"{begin:02d}:00 to {end:02d}:00" for begin, end in zip(edges[::2], edges[1::2], strict=True))


def _format_days(days: Sequence[int]) -> str:
    """Days of the week, for example `Mon to Fri`."""
    if len(days) == len(_DAYS):
        return "daily"
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two days are named
        return f"{_DAYS[days[0]]} to {_DAYS[days[-1]]}"
    return " and ".join([", ".join(_DAYS[day] for day in days[:-1]), _DAYS[days[-1]]]) if days[1:] else _DAYS[days[0]]


def _format_share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"  # noqa: PLR2004 - it would be 0%


def _count_nodes(count: int) -> str:
    return f"{format_count(count)} node{'' if count == 1 else 's'}" if count else "no nodes"
