"""The versioned settings document, in the ledger's table; fulfils `ports.SettingsStore`."""

import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic

from gpucost.core.errors import NotFoundError, SettingsError, SettingsMissingError, SourceError
from gpucost.settings import Settings, SettingsModel, json_form, parse_document
from gpucost.storage.ports import Departure, StoredSettings
from gpucost.storage.table import FORMAT, Item, Table, check_format, integer, key, text

PARTITION = "SETTINGS"
CACHED = timedelta(minutes=1)
LARGEST = 350_000
"""Bytes of a compressed document; an item holds 400 KB."""
LARGEST_DEPARTED = 40_000
"""Bytes of the clusters that left the settings, beside the document: the last ones, some hundreds."""
MOST_PARSED = 32
"""Versions that one store keeps parsed."""
SIZE_OF_DEPARTURE = 24
"""Bytes of one, its name aside."""


class DynamoSettingsStore(Generic[SettingsModel]):
    """Versions are items that are written once and never changed; the newest is in force.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
        model: the sections that a document may have.
        clock: the time now, for the cache.
    """

    def __init__(self, client: Any, table: str, model: type[SettingsModel], *, clock: Callable[[], datetime]) -> None:
        self._model = model
        self._table = Table(client, table)
        self._clock = clock
        self._parsed: dict[int, tuple[Item, StoredSettings[SettingsModel] | SettingsError | SourceError]] = {}
        self._current: StoredSettings[SettingsModel] | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)

    def current(self) -> StoredSettings[SettingsModel]:
        """The newest version that can be read, at most a minute old; `refused` says why newer ones cannot.

        Raises:
            SettingsMissingError: nothing was pushed yet.
            SettingsError: no version can be read.
        """
        if self._current is None or self._clock() - self._read_at >= CACHED:
            return self.newest()
        return self._current

    def newest(self) -> StoredSettings[SettingsModel]:
        """The newest version that can be read by now.

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
        """Versions before the newest, one read at a time: documents may be large."""
        before = newest
        while True:
            older = self._table.query(PARTITION, "sk < :before", limit=1, newest_first=True, before=text(before, "sk"))
            found = next(older, None)
            if found is None:
                return
            yield found
            before = found

    def version(self, number: int) -> StoredSettings[SettingsModel]:
        """One version.

        Raises:
            NotFoundError: there is no such version.
        """
        _, parsed = self._parsed.get(number, (None, None))
        if isinstance(parsed, StoredSettings):
            return parsed
        item = self._table.get(PARTITION, _sort_key(number))
        if item is None:
            raise NotFoundError(f"there is no version {number} of the settings")
        return self._read(item)

    def history(self) -> Sequence[StoredSettings[SettingsModel]]:
        """Every version that can be read, newest first."""
        found = []
        for item in self._table.query(PARTITION, newest_first=True):
            with suppress(SettingsError, SourceError):
                found.append(_parse(item, self._model))
        return found

    def push(self, text: str, *, author: str, now: datetime) -> StoredSettings[SettingsModel]:
        """Validate a document and make it the newest version.

        Raises:
            SettingsError: not valid, or too large; nothing was written.
            ConflictError: somebody else pushed at the same time; nothing was written.
        """
        settings = parse_document(text, self._model)
        settings.check_new()
        packed = zlib.compress(text.encode())
        if len(packed) > LARGEST:
            raise SettingsError(f"settings are too large: {len(packed)} bytes compressed; at most {LARGEST} fit")
        newest = next(self._table.query(PARTITION, limit=1, newest_first=True), None)
        number = _number(newest) + 1 if newest else 1
        now = now.replace(microsecond=0)
        departed = self._departed(newest, settings, now) if newest else {}
        item: Item = {
            **key(PARTITION, _sort_key(number)),
            "v": {"N": str(FORMAT)},
            "n": {"N": str(number)},
            "b": {"B": packed},
            **_with_json(text, packed, settings),
            "by": {"S": author},
            "p": {"N": str(int(now.timestamp()))},
            "l": {"M": {name: _departure(one) for name, one in departed.items()}},
        }
        self._table.put(item, "attribute_not_exists(pk)")
        self._current = StoredSettings(number, text, settings, author, now, departed=departed)
        self._read_at = self._clock()
        return self._current

    def _departed(self, newest: Item, settings: Settings, now: datetime) -> dict[str, Departure]:
        """The clusters that are not in the settings any more."""
        try:
            found, is_told = _read_departed(newest), True
        except SettingsError:
            found, is_told = {}, False
        if not is_told:  # damaged: the versions before it tell
            for older, newer in itertools.pairwise(self.history()[::-1]):
                left = Departure(newer.pushed_at, older.version)
                found |= {**older.departed, **{one.name: left for one in older.settings.clusters}}
        with suppress(SettingsError):
            before = self._find_newest()
            names = {one.name for one in before.settings.clusters}
            if before.refused and is_told:  # some left with a version that cannot be read, and it says when
                names -= found.keys()
            found |= dict.fromkeys(names, Departure(now, before.version))
        return _last({name: one for name, one in found.items() if settings.cluster(name) is None})

    def _read(self, item: Item) -> StoredSettings[SettingsModel]:
        """A version, parsed when its item is first seen: 500 business units in YAML take half a second.

        Raises:
            SettingsError, SourceError: it cannot be read; this is remembered, too.
        """
        number = _number(item)
        seen, parsed = self._parsed.get(number, (None, None))
        if parsed is None or seen != item:
            try:
                parsed = _parse(item, self._model)
            except (SettingsError, SourceError) as error:
                parsed = error
            while len(self._parsed) >= MOST_PARSED:
                self._parsed.pop(next(iter(self._parsed)))
            self._parsed[number] = item, parsed
        if isinstance(parsed, StoredSettings):
            return parsed
        raise type(parsed)(str(parsed))


def _parse(item: Item, model: type[SettingsModel]) -> StoredSettings[SettingsModel]:
    check_format(item)
    try:
        document = zlib.decompress(item["b"]["B"]).decode()
        json = zlib.decompress(item["j"]["B"]).decode() if _has_json(item) else document
    except (zlib.error, KeyError, UnicodeDecodeError) as error:
        raise SettingsError(f"is damaged: {error}") from error
    pushed_at = datetime.fromtimestamp(integer(item, "p"), UTC)
    settings, departed = parse_document(json, model), _read_departed(item)
    return StoredSettings(integer(item, "n"), document, settings, text(item, "by"), pushed_at, departed=departed)


def _with_json(document: str, packed: bytes, settings: Settings) -> Item:
    """The document as JSON beside its text in YAML: it is read in a tenth of the time.

    Empty where the text is JSON, where the two do not fit one item, or where JSON would not mean the same.
    """
    json = json_form(document)
    if json is None or parse_document(json, type(settings)) != settings:
        return {}
    packed_json = zlib.compress(json.encode())
    if len(packed) + len(packed_json) > LARGEST:
        return {}
    return {"j": {"B": packed_json}, "h": {"B": _digest(packed)}}


def _has_json(item: Item) -> bool:
    """Whether there is JSON that was made of this very text."""
    return "j" in item and item.get("h", {}).get("B") == _digest(item["b"]["B"])


def _digest(packed: bytes) -> bytes:
    return hashlib.sha256(packed).digest()


def _last(departed: dict[str, Departure]) -> dict[str, Departure]:
    """Those that left last, as many as fit beside a document."""
    kept, room = {}, LARGEST_DEPARTED
    for name, one in sorted(departed.items(), key=lambda item: item[1].left_at, reverse=True):
        room -= len(name.encode()) + SIZE_OF_DEPARTURE
        if room < 0:
            break
        kept[name] = one
    return kept


def _departure(one: Departure) -> dict[str, Any]:
    return {"M": {"p": {"N": str(int(one.left_at.timestamp()))}, "n": {"N": str(one.version)}}}


def _read_departed(item: Item) -> dict[str, Departure]:
    """The clusters that had left the settings by a version, and when."""
    try:
        found = item["l"]["M"]
        return {
            name: Departure(datetime.fromtimestamp(int(one["M"]["p"]["N"]), UTC), int(one["M"]["n"]["N"]))
            for name, one in found.items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(f"is damaged: {error}") from error


def _number(item: Item) -> int:
    """Of the key, which nothing can damage."""
    return int(text(item, "sk"))


def _sort_key(number: int) -> str:
    return f"{number:08d}"
