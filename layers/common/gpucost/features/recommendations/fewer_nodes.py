"""Says with how many nodes a pool is enough, and in which hours, as an engineer would."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from gpucost.features.recommendations.model import format_count

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
