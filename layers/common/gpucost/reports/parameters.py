"""From a request's parameters to a question: everything is checked before anything is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpucost.core.access import Scope
from gpucost.core.errors import ParameterError
from gpucost.core.query.cost_query import LARGEST_PAGE, IdlePolicy, CostQuery, check_reach, parse_sort
from gpucost.core.query.dimensions import parse_group_by
from gpucost.core.query.filters import parse_filter, parse_label_filters
from gpucost.core.query.periods import Granularity, check_length, parse_period
from gpucost.settings import Settings
from gpucost.storage.ports import StoredSettings


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """The parameters of `/v1/costs` as they came; None where one was not given."""

    start: str | None = None
    end: str | None = None
    window: str | None = None
    granularity: Granularity = "hour"
    group_by: str = ""
    filters: Mapping[str, str | None] = field(default_factory=dict)
    """By dimension, and `label`."""
    cluster: str | None = None
    idle: IdlePolicy = "hidden"
    sort: str = ""
    limit: int = LARGEST_PAGE
    cursor: str | None = None


def parse_cost_query(asked: QueryParameters, settings: Settings, now: datetime) -> CostQuery:
    """The question that parameters ask.

    Raises:
        ParameterError: which one is wrong, and what is allowed.
    """
    period = parse_period(asked.start, asked.end, asked.window, now)
    check_length(period, asked.granularity)
    group_by = parse_group_by(asked.group_by, settings.cost_labels)
    question = CostQuery(
        period=period,
        granularity=asked.granularity,
        group_by=group_by,
        filters=tuple(
            one
            for name, text in asked.filters.items()
            if text is not None
            for one in (
                parse_label_filters(text, settings.cost_labels) if name == "label" else [parse_filter(name, text)]
            )
        ),
        idle=asked.idle,
        sort=parse_sort(asked.sort, group_by, asked.idle),
        limit=asked.limit,
    )
    check_reach(question)
    return question


def select_clusters(text: str | None, stored: StoredSettings, scope: Scope, since: datetime | None = None) -> list[str]:
    """The clusters that an answer is about, in order of name. Only who sees the whole fleet is told their names.

    Args:
        text: which are asked for; None: all.
        stored: names the clusters.
        scope: the caller's.
        since: where the question's period begins, so that it is about those that left the settings later, too.

    Raises:
        ParameterError: a name that is not in the settings, or none is left.
    """
    names = stored.clusters(since) if since else sorted(known.name for known in stored.settings.clusters)
    if text is None:
        return names
    wanted = parse_filter("cluster", text)
    allowed = f"; allowed: {', '.join(names)}" if scope.is_fleet else ""
    unknown = [one.text for one in wanted.allowed if not one.is_prefix and one.text not in names]
    if unknown:
        raise ParameterError("cluster", f"{unknown[0]!r} is not in the settings{allowed}")
    found = [name for name in names if wanted.matches(name)]
    if not found:
        raise ParameterError("cluster", f"no cluster of the settings is meant{allowed}")
    return found
