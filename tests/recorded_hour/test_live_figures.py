"""The recording rules and the ledger agree on the recorded hour, by namespace and within a scrape for each edge."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpucost.pipeline.attribute import AttributedHour
from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from gpucost_devstack.prometheus import running_prometheus
from tests.dashboards import promtool
from tests.recorded_hour.recording import (
    HOUR,
    RecordedSeries,
    attribute,
    gpu_hours,
    read_series,
    settings,
    true_pods,
    unpack,
)

FIRST = -5
"""Minute, relative to the hour, at which the rules start to run."""
LAG_HOURS = 1.5 / 60
"""A scrape every half minute and an evaluation every minute."""
READ = (
    "kube_pod_container_resource_requests",
    "kube_pod_init_container",
    "kube_pod_status_phase",
    "kube_node_info",
    "kube_node_labels",
    "kube_node_status",
    "kube_namespace_labels",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)


@pytest.fixture(scope="module")
def hour_and_series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AttributedHour, list[RecordedSeries]]]:
    storage = unpack(tmp_path_factory.mktemp("live"))
    series = read_series(storage, ("kube-state-metrics", "dcgm-exporter"))
    with running_prometheus(storage=storage) as url:
        yield attribute(url), [each for each in series if each.name.startswith(READ)]


def notation(series: RecordedSeries) -> dict[str, str]:
    """A series in promtool's notation, with a value each half minute and a marker where it ends."""
    start = (HOUR.timestamp() + FIRST * 60) * 1000
    samples = {round((at - start) / 30_000): text for at, text in series.samples}
    values = []
    for step in range((60 - FIRST) * 2 + 2):
        ended = step - 1 in samples and step not in samples
        values.append(samples.get(step, "stale" if ended else "_"))
    labels = {name: value for name, value in series.labels.items() if name != "__name__"}
    return promtool.series(series.name, labels, " ".join(values))


def test_live_figures_of_namespaces_are_those_of_the_ledger(
    hour_and_series: tuple[AttributedHour, list[RecordedSeries]], tmp_path: Path
) -> None:
    hour, series = hour_and_series
    document = parse_settings(settings("http://127.0.0.1:9"))
    groups = documents.recording_groups(document, document.clusters, datetime.now(UTC))
    ledger = gpu_hours(hour, by="namespace")
    allowed = dict.fromkeys(ledger, 1e-6)
    for truth in true_pods().values():
        if truth.namespace in allowed:
            allowed[truth.namespace] += truth.gpus * truth.edges * LAG_HOURS
    mean = "(sum by (namespace) (sum_over_time(namespace:gpucost_allocated_gpus:sum[59m30s])) / 60)"
    expectations = [promtool.expectation(f"count({mean})", 59 - FIRST, ({}, len(ledger)))]
    for namespace, gpus in ledger.items():
        difference = f'abs(sum({mean} and on (namespace) label_replace(vector(1), "namespace", "{namespace}", "", "")'
        query = f"{difference}) - {gpus!r}) <= bool {allowed[namespace]!r}"
        expectations.append(promtool.expectation(query, 59 - FIRST, ({}, 1)))
    notations = [notation(each) for each in series]
    assert promtool.run(tmp_path, groups, notations, expectations, interval="30s") == ""
