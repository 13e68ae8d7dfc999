"""The settings store on the real engine: a version is parsed once, and quickly."""

import itertools
import json
import random
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from pydantic import model_validator

from gpucost.core.errors import NotFoundError, SettingsError
from gpucost.settings_document import SettingsDocument, SettingsDocumentStore, parse_settings
from gpucost.storage.ports import Table
from gpucost.storage.settings_store import MAX_CACHED_VERSIONS, MAX_DOCUMENT_BYTES, DynamoSettingsStore

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DOCUMENT = """
# A comment, which JSON does not have.
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12.10}
business_units:
  - {name: research, namespaces: [a]}
  - {name: research, namespaces: [a, b], from: 2026-11-19}
  - {name: other, namespaces: [c], from: 2026-11-19T10:00:00Z}
"""


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def recording_store(table: Table, clock: Clock) -> tuple[DynamoSettingsStore[SettingsDocument], list[object]]:
    """A store, and every document that it parses."""
    documents: list[object] = []

    class RecordedSettings(SettingsDocument):
        @model_validator(mode="before")
        @classmethod
        def record(cls, document: object) -> object:
            documents.append(document)
            return document

    return DynamoSettingsStore(table, RecordedSettings, clock=clock), documents


def store_of(table: Table, clock: Clock) -> SettingsDocumentStore:
    return SettingsDocumentStore(table, clock=clock)


def item_of(table: Table, version: int) -> dict[str, Any]:
    item = table.get("SETTINGS", f"{version:08d}")
    assert item is not None
    return dict(item)


def test_version_is_parsed_once_however_long_it_is_in_force(ledger_table: Table) -> None:
    clock = Clock()
    store_of(ledger_table, clock).push(DOCUMENT, author="me", now=NOON)
    store, parsed = recording_store(ledger_table, clock)
    for _ in range(60):
        assert store.current().version == 1
        assert store.newest().version == 1
        assert store.version(1).version == 1
        clock.now += MINUTE
    assert len(parsed) == 1
    store_of(ledger_table, clock).push(DOCUMENT + "lookback_hours: 24\n", author="me", now=clock.now)
    parsed.clear()
    for _ in range(60):
        clock.now += MINUTE
        assert store.current().settings.lookback_hours == 24
    assert len(parsed) == 1


def test_version_that_cannot_be_read_is_tried_once(ledger_table: Table) -> None:
    clock = Clock()
    store_of(ledger_table, clock).push(DOCUMENT, author="me", now=NOON)
    invalid = {**item_of(ledger_table, 1), "sk": {"S": "00000002"}, "b": {"B": zlib.compress(b"clusters: 7")}}
    ledger_table.put_all([invalid])
    store, parsed = recording_store(ledger_table, clock)
    for _ in range(10):
        current = store.current()
        assert (current.version, len(current.refused)) == (1, 1)
        assert "must be a list" in current.refused[0]
        clock.now += MINUTE
    assert len(parsed) == 2
    with pytest.raises(SettingsError, match="must be a list"):
        store.version(2)


def test_item_that_changed_is_parsed_again(ledger_table: Table) -> None:
    clock = Clock()
    store = store_of(ledger_table, clock)
    store.push(DOCUMENT, author="me", now=NOON)
    assert store.newest().version == 1
    ledger_table.put_all([{**item_of(ledger_table, 1), "b": {"B": b"rubbish"}}])
    with pytest.raises(SettingsError, match="is damaged"):
        store.newest()


def test_store_keeps_a_bounded_number_of_versions(ledger_table: Table) -> None:
    store = store_of(ledger_table, Clock())
    numbers = range(1, MAX_CACHED_VERSIONS + 3)
    for number in numbers:
        store.push(DOCUMENT + f"lookback_hours: {number}\n", author="me", now=NOON)
    store = store_of(ledger_table, Clock())
    assert [store.version(number).settings.lookback_hours for number in numbers] == list(numbers)
    assert len(store._parsed) == MAX_CACHED_VERSIONS
    with pytest.raises(NotFoundError):
        store.version(len(numbers) + 1)


def test_yaml_is_parsed_from_its_json_and_shown_as_pushed(ledger_table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = store_of(ledger_table, Clock()).push(DOCUMENT, author="me", now=NOON)

    def no_yaml(*_: Any, **__: Any) -> Any:
        raise AssertionError("YAML was read")

    monkeypatch.setattr(yaml, "load", no_yaml)
    stored = store_of(ledger_table, Clock()).current()
    assert stored.settings == pushed.settings
    assert stored.text == DOCUMENT


def test_json_of_another_text_is_not_read(ledger_table: Table) -> None:
    store_of(ledger_table, Clock()).push(DOCUMENT, author="me", now=NOON)
    other = DOCUMENT.replace("12.10", "99")
    item = {**item_of(ledger_table, 1), "b": {"B": zlib.compress(other.encode())}}
    ledger_table.put_all([item])
    assert store_of(ledger_table, Clock()).current().settings == parse_settings(other)


def test_json_document_is_stored_once(ledger_table: Table) -> None:
    store_of(ledger_table, Clock()).push(json.dumps(yaml.safe_load(DOCUMENT), default=str), author="me", now=NOON)
    assert "j" not in item_of(ledger_table, 1)


@pytest.mark.tools
def test_largest_document_fits_without_its_json(ledger_table: Table) -> None:
    letters = random.Random(7)
    names = ("".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=60)) for _ in itertools.count())
    text = DOCUMENT + "".join(f"  - {{name: {name}, namespaces: [x]}}\n" for name in itertools.islice(names, 6_500))
    assert MAX_DOCUMENT_BYTES / 2 < len(zlib.compress(text.encode())) <= MAX_DOCUMENT_BYTES
    store_of(ledger_table, Clock()).push(text, author="me", now=NOON)
    assert "j" not in item_of(ledger_table, 1)
    assert len(store_of(ledger_table, Clock()).current().settings.business_units) == 6_503
