"""Fixtures of the tests of metering and of `gpucost doctor`."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpucost.core.hour_record import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost_cli.doctor import ClusterReport, examine_cluster
from tests.prometheus_clients import PrometheusClients
from tests.system.doctor_cluster import Recent
from tests.system.doctor_findings import Examine, document
from tests.system.fleet_blocks import BASE, SCENARIOS, running_fleet
from tests.system.fleet_truth import Hours, ask
from tests.system.metered_hours import Attribute, assert_identity
from tests.system.timeline import HOUR, Timeline


@pytest.fixture(scope="session")
def fleet_url() -> Iterator[str]:
    """A Prometheus with all clusters of `fleet_blocks`, for the files whose tests only read."""
    with running_fleet() as url:
        yield url


@pytest.fixture(scope="session")
def fleet_hours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fleet_url: str) -> Hours:
    """All hours of the scenarios that the selected tests name."""
    names = {
        str(test.callspec.params.get("name"))
        for test in request.session.items
        if isinstance(test, pytest.Function) and hasattr(test, "callspec")
    }
    scenarios = [scenario for name, scenario in SCENARIOS.items() if name in names]
    return ask(scenarios, fleet_url, BASE, tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def examined(prometheus: Callable[[str], str]) -> Examine:
    def run(
        cluster: Recent, more: str = "", selector: str = "", client: PrometheusClients = PrometheusClient
    ) -> ClusterReport:
        url = prometheus(cluster.text())
        clusters = f'[{{name: demo, prometheus: {{url: "{url}"}}, selector: {{{selector}}}}}]'
        settings = parse_settings(document(url, more=more, clusters=clusters))
        return examine_cluster(settings.clusters[0], settings, cluster.now, client=client)

    return run


@pytest.fixture
def attribute(prometheus: Callable[[str], str]) -> Attribute:
    def run(
        timeline: Timeline, more: str = "", *, cluster: str = "", hours: int = 1, start: int = 0
    ) -> list[HourRecord]:
        url = prometheus(timeline.text())
        settings = parse_settings(
            f'clusters: [{{name: test, prometheus: {{url: "{url}"}}, {cluster}}}]\n'
            f"pricing: {{source: constant, gpu_hourly_usd: 10}}\n{more}"
        )
        reader = metrics_reader(settings.clusters[0], settings)
        hour_starts = [HOUR + timedelta(hours=start + i) for i in range(hours)]
        records = attribute_hours(reader, settings.clusters[0], settings, hour_starts, now=datetime.now(UTC))
        for record in records:
            assert_identity(record)
        return records

    return run
