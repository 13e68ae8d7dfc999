"""Exporters of AMD, Intel and AWS: scraped by a real Prometheus with the rendered rules, then attributed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from gpucost.core.hours import floor_hour
from gpucost.settings_document import parse_settings
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import existing_cluster_values
from gpucost_devstack.fleet import accelerator_exporters, dcgm_exporter, kube_state_metrics, neuron_monitor
from gpucost_devstack.fleet.scenario import AcceleratorExporter
from gpucost_devstack.fleet.scenarios import vendors
from gpucost_devstack.fleet.series import SimulatedSeries
from tests.manifests.cluster import local_configuration, query_instant, running_cluster, running_prometheus, wait_until
from tests.manifests.exposition import answer_once
from tests.system import fleet_truth

BASE = floor_hour(datetime.now(UTC)) - timedelta(hours=3)
SCENARIO = replace(
    next(scenario for scenario in vendors.scenarios() if scenario.name == "mixed-vendors"),
    accelerators=AcceleratorExporter(label_style="honor"),
)
OF_SCRAPE = {"node", "hostname"}
"""Labels that the exporters of these tests do not have, so that nodes come from the scrape rules."""


def exposed() -> dict[tuple[str, str], list[SimulatedSeries]]:
    """The series of all exporters, by job and instance; without the node, which some exporters do not name."""
    by_target: dict[tuple[str, str], list[SimulatedSeries]] = {}
    for source in (kube_state_metrics, dcgm_exporter, neuron_monitor, accelerator_exporters):
        for single in source.series(SCENARIO):
            if single.metric != "up":
                hidden = OF_SCRAPE if source is accelerator_exporters else set()
                labels = {name: text for name, text in single.labels.items() if name not in hidden}
                series = by_target.setdefault((single.labels["job"], single.labels["instance"]), [])
                series.append(SimulatedSeries(single.metric, labels, single.samples))
    return by_target


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A Prometheus that scraped the hour once, with the rendered rules."""
    document = f"clusters: [{{name: {SCENARIO.name}, prometheus: {{url: 'http://127.0.0.1:9'}}}}]\n"
    document += "pricing: {source: constant, gpu_hourly_usd: 1}\n"
    parameters = parse_existing_cluster_parameters(f"cluster: {SCENARIO.name}\n")
    values = existing_cluster_values(parse_settings(document), parameters, "prometheus")
    files = dict(render_files(values, target="prometheus"))
    block = {"global": {}, **yaml.safe_load(files["collection/scrape-configs.yaml"])}
    answers = [
        (job, instance.rpartition(":")[0], answer_once(series, BASE)) for (job, instance), series in exposed().items()
    ]
    with ExitStack() as stack:
        changed = local_configuration(block, stack.enter_context(running_cluster(answers)), seconds=2)
        changed["storage"] = {"tsdb": {"out_of_order_time_window": "12h"}}
        address = stack.enter_context(running_prometheus(changed))
        scraped = f"count(max_over_time(scrape_samples_scraped[1m]) > 0) == {len(answers)}"
        wait_until(lambda: query_instant(address, scraped), "all targets to be scraped")
        yield address


def test_hour_of_all_vendors_is_attributed_exactly(url: str, tmp_path: Path) -> None:
    hours = fleet_truth.ask([SCENARIO], url, BASE, tmp_path)
    fleet_truth.assert_lines(SCENARIO, 0, hours[SCENARIO.name, 0])
    fleet_truth.assert_identity(SCENARIO, 0, hours[SCENARIO.name, 0])


@pytest.mark.parametrize("metric", ["gpu_gfx_activity", "habanalabs_utilization"])
def test_devices_have_the_node_of_their_exporter(url: str, metric: str) -> None:
    nodes = {labels["node"] for labels, _ in query_instant(url, f"count by (node) (count_over_time({metric}[12h]))")}
    assert nodes == {{"gpu_gfx_activity": "n2", "habanalabs_utilization": "n4"}[metric]}
