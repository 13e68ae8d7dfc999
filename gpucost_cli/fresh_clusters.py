"""Clusters whose Prometheus is new: what is known of them so far, and which hours are partial, for `gpucost serve`.

The time so far is kept in memory and never in the ledger, so that no sum of hours contains it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, floor_hour, format_epoch_ms, format_timestamp
from gpucost.core.ledger import Manifest
from gpucost.core.metering.metering import PARTIAL_HOUR_PREFIX
from gpucost.pipeline.attribute import SoFar, attribute_so_far
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings
from gpucost_cli.aws_access import AwsAccess
from gpucost_cli.node_price_fetcher import price_fetcher_of
from gpucost_cli.rendering import hours_document
from gpucost_cli.usage_tables import joined_notes

RECENT_HOURS = 24
"""A cluster with figures of one of the newest hours is not fresh."""
MAX_AGE = timedelta(minutes=1)
"""Figures are read again when they are older, however many pages are open."""
QUERIES_SECONDS = 45.0
"""Limit of the time of one cluster's queries; the page waits a minute."""
UNTIL_THEN = (
    "Until an hour has figures, the overview shows the time so far. Hours are on the page five minutes after they end."
)


class FreshClusters:
    """Reads the time so far of clusters that have no hour with figures.

    Args:
        container: has settings, ledger and secrets.
        clock: returns the current time.
        aws: for AWS's prices; None: nothing asks AWS.
    """

    def __init__(self, container: Container, clock: Callable[[], datetime], aws: AwsAccess | None) -> None:
        self._container = container
        self._clock = clock
        self._aws = aws
        self._lock = Lock()
        self._read_at: datetime | None = None
        self._results: dict[str, SoFar | SourceError] = {}
        self._whole_hour_ends: dict[str, int] = {}

    def read(self) -> Mapping[str, SoFar | SourceError]:
        """Return the figures by cluster, or why they are unknown; at most a minute old."""
        with self._lock:
            now = self._clock()
            if self._read_at is None or not timedelta() <= now - self._read_at < MAX_AGE:
                settings = self._container.settings_store.current().settings
                results = {cluster.name: self._read_cluster(cluster, now) for cluster in settings.clusters}
                self._results = {name: result for name, result in results.items() if result is not None}
                self._read_at = now
            return {name: result for name, result in self._results.items() if not self._has_figures(name, now)}

    def document(self) -> dict[str, Any]:
        """Return the figures as `{"clusters": [{cluster, start, end, minutes, …}]}`; unknown ones are null."""
        return {"clusters": [_cluster_document(name, result) for name, result in self.read().items()]}

    @property
    def notice(self) -> str:
        """When first whole hours end, and which hours are partial; "" without any. It does not query Prometheus."""
        return " ".join(filter(None, (self._first_whole_hours(), *self.partial_hours())))

    def partial_hours(self) -> list[str]:
        """Say of how many minutes the figures of recent hours are in which the samples of a Prometheus begin."""
        now = self._clock()
        clusters: dict[tuple[datetime, str], list[str]] = {}
        for cluster in self._container.settings_store.current().settings.clusters:
            with_gaps = [
                manifest
                for manifest in self._recent_manifests(cluster.name, now)
                if manifest.status != "incomplete" and manifest.coverage and manifest.coverage.allocation < 1
            ]
            for hour, notes in self._container.ledger.notes_of(with_gaps).items():
                for note in notes:
                    if note.startswith(PARTIAL_HOUR_PREFIX):
                        reason = note.removeprefix(PARTIAL_HOUR_PREFIX)
                        clusters.setdefault((hour, reason), []).append(cluster.name)
        return [
            f"Of {', '.join(names)}, the hour from {format_timestamp(hour)} is partial: {reason}."
            for (hour, reason), names in sorted(clusters.items())
        ]

    def _first_whole_hours(self) -> str:
        now = self._clock()
        ends = {name: end for name, end in list(self._whole_hour_ends.items()) if not self._has_figures(name, now)}
        if not ends:
            return ""
        parts = ", that of ".join(f"{name} ends at {format_epoch_ms(end)}" for name, end in ends.items())
        return f"The first whole hour of {parts}. {UNTIL_THEN}"

    def _has_figures(self, cluster: str, now: datetime) -> bool:
        return any(manifest.status != "incomplete" for manifest in self._recent_manifests(cluster, now))

    def _recent_manifests(self, cluster: str, now: datetime) -> Sequence[Manifest]:
        return self._container.ledger.manifests(cluster, floor_hour(now) - RECENT_HOURS * HOUR, now)

    def _read_cluster(self, cluster: ClusterSettings, now: datetime) -> SoFar | SourceError | None:
        if self._has_figures(cluster.name, now):
            return None
        settings = self._container.settings_store.current().settings
        reader = self._container.metrics_reader(cluster, settings, Deadline(QUERIES_SECONDS))
        try:
            prices = price_fetcher_of(settings.pricing, floor_hour(now), now, self._aws) if self._aws else None
            so_far = attribute_so_far(reader, cluster, settings, now=now, fetch_prices=prices)
        except SourceError as error:
            return error
        if so_far is None:  # the first whole hour has ended and is not attributed yet: the latest figures stay
            latest = self._results.get(cluster.name)
            return latest if isinstance(latest, SoFar) else None
        self._whole_hour_ends[cluster.name] = so_far.first_whole_hour_end
        return so_far


def _cluster_document(cluster: str, result: SoFar | SourceError) -> dict[str, Any]:
    if isinstance(result, SourceError):
        return {"cluster": cluster, "error": str(result).partition(" (query: ")[0]}
    (hour,) = hours_document([result.record])["hours"]
    return {
        "cluster": cluster,
        "start": format_epoch_ms(result.time.start),
        "end": format_epoch_ms(result.time.end),
        "minutes": result.time.length // 60_000,
        "first_whole_hour_end": format_epoch_ms(result.first_whole_hour_end),
        "currency": hour["currency"],
        "totals": hour["totals"],
        "business_units": hour["business_units"],
        "notes": joined_notes([result.record]),
    }
