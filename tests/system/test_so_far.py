"""A Prometheus with samples of ten minutes has figures of ten minutes, and says when its first whole hour ends."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from gpucost.core.amounts import SCALE
from gpucost.core.hours import format_timestamp, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.pipeline.attribute import SoFar, attribute_so_far
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_cli.usage_tables import first_whole_hour_sentence
from tests.gpucost_command import gpucost
from tests.records import record
from tests.system.timeline import HOUR, Timeline, steady_pod


def document(url: str) -> str:
    pricing = {"source": "constant", "gpu_hourly_usd": 12}
    return json.dumps({"clusters": [{"name": "demo", "prometheus": {"url": url}}], "pricing": pricing})


@pytest.mark.parametrize("minute", [0, 20, 55])
def test_samples_of_ten_minutes_are_figures_of_ten_minutes(prometheus: Callable[[str], str], minute: int) -> None:
    """Also if these are the first of the hour, or the hour ends in them."""
    first = HOUR + timedelta(minutes=minute)
    settings = parse_settings(document(prometheus(steady_pod(first, 10).text())))
    now = first + timedelta(minutes=10)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    so_far = attribute_so_far(reader, settings.clusters[0], settings, now=now)
    assert so_far is not None
    record, time = so_far.record, so_far.time
    assert (time.length, record.status) == (600_000, "complete"), record.notes
    assert record.totals is not None
    costs, capacity = record.totals.costs, record.totals.capacity
    sixth = SCALE / 6
    assert costs.allocated_gpu_hours == pytest.approx(sixth, abs=10)
    assert costs.effective_gpu_hours == pytest.approx(sixth / 4, abs=10)
    assert costs.allocated_usd == pytest.approx(12 * sixth, abs=100)
    assert capacity is not None
    assert capacity.unallocated_gpu_hours == pytest.approx(sixth, abs=10)


def test_prometheus_without_samples_has_no_figures_so_far(prometheus: Callable[[str], str]) -> None:
    settings = parse_settings(document(prometheus(steady_pod(HOUR, 10).text())))
    now = HOUR + timedelta(hours=3)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    assert attribute_so_far(reader, settings.clusters[0], settings, now=now) is None


def test_prometheus_with_an_hour_of_samples_has_no_figures_so_far(prometheus: Callable[[str], str]) -> None:
    """It has older samples, too: that its hours lack figures has another reason."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 1})
    settings = parse_settings(document(prometheus(timeline.text())))
    now = HOUR + timedelta(minutes=59)
    reader = metrics_reader(settings.clusters[0], settings, clock=lambda: now)
    assert attribute_so_far(reader, settings.clusters[0], settings, now=now) is None


def test_serve_has_figures_so_far_until_an_hour_has_some(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    first = HOUR + timedelta(minutes=50)
    url = prometheus(steady_pod(first, 10).text())
    with SqliteTable(tmp_path) as table:
        service = LocalService(
            table, document(url), author="me", clock=lambda: first + timedelta(minutes=12), secret_value=str
        )
        assert len(list(service.attribute_newest(2))) == 2
        so_far = service.so_far()["demo"]
    assert isinstance(so_far, SoFar)
    assert so_far.record.totals is not None
    assert so_far.time.length == 720_000
    assert first_whole_hour_sentence(so_far) == (
        "cluster demo has samples of 12 minutes and no whole hour yet. The first one ends at "
        f"{format_timestamp(HOUR + timedelta(hours=2))}"
    )


def test_running_hour_is_shown_until_the_first_whole_hour_is_attributed(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    """The samples begin ten minutes before an hour, whose own ten minutes are too few for figures."""
    first = HOUR + timedelta(minutes=50)
    text = document(prometheus(steady_pod(first, 75).text()))
    now = [first + timedelta(minutes=65)]
    with SqliteTable(tmp_path) as table:
        service = LocalService(table, text, author="me", clock=lambda: now[0], secret_value=str)
        list(service.attribute_newest(3))
        with service.serving(0) as url:
            (shown,) = requests.get(f"{url}/serve/so-far", timeout=30).json()["clusters"]
            assert (shown["cluster"], shown["start"], shown["minutes"], shown["first_whole_hour_end"]) == (
                "demo",
                format_timestamp(HOUR + timedelta(hours=1)),
                55,
                format_timestamp(HOUR + timedelta(hours=2)),
            )
            assert shown["totals"]["allocated_gpu_hours"] == pytest.approx(55 / 60)
            assert shown["totals"]["unallocated_gpu_hours"] == pytest.approx(55 / 60)
            (unit,) = shown["business_units"]
            assert (unit["business_unit"], unit["waste_usd"]) == ("bu-a", pytest.approx(12 * 55 / 60 * 0.75))
            assert "first whole hour of demo ends at" in requests.get(f"{url}/config.json", timeout=30).json()["notice"]
            period = {"start": format_timestamp(HOUR), "end": format_timestamp(HOUR + timedelta(hours=2))}
            costs = requests.get(f"{url}/v1/costs", params=period, timeout=30).json()
            assert (costs["rows"], costs["coverage"]["hours_complete"]) == ([], 0), "no route of the ledger has it"

            now[0] = HOUR + timedelta(hours=2, minutes=2)  # the hour has ended and is not attributed
            assert requests.get(f"{url}/serve/so-far", timeout=30).json()["clusters"] == [shown]
            service.run_schedule()
            assert requests.get(f"{url}/serve/so-far", timeout=30).json() == {"clusters": []}
            assert requests.get(f"{url}/config.json", timeout=30).json() == {
                "sign_in": None,
                "serve": True,
                "decisions": True,
            }
        manifest = service.manifest("demo", HOUR + timedelta(hours=1))
        assert manifest is not None
        assert manifest.status == "complete"


def test_first_hour_says_of_how_many_minutes_its_figures_are(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    """The samples begin at twenty past: `serve`, its page and `attribute` say that figures are of forty minutes."""
    first = HOUR + timedelta(minutes=20)
    text = document(prometheus(steady_pod(first, 150).text()))
    now = HOUR + timedelta(minutes=66)
    partial = (
        f"there are samples of 40 minutes, from {format_timestamp(first)} on; what pods held before is in no figure"
    )
    with SqliteTable(tmp_path / "ledger") as table:
        service = LocalService(table, text, author="me", clock=lambda: now, secret_value=str)
        list(service.attribute_newest(3))
        sentence = f"Of demo, the hour from {format_timestamp(HOUR)} is partial: {partial}."
        assert service.partial_hours() == [sentence]
        with service.serving(0) as url:
            assert requests.get(f"{url}/serve/so-far", timeout=30).json() == {"clusters": []}
            assert requests.get(f"{url}/config.json", timeout=30).json()["notice"] == sentence
            period = {"start": format_timestamp(HOUR), "end": format_timestamp(HOUR + timedelta(hours=1))}
            costs = requests.get(f"{url}/v1/costs", params={**period, "group_by": "business_unit"}, timeout=30).json()
            (row,) = costs["rows"]
            assert row["allocated_gpu_hours"] == pytest.approx(40 / 60), "of the observed time"
            assert costs["totals"]["capacity_gpu_hours"] == pytest.approx(2 * 40 / 60)
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    done = gpucost("attribute", "--settings", str(path), "--hour", format_timestamp(HOUR), COLUMNS="300")
    assert f"note: partial hour: {partial}" in done.stdout
    whole = gpucost(
        "attribute", "--settings", str(path), "--hour", format_timestamp(HOUR + timedelta(hours=1)), COLUMNS="300"
    )
    assert (whole.returncode, "partial hour" in whole.stdout) == (0, False), "the next hour is whole"


def test_prometheus_that_stops_answering_is_named_next_to_the_figures(
    tmp_path: Path, prometheus: Callable[[str], str], refused_url: str
) -> None:
    first = HOUR + timedelta(minutes=50)
    clusters = [
        {"name": name, "prometheus": {"url": url}}
        for name, url in (("a", refused_url), ("b", prometheus(steady_pod(first, 10).text())))
    ]
    text = json.dumps({"clusters": clusters, "pricing": {"source": "constant", "gpu_hourly_usd": 12}})
    with SqliteTable(tmp_path) as table:
        now = first + timedelta(minutes=10)
        service = LocalService(table, text, author="me", clock=lambda: now, secret_value=str)
        with service.serving(0) as url:
            refused, shown = requests.get(f"{url}/serve/so-far", timeout=30).json()["clusters"]
    assert refused["cluster"] == "a"
    assert refused_url in refused["error"]
    assert (shown["cluster"], shown["minutes"]) == ("b", 10)


@pytest.mark.parametrize(("minute", "hours"), [(0, 1), (3, 1), (4, 2), (59, 2)])
def test_first_whole_hour_may_lack_three_minutes(minute: int, hours: int) -> None:
    first = to_epoch_ms(HOUR + timedelta(minutes=minute))
    so_far = SoFar(record(), IntervalMs(first, first + 60_000), first)
    assert so_far.first_whole_hour_end == to_epoch_ms(HOUR + timedelta(hours=hours))


def test_attribute_shows_a_fresh_prometheus_and_does_not_send_to_doctor(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    first = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
    path = tmp_path / "settings.yaml"
    path.write_text(document(prometheus(steady_pod(first, 10).text())))
    done = gpucost("attribute", "--settings", str(path), COLUMNS="100")
    assert done.returncode == 0, done.stderr
    title, *rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert title[:2] == ["demo", format_timestamp(first)]
    assert title[-2:] == ["so", "far"]
    (row,) = [row for row in rows if row[0] == "bu-a"]
    assert float(row[1]) == pytest.approx(1 / 6, abs=0.03)  # the command runs some seconds after the last sample
    whole = first - timedelta(minutes=3)  # an hour that lacks three minutes counts as whole
    end = (whole + timedelta(hours=2) - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
    assert "minutes and no whole hour yet. The first one ends at" in done.stderr
    assert done.stderr.endswith(f" {format_timestamp(end)}\n")
    assert "doctor" not in done.stderr
    as_json = gpucost("attribute", "--settings", str(path), "--format", "json")
    assert as_json.returncode == 1, "JSON has whole hours only"
