"""The attribute service on a real Prometheus and the real database engine: idempotent, patient, honest."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpucost.adapters.dynamodb.ledger import DynamoLedger
from gpucost.adapters.dynamodb.rollups import DynamoRollups
from gpucost.adapters.dynamodb.settings_store import DynamoSettingsStore
from gpucost.adapters.prometheus import metrics_reader
from gpucost.domain.attribution import attribute
from gpucost.domain.model import HourRecord
from gpucost.errors import InvalidInputError
from gpucost.messages import HourClosed, HoursDue, Origin, Tick
from gpucost.services.attribute import AttributeService, check_hour, check_retention
from gpucost.settings import parse_settings
from local.prometheus import free_port
from tests.conftest import DynamoTable
from tests.system.timeline import HOUR, Timeline

NOW = datetime.now(UTC)


class Heard:
    """A bus that remembers what was published; the queues have tests of their own."""

    def __init__(self) -> None:
        self.closed: list[HourClosed] = []
        self.letters: list[tuple[str, str]] = []

    def publish(self, message: HourClosed | Tick) -> None:
        assert isinstance(message, HourClosed)
        self.closed.append(message)

    def send_due(self, messages: object) -> None:
        raise AssertionError("attribute sends no work")

    def dead_letter(self, body: str, reason: str) -> None:
        self.letters.append((body, reason))


class System:
    def __init__(self, table: DynamoTable, url: str) -> None:
        self.ledger = DynamoLedger(table.client, table.name)
        self.store = DynamoSettingsStore(table.client, table.name, clock=lambda: NOW)
        self.push(url)
        self.heard = Heard()
        self.now = NOW
        rollups = DynamoRollups(table.client, table.name)
        self.service = AttributeService(
            self.store, self.ledger, rollups, metrics_reader, self.heard, clock=lambda: self.now
        )

    def push(self, url: str, price: int = 12) -> None:
        document = {
            "clusters": [{"name": "demo", "prometheus": {"url": url}}],
            "pricing": {"source": "constant", "gpu_hourly_usd": price},
        }
        self.store.push(json.dumps(document), author="me", now=NOW)

    def attribute(self, hours: int = 1, start: datetime = HOUR, origin: Origin = "schedule", version: int = 1) -> None:
        message = HoursDue(
            cluster="demo", first_hour=start, hours=hours, settings_version=version, origin=origin, correlation_id="why"
        )
        self.service.attribute(message)

    def figures(self) -> list[tuple[str, str, int]]:
        found = self.ledger.summaries("demo", HOUR - timedelta(days=2), HOUR + timedelta(days=1))
        totals = [summary.totals.costs.allocated_usd.normalize() if summary.totals else "" for summary in found]
        return [(one.status, str(usd), one.version) for one, usd in zip(found, totals, strict=True)]


@pytest.fixture
def system(table: DynamoTable, prometheus: Callable[[str], str]) -> System:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    return System(table, prometheus(timeline.text()))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without waiting."""
    monkeypatch.setattr("gpucost.adapters.prometheus.client.BACKOFF_SECONDS", 0.0)


def test_an_hour_is_published_and_announced(system: System) -> None:
    system.attribute()
    assert system.figures() == [("complete", "12", 1)]
    (closed,) = system.heard.closed
    assert (closed.hour, closed.status, closed.record_version, closed.origin) == (HOUR, "complete", 1, "schedule")
    assert closed.correlation_id == "why"


def test_delivered_again_it_announces_again_and_changes_nothing(system: System) -> None:
    system.attribute()
    system.attribute()
    assert system.figures() == [("complete", "12", 1)]
    assert len(system.heard.closed) == 2
    assert system.heard.closed[0] == system.heard.closed[1]


def test_a_retry_after_a_push_keeps_the_prices_of_its_message(system: System) -> None:
    url = system.store.current().settings.clusters[0].prometheus.url
    system.push(url, price=99)
    system.attribute(version=1)
    assert system.figures() == [("complete", "12", 1)]


def test_several_hours_are_one_set_of_queries_and_equal_single_ones(system: System, table: DynamoTable) -> None:
    system.attribute(hours=2, start=HOUR - timedelta(hours=1), origin="backfill")
    together = system.ledger.lines("demo", HOUR)
    assert [status for status, _, _ in system.figures()] == ["complete", "complete"]
    alone = System(table._replace(name=_copy(table)), system.store.current().settings.clusters[0].prometheus.url)
    alone.attribute()
    assert alone.ledger.lines("demo", HOUR) == together


def _copy(table: DynamoTable) -> str:
    from local.dynamodb_local import create_table

    name = f"{table.name}-alone"
    create_table(table.client, name)
    return name


def test_prometheus_away_is_incomplete_with_reason_and_next_attempt(system: System, impatient: None) -> None:
    system.push(f"http://127.0.0.1:{free_port()}")
    system.attribute(version=2)
    assert system.figures() == [("incomplete", "", 1)]
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert "could not be reached" in manifest.notes[0]
    assert "cluster demo" in manifest.notes[0]
    assert manifest.next_attempt_at == NOW.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    assert system.heard.closed[0].status == "incomplete"


def test_an_incomplete_hour_is_tried_again_only_when_its_time_has_come(system: System, impatient: None) -> None:
    url = system.store.current().settings.clusters[0].prometheus.url
    system.push(f"http://127.0.0.1:{free_port()}")
    system.attribute(version=2)
    system.push(url)
    system.attribute(version=3)
    assert system.figures() == [("incomplete", "", 1)], "a second delivery is not a second attempt"
    system.now = NOW + timedelta(hours=2)
    system.attribute(version=3)
    assert system.figures() == [("complete", "12", 2)]


def test_no_heartbeat_is_incomplete_at_once_and_nothing_is_zero(system: System) -> None:
    system.attribute(start=HOUR - timedelta(hours=30))
    ((status, usd, _),) = system.figures()
    assert (status, usd) == ("incomplete", "")
    manifest = system.ledger.manifest("demo", HOUR - timedelta(hours=30))
    assert manifest is not None
    assert "no scrape" in manifest.notes[0]


def test_a_poison_hour_is_put_aside_with_its_reason_and_holds_up_no_other(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(metered: Any, rules: Any) -> HourRecord:
        if metered.hour == HOUR:
            raise ZeroDivisionError("a mistake of ours")
        return attribute(metered, rules)

    monkeypatch.setattr("gpucost.services.attribute.attribute", poisoned)
    system.attribute(hours=3, start=HOUR - timedelta(hours=2))
    assert [status for status, _, _ in system.figures()][-2:] == ["complete", "incomplete"]
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert "ZeroDivisionError: a mistake of ours" in manifest.notes[0]
    ((body, reason),) = system.heard.letters
    assert reason == "ZeroDivisionError: a mistake of ours"
    letter = HoursDue.model_validate_json(body)
    assert (letter.first_hour, letter.hours, letter.force, letter.origin) == (HOUR, 1, True, "schedule")

    monkeypatch.undo()
    system.attribute()
    assert system.figures()[-1][0] == "incomplete", "its next attempt has not come"
    system.service.attribute(letter)
    assert system.figures()[-1] == ("complete", "12", 2)


def test_a_cluster_that_the_settings_do_not_know_is_refused(system: System) -> None:
    message = HoursDue(
        cluster="gone", first_hour=HOUR, hours=1, settings_version=1, origin="schedule", correlation_id="why"
    )
    with pytest.raises(InvalidInputError, match="'gone' is not in version 1 of the settings"):
        system.service.attribute(message)


def test_hours_that_cannot_be_metered_are_refused() -> None:
    now = datetime(2026, 11, 19, 10, 30, tzinfo=UTC)
    check_hour(datetime(2026, 11, 19, 9, tzinfo=UTC), now)
    with pytest.raises(InvalidInputError, match="not over yet; the newest that is, is 2026-11-19T09:00:00Z"):
        check_hour(datetime(2026, 11, 19, 10, tzinfo=UTC), now)
    with pytest.raises(InvalidInputError, match="not on the full hour"):
        check_hour(datetime(2026, 11, 19, 8, 15, tzinfo=UTC), now)


def test_hours_past_the_retention_are_refused_with_the_reason(system: System) -> None:
    settings = system.store.current().settings
    cluster = settings.clusters[0]
    reader = metrics_reader(cluster, settings)
    check_retention(NOW - timedelta(days=399), cluster, reader, NOW)
    with pytest.raises(InvalidInputError, match="kept for 400 days"):
        check_retention(NOW - timedelta(days=401), cluster, reader, NOW)
    amp = parse_settings(
        "clusters: [{name: a, prometheus: {url: 'https://aps', auth: sigv4, region: eu-central-1}}]\n"
        "pricing: {source: constant, gpu_hourly_usd: 1}"
    ).clusters[0]
    with pytest.raises(InvalidInputError, match="kept for 150 days"):
        check_retention(NOW - timedelta(days=151), amp, reader, NOW)
