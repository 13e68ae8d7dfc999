"""Every scenario of the simulated fleet through a real Prometheus and the real command, compared with the truth."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpucost_devstack.fleet import dcgm_exporter, openmetrics
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.prometheus import running_prometheus
from tests.system import remote_write
from tests.system.fleet_blocks import BASE, SCENARIOS, clusters
from tests.system.fleet_truth import Hours, ask, assert_energy, assert_identity, assert_lines, attribute

CASES = [(name, hour) for name, scenario in SCENARIOS.items() for hour in scenario.hours]


def test_scenario_names_are_unique() -> None:
    names = [scenario.name for scenario in clusters()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_line_matches_the_truth(fleet_hours: Hours, name: str, number: int) -> None:
    assert_lines(SCENARIOS[name], number, fleet_hours[name, number])


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_part_of_the_identity_matches_the_truth(fleet_hours: Hours, name: str, number: int) -> None:
    assert_identity(SCENARIOS[name], number, fleet_hours[name, number])


@pytest.mark.parametrize(("name", "number"), CASES)
def test_energy_matches_the_truth(fleet_hours: Hours, name: str, number: int) -> None:
    assert_energy(SCENARIOS[name], number, fleet_hours[name, number])


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.expected_notes])
def test_expected_notes_are_present(fleet_hours: Hours, name: str) -> None:
    for note in SCENARIOS[name].expected_notes:
        assert any(note in text for text in fleet_hours[name, SCENARIOS[name].hours[0]]["notes"])


@pytest.mark.parametrize("name", ["pod-over-hours"])
def test_lifetime_over_several_hours_adds_up(fleet_hours: Hours, name: str) -> None:
    """Up to an interval at both ends, and exactly at the hours between."""
    hours = [fleet_hours[name, number] for number in SCENARIOS[name].hours]
    held = sum(line["allocated_gpu_hours"] for hour in hours for line in hour["lines"])
    assert float(held) == pytest.approx(165 / 60, abs=2 / 60)


@pytest.mark.parametrize("name", ["hami-quarters"])
def test_four_quarters_cost_a_gpu(fleet_hours: Hours, name: str) -> None:
    """At $10 per GPU-hour: four pods of $2.50, of which 0.25, 0.1, 0.2 and 0.05 GPUs worked."""
    hour = fleet_hours[name, 0]
    lines = {line["pod"]: (line["allocated_usd"], line["effective_usd"], line["waste_usd"]) for line in hour["lines"]}
    assert lines == {"p0": (2.5, 2.5, 0), "p1": (2.5, 1, 1.5), "p2": (2.5, 2, 0.5), "p3": (2.5, 0.5, 2)}
    assert (hour["totals"]["unallocated_usd"], hour["totals"]["node_cost_usd"]) == (30, 40)


@pytest.mark.parametrize("name", ["energy"])
def test_emissions_are_those_of_the_grid_and_the_data_center(fleet_hours: Hours, name: str) -> None:
    """0.285 kWh in Ireland: 0.2786 kg/kWh × 1.135."""
    lines = {line["pod"]: line for line in fleet_hours[name, 0]["lines"]}
    assert str(lines["steady-n1"]["co2e_kg"]) == "0.090120135"


@pytest.mark.parametrize("name", ["energy-gap-56-counter"])
def test_hours_of_a_driver_that_was_not_loaded_add_up_to_its_counter(fleet_hours: Hours, name: str) -> None:
    """300 W, over two hours with a gap around the edge between them."""
    lines = [line for number in (0, 1) for line in fleet_hours[name, number]["lines"] if line["pod"] == "steady-n1"]
    assert float(sum(line["energy_kwh"] for line in lines)) == pytest.approx(2 * 0.285, abs=1e-9)


MARKED = [
    "pod-lifetimes",
    "nodes-join-and-leave",
    "node-replaced-under-its-name",
    "ksm-pair-one-restarts",
    "labels-linger",
    "gap-10-inside-both",
    "gap-40-last-edge-both",
    "mig-single-changed",
    "sharer-labels-flip",
]


def test_series_that_end_with_staleness_markers(tmp_path: Path) -> None:
    """A scraping Prometheus writes a staleness marker at the first scrape without a series."""
    scenarios = [SCENARIOS[name] for name in MARKED]
    with running_prometheus(None, "--web.enable-remote-write-receiver") as url:
        sent: list[SimulatedSeries] = []
        scrapes: dict[str, list[int]] = {}
        for scenario in scenarios:
            for series in openmetrics.series(scenario):
                labels = {
                    **series.labels,
                    "cluster": scenario.name,
                    "instance": f"{scenario.name}/{series.labels['instance']}",
                }
                sent.append(SimulatedSeries(series.metric, labels, series.samples))
            targets = [ksm.scraping for ksm in scenario.ksm] + [target for _, target in dcgm_exporter.targets(scenario)]
            for target in targets:
                target_times = scrapes.setdefault(f"{scenario.name}/{target.instance}", [])
                target_times += target.times(scenario.start, scenario.end)
        in_order = {instance: sorted(set(times)) for instance, times in scrapes.items()}
        remote_write.send(url, sent, int(BASE.timestamp()) * 1000, in_order)
        hours = ask(scenarios, url, BASE, tmp_path)
    for scenario in scenarios:
        for number in scenario.hours:
            assert_lines(scenario, number, hours[scenario.name, number])
            assert_identity(scenario, number, hours[scenario.name, number])


def test_prometheus_replicas_double_nothing(tmp_path: Path) -> None:
    """Their samples differ in the replica label and in the scrape times."""
    scenario = mixed_lifetimes("replicas", hours=(0,))
    sent: list[SimulatedSeries] = []
    for replica, phase in (("a", 0), ("b", 21)):
        for series in openmetrics.series(scenario.with_scraping(offset_seconds=phase)):
            sent.append(
                SimulatedSeries(series.metric, {**series.labels, "prometheus_replica": replica}, series.samples)
            )
    metrics = tmp_path / "metrics.om"
    openmetrics.write_series([("replicas", series) for series in sent], BASE, metrics)
    with running_prometheus(metrics) as url:
        hours = ask([scenario], url, BASE, tmp_path)
    assert_lines(scenario, 0, hours["replicas", 0])
    assert_identity(scenario, 0, hours["replicas", 0])


def test_clusters_without_selector_are_named_in_a_note(tmp_path: Path) -> None:
    """Without a selector, two clusters in a workspace are read as one, and a note says so."""
    both = [replace(mixed_lifetimes(name, hours=(0,))) for name in ("first", "second")]
    metrics = tmp_path / "metrics.om"
    openmetrics.write(both, BASE, metrics)
    with running_prometheus(metrics) as url:
        path = tmp_path / "settings.yaml"
        price = "pricing: {source: constant, gpu_hourly_usd: 1}"
        path.write_text(f'clusters: [{{name: all, prometheus: {{url: "{url}"}}}}]\n{price}\n')
        (hour,) = attribute(path, BASE, 1)
    assert any("several clusters" in note and "selector" in note for note in hour["notes"])
