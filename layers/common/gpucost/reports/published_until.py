"""Where periods relative to now end: after the newest hour that the clusters have published."""

from datetime import datetime

from gpucost.core.hours import HOUR, floor_hour
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore


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
