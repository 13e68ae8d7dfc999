"""What `gpucost attribute` prints of the recorded hour: namespaces by waste, and parts that add up to the node cost."""

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from rich.console import Console

from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost_cli.rendering import print_table
from gpucost_cli.usage_tables import hours_tables
from gpucost_devstack.prometheus import running_prometheus
from tests.recorded_hour.recording import FOLDER, PRICE, SCRAPE, attribute, true_nodes, true_pods, unpack

PARTS_OF_THE_NODE_COST = ("allocated", "unallocated", "stranded", "unobserved", "host", "residual")
PARTS_OF_PODS = ("effective", "waste", "unmeasured")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The printed lines by their first word, the last one of each."""
    with running_prometheus(storage=unpack(tmp_path_factory.mktemp("recorded"))) as url:
        record = attribute(url).record
    file = io.StringIO()
    for part in hours_tables([record], ["namespace"], doctor="gpucost doctor"):
        print_table(part, Console(width=100, file=file))
    yield {cells[0]: cells[1:] for line in file.getvalue().splitlines() if (cells := line.split())}


def usd(text: str) -> float:
    return float(re.sub(r"[$,]", "", text))


def test_allocated_gpu_hours_are_those_of_the_pods(rows: dict[str, list[str]]) -> None:
    held: dict[str, float] = defaultdict(float)
    edges: dict[str, float] = defaultdict(float)
    for pod in true_pods().values():
        held[pod.namespace] += pod.gpu_hours
        edges[pod.namespace] += pod.gpus * pod.edges
    compared = {name: gpu_hours for name, gpu_hours in held.items() if gpu_hours > 0}
    assert len(compared) >= 8
    for name, gpu_hours in compared.items():
        assert float(rows[name][0]) == pytest.approx(gpu_hours, abs=0.05 + SCRAPE * edges[name]), name
    assert rows["all"][0] == "pods"
    assert float(rows["all"][1]) == pytest.approx(sum(held.values()), abs=0.05 + SCRAPE * sum(edges.values()))


def test_parts_add_up_to_what_the_nodes_cost(rows: dict[str, list[str]]) -> None:
    """The price of a GPU-hour is constant, so the nodes' cost follows from the types and times of the nodes."""
    gpu_hours = 0.0
    for instance_type, start, end in true_nodes().values():
        gpus = GPUS_OF_INSTANCE.get(instance_type) or NEURON_OF_INSTANCE.get(instance_type, (0,))[0]
        gpu_hours += float(gpus) * (end - start)
    assert rows["node"][-5:] == ["the", "parts", "add", "up", "exactly"]
    node_cost = usd(rows["node"][2])
    assert node_cost == pytest.approx(PRICE * gpu_hours, rel=SCRAPE)
    amounts = {
        name: usd(next(cell for cell in rows[name] if cell.startswith("$")))
        for name in (*PARTS_OF_THE_NODE_COST, *PARTS_OF_PODS)
    }
    assert sum(amounts[name] for name in PARTS_OF_THE_NODE_COST) == pytest.approx(node_cost, abs=0.03)
    assert sum(amounts[name] for name in PARTS_OF_PODS) == pytest.approx(amounts["allocated"], abs=0.02)
    assert usd(rows["all"][-2]) == round(amounts["allocated"])


def test_waste_of_pods_with_unknown_use_is_at_least_the_measured_one(rows: dict[str, list[str]]) -> None:
    """Two pods of al-train hold a Trainium device each, of which no series names a pod."""
    pods = json.loads((FOLDER / "truth.json").read_text())["pods"]
    neuron = sum(
        pod["held_gpu_hours"]
        for pod in pods
        if pod["namespace"] == "al-train" and any("neuron" in name for request in pod["requests"] for name in request)
    )
    assert float(rows["al-train"][3]) == pytest.approx(neuron, abs=0.1)
    assert rows["al-train"][4].startswith("≥")
    assert not rows["al-lab"][4].startswith("≥")
