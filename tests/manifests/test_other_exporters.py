"""Exporters of AMD, Intel and AWS, of claims and of fractions: scraped with the rendered rules, then attributed."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from gpucost.core.hours import floor_hour
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import examine_cluster
from gpucost_cli.manifests.parameters import parse_existing_cluster_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import existing_cluster_values
from gpucost_devstack.fleet import (
    accelerator_exporters,
    claim_collector,
    dcgm_exporter,
    hami,
    kube_state_metrics,
    neuron_monitor,
)
from gpucost_devstack.fleet.scenario import AcceleratorExporter, Scenario
from gpucost_devstack.fleet.scenarios import gpu_fractions, partitions, vendors
from gpucost_devstack.fleet.series import SimulatedSeries
from tests.kernel_clock import gpucost, kernel_time
from tests.manifests.cluster import (
    local_configuration,
    query_instant,
    running_cluster,
    running_prometheus,
    scraped_twice,
    wait_until,
)
from tests.manifests.exposition import answer_first_scrapes
from tests.system import fleet_truth

BASE = floor_hour(kernel_time()) - timedelta(hours=3)
SCENARIOS = {
    scenario.name: scenario
    for module in (vendors, partitions, gpu_fractions)
    for scenario in module.scenarios()
    if scenario.name in {"mixed-vendors", "claims-dynamic-mig-with-collector", "hami-containers", "hami-old-names"}
}
SCENARIOS["mixed-vendors"] = replace(SCENARIOS["mixed-vendors"], accelerators=AcceleratorExporter(label_style="honor"))
OF_SCRAPE = {"node", "hostname"}
"""Labels that the exporters of these tests do not have, so that nodes come from the scrape rules."""
OF_TARGET = {"namespace", "pod", "container"}
"""Labels of the exporter's own pod, which a scrape without `honor_labels` adds."""
JOBS = ("kube_dra_exporter", "hami_scheduler", "hami_vgpu_monitor")
"""Sources whose job the settings name, so that the queries select series by it."""


def exposed(scenario: Scenario) -> dict[tuple[str, str], list[SimulatedSeries]]:
    """The series of all exporters, by job and instance; without the node, which some exporters do not name."""
    by_target: dict[tuple[str, str], list[SimulatedSeries]] = {}
    for source in (kube_state_metrics, dcgm_exporter, neuron_monitor, accelerator_exporters, claim_collector, hami):
        for single in source.series(scenario):
            if single.metric != "up":
                labels = dict(single.labels)
                if source in {dcgm_exporter, hami}:
                    labels = {
                        name.removeprefix("exported_"): text for name, text in labels.items() if name not in OF_TARGET
                    }
                hidden = OF_SCRAPE if source is accelerator_exporters else set()
                labels = {name: text for name, text in labels.items() if name not in hidden}
                series = by_target.setdefault((single.labels["job"], single.labels["instance"]), [])
                series.append(SimulatedSeries(single.metric, labels, single.samples))
    return by_target


@pytest.fixture(scope="module", params=SCENARIOS)
def scraped(request: pytest.FixtureRequest) -> Iterator[tuple[Scenario, str]]:
    """A cluster, and a Prometheus that scraped its hour once, with the rendered rules."""
    scenario = SCENARIOS[request.param]
    document = f"clusters: [{{name: {scenario.name}, prometheus: {{url: 'http://127.0.0.1:9'}}}}]\n"
    document += "pricing: {source: constant, gpu_hourly_usd: 1}\n"
    parameters = parse_existing_cluster_parameters(f"cluster: {scenario.name}\n")
    values = existing_cluster_values(parse_settings(document), parameters, "prometheus")
    files = dict(render_files(values, target="prometheus"))
    block = {"global": {}, **yaml.safe_load(files["collection/scrape-configs.yaml"])}
    answers = [
        (job, instance.rpartition(":")[0], answer_first_scrapes(series, BASE))
        for (job, instance), series in exposed(scenario).items()
    ]
    with ExitStack() as stack:
        changed = local_configuration(block, stack.enter_context(running_cluster(answers)), seconds=2)
        changed["storage"] = {"tsdb": {"out_of_order_time_window": "12h"}}
        address = stack.enter_context(running_prometheus(changed))
        wait_until(lambda: query_instant(address, scraped_twice(len(answers))), "all targets to be scraped")
        yield scenario, address


def test_hour_is_attributed_exactly(scraped: tuple[Scenario, str], tmp_path: Path) -> None:
    scenario, url = scraped
    jobs = "".join(f"      {source}: {{job: {source.replace('_', '-')}}}\n" for source in JOBS)
    path = tmp_path / "settings.yaml"
    document = fleet_truth.settings([scenario], url, BASE)
    cluster = (
        f'  - name: {scenario.name}\n    prometheus: {{url: "{url}"}}\n    selector: {{cluster: {scenario.name}}}\n'
    )
    path.write_text(f"clusters:\n{cluster}    sources:\n{jobs}pricing:{document.partition('pricing:')[2]}")
    (hour,) = fleet_truth.attribute(path, BASE, 1, gpucost)
    fleet_truth.assert_lines(scenario, 0, hour)
    fleet_truth.assert_identity(scenario, 0, hour)


def test_every_metric_of_claims_and_fractions_is_kept(scraped: tuple[Scenario, str]) -> None:
    scenario, url = scraped
    names = {single.metric for source in (claim_collector, hami) for single in source.series(scenario)} - {"up"}
    assert not {name for name in names if not query_instant(url, f"count_over_time({name}[12h])")}


def test_doctor_lists_the_jobs_of_all_sources(scraped: tuple[Scenario, str]) -> None:
    scenario, url = scraped
    settings = parse_settings(fleet_truth.settings([scenario], url, BASE))
    report = examine_cluster(settings.clusters[0], settings, BASE + timedelta(minutes=45))
    listed = {check.name.removeprefix("jobs of "): check.metric for check in report.checks if "jobs of" in check.name}
    assert listed == {job: f"job: {job}" for job, _ in exposed(scenario)}


@pytest.mark.parametrize("metric", ["gpu_gfx_activity", "habanalabs_utilization"])
@pytest.mark.parametrize("scraped", ["mixed-vendors"], indirect=True)
def test_devices_have_the_node_of_their_exporter(scraped: tuple[Scenario, str], metric: str) -> None:
    query = f"count by (node) (count_over_time({metric}[12h]))"
    nodes = {labels["node"] for labels, _ in query_instant(scraped[1], query)}
    assert nodes == {{"gpu_gfx_activity": "n2", "habanalabs_utilization": "n4"}[metric]}
