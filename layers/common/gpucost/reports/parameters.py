"""Turns a request's parameters into a checked cost query, before any figures are read."""

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct, field

from gpucost.core.access import Scope
from gpucost.core.errors import ParameterError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.query.cost_query import MAX_PAGE_SIZE, CostQuery, IdlePolicy, check_line_hours, parse_sort
from gpucost.core.query.dimensions import parse_filter, parse_group_by, parse_label_filters
from gpucost.core.query.periods import Granularity, check_period_length, parse_period
from gpucost.settings import CoreSettings
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore, StoredSettings


class QueryParameters(Struct, frozen=True, kw_only=True):
    """The parameters of `/v1/costs` as sent; None for a parameter that was not sent."""

    start: str | None = None
    end: str | None = None
    window: str | None = None
    granularity: Granularity = "hour"
    group_by: str = ""
    filters: Mapping[str, str | None] = field(default_factory=dict)
    """By dimension name, or `label`."""
    cluster: str | None = None
    idle: IdlePolicy = "hidden"
    sort: str = ""
    limit: int = MAX_PAGE_SIZE
    cursor: str | None = None


def parse_cost_query(
    parameters: QueryParameters,
    settings: CoreSettings,
    now: datetime,
    published_until: Callable[[], datetime] | None = None,
) -> CostQuery:
    """Parse and check the parameters. Windows end as `parse_window` says.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    period = parse_period(parameters.start, parameters.end, parameters.window, now, published_until=published_until)
    check_period_length(period, parameters.granularity)
    group_by = parse_group_by(parameters.group_by, settings.cost_labels)
    query = CostQuery(
        period=period,
        granularity=parameters.granularity,
        group_by=group_by,
        filters=tuple(
            parsed
            for name, text in parameters.filters.items()
            if text is not None
            for parsed in (
                parse_label_filters(text, settings.cost_labels) if name == "label" else [parse_filter(name, text)]
            )
        ),
        idle=parameters.idle,
        sort=parse_sort(parameters.sort, group_by, parameters.idle),
        limit=parameters.limit,
    )
    check_line_hours(query)
    return query


def select_clusters(
    cluster_filter: str | None, stored_settings: StoredSettings, scope: Scope, since: datetime | None = None
) -> list[str]:
    """Return the names of the clusters that a report covers, sorted.

    Args:
        cluster_filter: the parameter `cluster`; None selects all clusters.
        stored_settings: source of the cluster names.
        scope: the caller's scope. Error messages list cluster names only to callers who see the whole fleet.
        since: start of the period, which also selects clusters that were removed from the settings after it.

    Raises:
        ParameterError: a name is not in the settings, or the filter matches no cluster.
    """
    current_names = (cluster.name for cluster in stored_settings.settings.clusters)
    names = stored_settings.clusters(since) if since else sorted(current_names)
    if cluster_filter is None:
        return names
    pattern = parse_filter("cluster", cluster_filter)
    allowed = f"; allowed: {', '.join(names)}" if scope.is_fleet else ""
    unknown = [name.text for name in pattern.allowed if not name.is_prefix and name.text not in names]
    if unknown:
        raise ParameterError("cluster", f"{unknown[0]!r} is not in the settings{allowed}")
    matching_names = [name for name in names if pattern.matches(name)]
    if not matching_names:
        raise ParameterError("cluster", f"{cluster_filter!r} matches no cluster in the settings{allowed}")
    return matching_names


# Where periods relative to now end: after the newest hour that the clusters have published.


class PublishedUntil:
    """Finds the end of the hours that have figures by now.

    An hour is computed some minutes after its end. Until all clusters have published it, reports on the last hours end
    before it; otherwise they would be incomplete at the beginning of every hour. Nothing is waited for longer than an
    hour: then it is overdue. A cluster that has not published the hour before either is overdue already.

    Args:
        settings_store: names the clusters.
        ledger: published hours.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._clock = clock
        self._published_until: datetime | None = None

    def __call__(self) -> datetime:
        """Return the end of the newest ended hour, or its start while clusters still compute it.

        Raises:
            SettingsMissingError: no settings yet.
        """
        ended = floor_hour(self._clock())
        if self._published_until != ended:  # a published hour stays published
            newest = ended - HOUR
            for cluster in self._settings_store.current().settings.clusters:
                hours = {manifest.hour for manifest in self._ledger.manifests(cluster.name, newest - HOUR, ended)}
                if hours == {newest - HOUR}:
                    return newest
            self._published_until = ended
        return ended
