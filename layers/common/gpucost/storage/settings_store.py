"""Stores the versions of the settings document in the ledger's table."""

import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from msgspec.structs import replace

from gpucost.core.errors import NotFoundError, SettingsError, SettingsMissingError, SourceError
from gpucost.settings import CoreSettings, SettingsModel
from gpucost.settings.documents import ReadDocument, parse_document, read_document, yaml_to_json
from gpucost.storage.ports import ClusterDeparture, StoredSettings, Table
from gpucost.storage.table import MISSING, SCHEMA_VERSION, Before, Item, check_schema_version, integer, key, text

PARTITION = "SETTINGS"
CACHE_TIME = timedelta(minutes=1)
MAX_DOCUMENT_BYTES = 350_000
"""Limit of a compressed document; an item holds 400 KB."""
MAX_DEPARTURES_BYTES = 40_000
"""Limit of the record of clusters that left the settings: some hundreds, the most recent ones."""
MAX_CACHED_VERSIONS = 32
"""How many parsed versions a store caches."""
DEPARTURE_BYTES = 24
"""Size of a departure without the cluster's name."""


class DynamoSettingsStore(Generic[SettingsModel]):
    """The versions of the settings document. They are never changed after they are written; the newest is in force.

    Args:
        table: the ledger's table.
        model: model of the document, with the sections that it may have.
        clock: returns the current time, for the cache.
    """

    def __init__(self, table: Table, model: type[SettingsModel], *, clock: Callable[[], datetime]) -> None:
        self._model = model
        self._table = table
        self._clock = clock
        self._parsed: dict[int, tuple[Item, StoredSettings[SettingsModel] | SettingsError | SourceError]] = {}
        self._current: StoredSettings[SettingsModel] | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)

    def current(self) -> StoredSettings[SettingsModel]:
        """Return the newest readable version, from a cache for a minute. `refused` says why newer ones are unreadable.

        Raises:
            SettingsMissingError: nothing was pushed yet.
            SettingsError: no version can be read.
        """
        if self._current is None or self._clock() - self._read_at >= CACHE_TIME:
            return self.newest()
        return self._current

    def newest(self) -> StoredSettings[SettingsModel]:
        """Return the newest readable version, without the cache.

        Raises:
            As `current`.
        """
        now = self._clock()
        self._current = self._find_newest()
        self._read_at = now
        return self._current

    def _find_newest(self) -> StoredSettings[SettingsModel]:
        newest = next(self._table.query(PARTITION, limit=1, newest_first=True), None)
        if newest is None:
            raise SettingsMissingError("no settings have been pushed yet: run `gpucost settings push`")
        refused: list[str] = []
        for item in itertools.chain([newest], self._older(newest)):
            try:
                return replace(self._read(item), refused=tuple(refused))
            except (SettingsError, SourceError) as error:
                refused.append(f"version {_number(item)} of the settings: {error}")
        raise SettingsError(f"no version of the settings can be read; the newest: {refused[0]}")

    def _older(self, newest: Item) -> Iterator[Item]:
        """Yield the versions before the newest, reading one at a time, because documents may be large."""
        before = newest
        while True:
            older = self._table.query(PARTITION, Before(text(before, "sk")), limit=1, newest_first=True)
            previous = next(older, None)
            if previous is None:
                return
            yield previous
            before = previous

    def version(self, number: int) -> StoredSettings[SettingsModel]:
        """Return one version.

        Raises:
            NotFoundError: there is no such version.
        """
        _, parsed = self._parsed.get(number, (None, None))
        if isinstance(parsed, StoredSettings):
            return parsed
        item = self._table.get(PARTITION, _sort_key(number))
        if item is None:
            raise NotFoundError(
                f"there is no version {number} of the settings; gpucost settings history lists the versions"
            )
        return self._read(item)

    def history(self) -> Sequence[StoredSettings[SettingsModel]]:
        """Return all readable versions, newest first."""
        versions = []
        for item in self._table.query(PARTITION, newest_first=True):
            with suppress(SettingsError, SourceError):
                versions.append(_parse_version(item, self._model))
        return versions

    def push(
        self, document: str | ReadDocument[SettingsModel], *, author: str, now: datetime
    ) -> StoredSettings[SettingsModel]:
        """Validate a document, unless it is already read, and make it the newest version.

        Raises:
            SettingsError: the document is invalid or too large; nothing was written.
            ConflictError: someone else pushed at the same time; nothing was written.
        """
        read = read_document(document, self._model) if isinstance(document, str) else document
        text, settings = read.text, read.settings
        settings.check_new_document()
        packed = zlib.compress(text.encode())
        if len(packed) > MAX_DOCUMENT_BYTES:
            raise SettingsError(
                f"settings are too large: {len(packed)} bytes compressed; at most {MAX_DOCUMENT_BYTES} fit"
            )
        newest = next(self._table.query(PARTITION, limit=1, newest_first=True), None)
        number = _number(newest) + 1 if newest else 1
        now = now.replace(microsecond=0)
        departed = self._departed(newest, settings, now) if newest else {}
        item: Item = {
            **key(PARTITION, _sort_key(number)),
            "v": {"N": str(SCHEMA_VERSION)},
            "n": {"N": str(number)},
            "b": {"B": packed},
            **_json_attributes(read, packed),
            "by": {"S": author},
            "p": {"N": str(int(now.timestamp()))},
            "l": {"M": {name: _departure_attribute(departure) for name, departure in departed.items()}},
        }
        self._table.put(item, MISSING)
        self._current = StoredSettings(number, text, settings, author, now, departed_clusters=departed)
        self._read_at = self._clock()
        return self._current

    def _departed(self, newest: Item, settings: CoreSettings, now: datetime) -> dict[str, ClusterDeparture]:
        """Return the clusters that are no longer in the settings, with the times when they left."""
        try:
            departed, is_recorded = _read_departed(newest), True
        except SettingsError:
            departed, is_recorded = {}, False
        if not is_recorded:  # damaged: compare the versions before it
            for older, newer in itertools.pairwise(self.history()[::-1]):
                left = ClusterDeparture(newer.pushed_at, older.version)
                departed |= {**older.departed_clusters, **{cluster.name: left for cluster in older.settings.clusters}}
        with suppress(SettingsError):
            before = self._find_newest()
            names = {cluster.name for cluster in before.settings.clusters}
            if before.refused and is_recorded:  # some left with an unreadable version, which records when
                names -= departed.keys()
            departed |= dict.fromkeys(names, ClusterDeparture(now, before.version))
        return _most_recent_departures(
            {name: departure for name, departure in departed.items() if settings.cluster(name) is None}
        )

    def _read(self, item: Item) -> StoredSettings[SettingsModel]:
        """Parse a version, and cache the result: 500 business units in YAML take half a second.

        Raises:
            SettingsError, SourceError: the version is unreadable; the error is cached, too.
        """
        number = _number(item)
        seen, parsed = self._parsed.get(number, (None, None))
        if parsed is None or seen != item:
            try:
                parsed = _parse_version(item, self._model)
            except (SettingsError, SourceError) as error:
                parsed = error
            while len(self._parsed) >= MAX_CACHED_VERSIONS:
                self._parsed.pop(next(iter(self._parsed)))
            self._parsed[number] = item, parsed
        if isinstance(parsed, StoredSettings):
            return parsed
        raise type(parsed)(str(parsed))


def _parse_version(item: Item, model: type[SettingsModel]) -> StoredSettings[SettingsModel]:
    check_schema_version(item)
    try:
        document = zlib.decompress(item["b"]["B"]).decode()
        json = zlib.decompress(item["j"]["B"]).decode() if _has_json(item) else document
    except (zlib.error, KeyError, UnicodeDecodeError) as error:
        raise SettingsError(f"is damaged: {error}") from error
    pushed_at = datetime.fromtimestamp(integer(item, "p"), UTC)
    settings, departed = parse_document(json, model), _read_departed(item)
    return StoredSettings(
        integer(item, "n"), document, settings, text(item, "by"), pushed_at, departed_clusters=departed
    )


def _json_attributes(document: ReadDocument[SettingsModel], packed: bytes) -> Item:
    """Return the attributes of a YAML document's JSON form, which is parsed in a tenth of the time.

    Empty if the text is JSON already, if both forms do not fit one item, or if the JSON would not mean the same.
    """
    json = yaml_to_json(document)
    if json is None or parse_document(json, type(document.settings)) != document.settings:
        return {}
    packed_json = zlib.compress(json.encode())
    if len(packed) + len(packed_json) > MAX_DOCUMENT_BYTES:
        return {}
    return {"j": {"B": packed_json}, "h": {"B": _digest(packed)}}


def _has_json(item: Item) -> bool:
    """Whether the item has the JSON form of its current text."""
    return "j" in item and item.get("h", {}).get("B") == _digest(item["b"]["B"])


def _digest(packed: bytes) -> bytes:
    return hashlib.sha256(packed).digest()


def _most_recent_departures(departed: dict[str, ClusterDeparture]) -> dict[str, ClusterDeparture]:
    """Return the most recent departures that fit the item."""
    kept, room = {}, MAX_DEPARTURES_BYTES
    for name, departure in sorted(departed.items(), key=lambda item: item[1].left_at, reverse=True):
        room -= len(name.encode()) + DEPARTURE_BYTES
        if room < 0:
            break
        kept[name] = departure
    return kept


def _departure_attribute(departure: ClusterDeparture) -> dict[str, Any]:
    return {
        "M": {"p": {"N": str(int(departure.left_at.timestamp()))}, "n": {"N": str(departure.last_settings_version)}}
    }


def _read_departed(item: Item) -> dict[str, ClusterDeparture]:
    """Read which clusters had left the settings by a version, and when."""
    try:
        return {
            name: ClusterDeparture(datetime.fromtimestamp(int(stored["M"]["p"]["N"]), UTC), int(stored["M"]["n"]["N"]))
            for name, stored in item["l"]["M"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(f"is damaged: {error}") from error


def _number(item: Item) -> int:
    """Return the version number, from the key."""
    return int(text(item, "sk"))


def _sort_key(number: int) -> str:
    return f"{number:08d}"
