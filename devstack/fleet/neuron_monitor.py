"""What neuron-monitor exposes of a scenario: cores of AWS's own accelerators, while a runtime runs on them."""

from collections.abc import Iterator
from fractions import Fraction

from devstack.fleet.dcgm_exporter import used
from devstack.fleet.scenario import Scenario
from devstack.fleet.scraping import MINUTE_MS, Scraping
from devstack.fleet.series import Series


def series(scenario: Scenario) -> Iterator[Series]:
    """Series of all cores in use, labelled with their pod as the Kubernetes integration does."""
    for node in scenario.nodes:
        if node.model or not node.geometries:
            continue
        scraping = Scraping("neuron-monitor", f"{node.name}:8000", life=node.life)
        found: dict[tuple[str, int], list[tuple[int, str]]] = {}
        pods = {pod.id: pod for pod in scenario.pods if pod.node is node}
        for at in scraping.answered(scenario.start, scenario.end):
            minute = Fraction(at, MINUTE_MS)
            for pod in pods.values():
                if pod.runs[0] <= minute < pod.runs[1]:
                    for core in pod.devices:
                        use = used(scenario, node, core, minute)
                        found.setdefault((pod.id, core), []).append((at, str(float(use))))
        for (uid, core), samples in found.items():
            labels = {
                "neuroncore": str(core),
                "instance_id": f"i-{node.name}",
                "instance_type": node.instance_type,
                "runtime_tag": "367",
                "job": scraping.job,
                "instance": scraping.instance,
            }
            if scenario.neuron_labels:
                labels |= {"pod": pods[uid].name, "namespace": pods[uid].namespace}
            yield Series("neuroncore_utilization_ratio", labels, samples)
        times = scraping.answered(scenario.start, scenario.end)
        yield Series("up", {"job": scraping.job, "instance": scraping.instance}, [(at, "1") for at in times])
