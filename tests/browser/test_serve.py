"""The page of `gpucost serve` on a real Prometheus whose samples began ten minutes ago."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost.features.alerting.model import Alert, AlertGroup
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.features.recommendations.model import Recommendation, RecommendationSubject
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_devstack.prometheus import running_prometheus
from tests.browser.layout_checks import check_layouts
from tests.browser.tabs import Tabs, settled, violations
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.gpucost_command import GPUCOST, gpucost
from tests.system.timeline import steady_pod

WHOLE = floor_hour(datetime.now(UTC)) - 3 * HOUR
"""The first whole hour of the cluster `past`. Its samples begin ten minutes before."""
FIRST = WHOLE - timedelta(minutes=10)
GPU_HOURLY_USD = 12
MINUTES = 85


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two clusters, each a node with two GPUs, of which a pod holds one and uses a quarter of it.

    The cluster `fresh` has samples of the last ten minutes.
    """
    timeline = steady_pod(FIRST, MINUTES, "past")
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    for metric, rows in steady_pod(now - timedelta(minutes=10), 10, "fresh").families.items():
        timeline.families[metric] += rows
    path = tmp_path_factory.mktemp("metrics") / "metrics.om"
    path.write_text(timeline.text())
    with running_prometheus(path) as url:
        yield url


class Served:
    """`gpucost serve` under a set clock."""

    def __init__(self, service: LocalService, url: str, clock: list[datetime]) -> None:
        self.service = service
        self.url = url
        self._clock = clock

    def set_time(self, minutes: int) -> None:
        """Set the clock to some minutes after the first sample."""
        self._clock[0] = FIRST + timedelta(minutes=minutes)


@pytest.fixture
def served(tmp_path: Path, metrics: str) -> Iterator[Served]:
    """After its first ten minutes of samples."""
    clock = [FIRST]
    pricing = {"source": "constant", "gpu_hourly_usd": GPU_HOURLY_USD}
    cluster = {"name": "demo", "prometheus": {"url": metrics}, "selector": {"cluster": "past"}}
    text = json.dumps({"clusters": [cluster], "pricing": pricing})
    with SqliteTable(tmp_path) as table:
        service = LocalService(table, text, author="me", clock=lambda: clock[0], secret_value=str)
        with service.serving(0) as url:
            served = Served(service, url, clock)
            served.set_time(10)
            list(service.attribute_newest(2))
            service.so_far()
            yield served


@pytest.fixture
def visit(served: Served, tabs: Tabs) -> Callable[[str], Page]:
    """Open a view. Tabs are closed before the service, which they may still ask."""

    def open_view(view: str) -> Page:
        tabs.hosts.add(served.url.removeprefix("http://"))
        page = tabs.open(f"{served.url}/#/{view}")
        settled(page)
        return page

    return open_view


def figures(page: Page) -> dict[str, str]:
    shown = page.get_by_test_id("so-far")
    return {
        name: shown.get_by_test_id(name).inner_text() for name in ("held", "capacity", "wasted", "node-cost", "waste")
    }


def of_minutes(minutes: int) -> dict[str, str]:
    """One of two GPUs is held, and three quarters of it are wasted."""
    hours = minutes / 60
    return {
        "held": f"{hours:.2f}",
        "capacity": f"{2 * hours:.2f}",
        "wasted": "75%",
        "node-cost": f"${2 * GPU_HOURLY_USD * hours:.2f}",
        "waste": f"${GPU_HOURLY_USD * hours * 0.75:.2f}",
    }


def test_figures_of_ten_minutes_are_marked_so_far(visit: Callable[[str], Page]) -> None:
    page = visit("overview?zone=utc")
    shown = page.get_by_test_id("so-far")
    expect(shown.get_by_role("heading")).to_have_text("Cluster demo: 10 minutes so far")
    assert figures(page) == of_minutes(10)
    row = page.get_by_test_id("so-far-units").locator("tbody tr")
    assert row.locator("td").all_inner_texts() == ["bu-a", "$1.50", "75%", "$2.00", "0.17", "0.04", "0.00"]
    end = WHOLE + HOUR
    expect(shown).to_contain_text(f"The first whole hour ends at {end:%a} {end.day} {end:%b}, {end:%H:%M} UTC")
    expect(page.get_by_test_id("notice")).to_contain_text(f"first whole hour of demo ends at {format_timestamp(end)}.")
    expect(page.locator("main")).to_contain_text("No data for this period yet: 24 cluster-hours expected")
    check_layouts(page)


def test_page_goes_on_until_the_first_whole_hour_is_there(visit: Callable[[str], Page], served: Served) -> None:
    page = visit("overview?zone=utc&window=48h")
    page.clock.install()
    page.reload()
    heading = page.get_by_test_id("so-far").get_by_role("heading")
    page.clock.run_for(1_000)
    expect(heading).to_have_text("Cluster demo: 10 minutes so far")
    served.set_time(60)
    page.clock.run_for(61_000)
    expect(heading).to_have_text("Cluster demo: 50 minutes so far")
    assert figures(page) == of_minutes(50)
    served.set_time(MINUTES)
    served.service.run_schedule()
    with page.expect_response("**/v1/fleet?*"):
        page.clock.run_for(61_000)
    page.clock.run_for(1_000)
    expect(page.get_by_test_id("notice")).to_have_count(0)
    expect(page.get_by_test_id("cost-period")).to_have_text(f"${2 * GPU_HOURLY_USD}.00")
    page.clock.run_for(61_000)
    expect(page.get_by_test_id("so-far")).to_have_count(0)


def test_prometheus_that_does_not_answer_is_named(visit: Callable[[str], Page], tabs: Tabs) -> None:
    page = visit("overview")
    page.route("**/serve/so-far", lambda route: route.fulfill(status=502, json={"detail": "no answer of Prometheus"}))
    tabs.expected = ("/serve/so-far",)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("no answer of Prometheus (502)")


@pytest.fixture(scope="module")
def command(metrics: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the command itself, after it has printed the figures so far."""
    folder = tmp_path_factory.mktemp("ledger")
    arguments = [str(GPUCOST), "serve", "--prometheus", metrics, "--port", "0", "--data", str(folder)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        opened = (re.match(r"open (\S+) in a browser", line) for line in process.stdout)
        found = next(filter(None, opened), None)
        try:
            assert found, "it ended before"
            yield found[1]
        finally:
            process.kill()


def test_command_shows_minutes_of_the_fresh_cluster(tabs: Tabs, command: str) -> None:
    tabs.hosts.add(command.removeprefix("http://"))
    page = tabs.open(f"{command}/#/overview")
    shown = page.get_by_test_id("so-far")
    expect(shown).to_have_count(1)  # the other cluster has an hour with figures
    found = re.fullmatch(r"Cluster fresh: (\d+) minutes so far", shown.get_by_role("heading").inner_text())
    assert found
    minutes = int(found[1])
    assert 10 <= minutes < 20
    assert 10 / 60 - 0.01 <= float(shown.get_by_test_id("held").inner_text()) <= (minutes + 1) / 60
    expect(shown.get_by_test_id("node-cost")).to_have_text("–")
    expect(page.get_by_test_id("notice")).to_contain_text("The first whole hour of fresh ends at")


def test_doctor_is_the_report_of_the_command(tabs: Tabs, command: str, metrics: str) -> None:
    tabs.hosts.add(command.removeprefix("http://"))
    page = tabs.open(f"{command}/#/overview", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="Doctor").click()
    settled(page)
    printed = gpucost("doctor", "--prometheus", metrics, "--verbose", COLUMNS="100").stdout
    words = " ".join(printed.split())
    expect(page.get_by_text(f"gpucost doctor --prometheus {metrics}")).to_be_visible()
    reports = page.get_by_test_id("report")
    expect(reports).to_have_count(2)
    for report in reports.all():
        assert report.get_by_role("heading").inner_text() in words
        sentences = report.locator("[data-testid=summary] dd, .item p:not(.note), .item .notes li")
        for sentence in sentences.all_inner_texts():
            assert sentence.removesuffix(" Copy").removeprefix("→ ") in words
        assert report.get_by_test_id("summary").locator("dd").count() == 3
    changes = page.get_by_test_id("findings").locator("code").all_inner_texts()
    assert changes == [line.partition("→ ")[2] for line in printed.splitlines() if "→ " in line]
    assert len(changes) > 1
    page.get_by_role("button", name=f"Copy {changes[1]}").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == changes[1]
    checks = page.get_by_test_id("checks").first
    expect(checks.get_by_role("table")).to_be_hidden()
    checks.locator("summary").click()
    expect(checks.get_by_role("table")).to_be_visible()
    titles = checks.locator("tbody td:first-child").all_inner_texts()
    document = json.loads(gpucost("doctor", "--prometheus", metrics, "--format", "json").stdout)
    assert [title.partition(" (")[0] for title in titles] == [
        check["name"].partition(" (")[0] for check in document["clusters"][0]["checks"]
    ]
    check_layouts(page)
    page.goto(f"{command}/#/doctor?cluster=fresh")
    expect(reports).to_have_count(1)


def test_deployment_names_the_command_of_the_doctor(visit: Callable[[str], Page], served: Served) -> None:
    """A deployment's configuration does not say that `gpucost serve` answers."""
    page = visit("overview")
    page.route("**/config.json", lambda route: route.fulfill(json={"sign_in": None}))
    page.reload()
    settled(page)
    requested: list[str] = []  # by the page that has read the configuration of a deployment
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{served.url}/#/doctor")
    settled(page)
    expect(page.locator("main")).to_contain_text("gpucost doctor --settings FILE")
    expect(page.get_by_role("link", name="Doctor")).to_have_count(0)
    check_layouts(page)
    page.goto(f"{served.url}/#/overview")
    settled(page)
    expect(page.get_by_test_id("so-far")).to_have_count(0)
    assert not [url for url in requested if "/serve/" in url]


def test_recommendations_and_alerts_are_decided_on_the_page(tabs: Tabs, tmp_path: Path, metrics: str) -> None:
    about = RecommendationSubject("demo", "bu-a", "bu-a", "Deployment", "chat")
    settings = {
        "clusters": [{"name": "demo", "prometheus": {"url": metrics}, "selector": {"cluster": "past"}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": GPU_HOURLY_USD},
    }
    with SqliteTable(tmp_path) as table:
        DynamoRecommendations(table).put(
            Recommendation(replace(PROPOSED, subject=about, summary="Stop it"), "open", WHOLE, WHOLE, WHOLE)
        )
        alert = Alert("waste", Subject("demo", "bu-a"), "firing", WHOLE, ())
        DynamoAlertStateStore(table).save_group(AlertGroup("demo", "bu-a", (alert,)))
        now = WHOLE + HOUR + timedelta(minutes=10)
        service = LocalService(table, json.dumps(settings), author="me", clock=lambda: now, secret_value=str)
        list(service.attribute_newest(2))
        with service.serving(0) as url:
            tabs.hosts.add(url.removeprefix("http://"))
            page = tabs.open(f"{url}/#/savings?zone=utc")
            card = page.get_by_test_id("savings").locator("> li")
            card.get_by_role("button", name="Dismiss").click()
            card.get_by_label("Why?").fill("needed for the launch")
            page.keyboard.press("Enter")
            expect(card).to_have_count(0)
            page.goto(f"{url}/#/savings?zone=utc&state=dismissed")
            expect(page.locator("main")).to_contain_text("by me: needed for the launch")
            assert violations(page) == []
            page.get_by_role("button", name="Reopen").click()
            expect(page.get_by_role("button", name="Reopen")).to_have_count(0)
            period = f"start={format_timestamp(WHOLE)}&end={format_timestamp(WHOLE + HOUR)}"
            page.goto(f"{url}/#/overview?zone=utc&{period}")
            alerts = page.get_by_test_id("alerts")
            alerts.get_by_role("button", name="Acknowledge").click()
            expect(alerts).to_contain_text("acknowledged by me")
            expect(alerts.get_by_role("button", name="Acknowledge")).to_have_count(0)
            check_layouts(page)
