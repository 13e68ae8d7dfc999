"""Metrics of neuron-monitor for a scenario: cores of AWS's accelerators while a runtime uses them."""

from collections.abc import Iterator
from fractions import Fraction

from gpucost_devstack.fleet.dcgm_exporter import constant_ranges, edges_of_pods, pods_by_node, utilization
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """Series of all cores in use, labeled with their pod as the Kubernetes integration does."""
    pods_of = pods_by_node(scenario)
    for node in scenario.nodes:
        if node.vendor != "neuron" or not node.geometries:
            continue
        zone = node.labels.get("topology_kubernetes_io_zone", "us-west-2a")
        scraping = Scraping("neuron-monitor", f"{node.name}:8000", node=node.name, lifetime=node.lifetime)
        samples_by_core: dict[tuple[str, int], list[tuple[int, str]]] = {}
        pods = {pod.id: pod for pod in pods_of.get(id(node), [])}
        times = scraping.successful_times(scenario.start, scenario.end)
        for scrape_range in constant_ranges(times, edges_of_pods(pods.values())):
            minute = Fraction(times[scrape_range.start], MINUTE_MS)
            for pod in pods.values():
                if pod.run_interval[0] <= minute < pod.run_interval[1]:
                    for core in pod.devices:
                        use = str(float(utilization(scenario, node, core, minute, pods.values())))
                        samples = samples_by_core.setdefault((pod.id, core), [])
                        samples.extend((times[number], use) for number in scrape_range)
        for (uid, core), of_core in samples_by_core.items():
            labels = {
                "neuroncore": str(core),
                "instance_id": node.instance_id,
                "instance_type": node.instance_type,
                "instance_name": node.name,
                "availability_zone": zone,
                "region": zone[:-1],
                "subnet_id": "subnet-0a1b2c3d",
                "runtime_tag": "367",
                **scraping.target_labels,
            }
            if scenario.neuron_labels:
                labels |= {"pod": pods[uid].name, "namespace": pods[uid].namespace}
            yield SimulatedSeries("neuroncore_utilization_ratio", labels, of_core)
        yield SimulatedSeries("up", scraping.target_labels, [(at, "1") for at in times])
