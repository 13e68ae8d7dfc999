"""Hours with unavailable metrics: their reason, when they are tried again, and when they are abandoned."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpucost.core.metering.observations import Observation
from gpucost.runtime.messages import HoursDue
from gpucost.sources.prometheus import metrics_reader
from gpucost.storage.ports import Table
from tests.pipeline.attributed import NOW, System, busy_hour
from tests.prometheus_clients import client_without_waits
from tests.recording_server import THRESHOLD, answering
from tests.system.timeline import HOUR


@pytest.fixture
def system(ledger_table: Table, prometheus: Callable[[str], str]) -> System:
    return busy_hour(ledger_table, prometheus, client=client_without_waits)


def test_unreachable_prometheus_makes_hours_incomplete_with_reason_and_next_attempt(
    system: System, refused_url: str
) -> None:
    system.push(refused_url)
    system.attribute(version=2)
    assert system.figures() == [("incomplete", "", 1)]
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert "could not be reached" in manifest.notes[0]
    assert "cluster demo" in manifest.notes[0]
    assert manifest.next_attempt_at == NOW.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    assert system.bus.closed[0].status == "incomplete"


def test_incomplete_hour_is_retried_only_when_due(system: System, refused_url: str) -> None:
    url = system.store.current().settings.clusters[0].prometheus.url
    system.push(refused_url)
    system.attribute(version=2)
    system.push(url)
    system.attribute(version=3)
    assert system.figures() == [("incomplete", "", 1)], "a second delivery is not a second attempt"
    system.now = NOW + timedelta(hours=2)
    system.attribute(version=3)
    assert system.figures() == [("complete", "12", 2)]


def test_incomplete_hour_is_abandoned_at_the_end_of_its_look_back(system: System, refused_url: str) -> None:
    system.push(refused_url)
    end = HOUR + timedelta(days=7)
    for now, next_attempt in ((end - timedelta(hours=2), end - timedelta(hours=1)), (end, None)):
        system.now = now
        system.attribute(version=2)
        manifest = system.ledger.manifest("demo", HOUR)
        assert manifest is not None
        assert (manifest.status, manifest.next_attempt_at) == ("incomplete", next_attempt)
        assert manifest.is_abandoned() == (next_attempt is None)


def test_hour_without_samples_is_incomplete_without_figures(system: System) -> None:
    system.attribute(start=HOUR - timedelta(hours=30))
    ((status, usd, _),) = system.figures()
    assert (status, usd) == ("incomplete", "")
    manifest = system.ledger.manifest("demo", HOUR - timedelta(hours=30))
    assert manifest is not None
    assert manifest.notes[0] == "Prometheus has no samples of kube-state-metrics in this hour"


def test_failing_hour_goes_to_the_dead_letter_queue_and_delays_no_other(system: System) -> None:
    class FaultyReader:
        def __init__(self, *arguments: Any) -> None:
            self.reader = metrics_reader(*arguments)

        def observe(self, hours: Sequence[datetime]) -> list[Observation]:
            if HOUR in hours:
                raise ZeroDivisionError("a mistake of ours")
            return self.reader.observe(hours)

    correct = system.service
    system.service = system.compose(FaultyReader)  # type: ignore[arg-type]
    system.attribute(hours=3, start=HOUR - timedelta(hours=2))
    assert [status for status, _, _ in system.figures()][-2:] == ["complete", "incomplete"]
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert "ZeroDivisionError: a mistake of ours" in manifest.notes[0]
    ((body, reason),) = system.bus.letters
    assert reason == "ZeroDivisionError: a mistake of ours"
    letter = HoursDue.model_validate_json(body)
    assert (letter.first_hour, letter.hours, letter.force, letter.origin) == (HOUR, 1, True, "schedule")

    system.service = correct
    system.attribute()
    assert system.figures()[-1][0] == "incomplete", "its next attempt is not due"
    system.service.attribute(letter)
    assert system.figures()[-1] == ("complete", "12", 2)


def test_query_refused_by_amps_limit_makes_the_hour_incomplete_with_its_reason(
    ledger_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with answering((422, THRESHOLD, {})) as server:
        system = System(ledger_table, "http://127.0.0.1:9")
        amp = {"url": f"http://127.0.0.1:{server.server_port}", "auth": "sigv4", "region": "eu-central-1"}
        document = {
            "clusters": [{"name": "demo", "prometheus": amp}],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        }
        system.store.push(json.dumps(document), author="me", now=NOW)
        system.attribute(hours=2, version=2)
    assert [status for status, *_ in system.figures()] == ["incomplete"] * 2
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert manifest.next_attempt_at is not None
    assert "the error threshold is reached" in manifest.notes[0]
    assert system.bus.letters == [], "it does not count as a bug"
