"""Number of queries for an hour, and how oversized answers are avoided."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.errors import MetricsTooLargeError
from tests.records import amount
from tests.system.limited import Traffic, limited
from tests.system.metered_hours import BUSY, L4, attribute, cluster
from tests.system.timeline import Timeline

BY_LABEL = "business_units: [{name: a, pod_labels: {team: a}}, {name: b, namespace_labels: {team: b}}]"
UNLIMITED = 10**9


OTHER_NAMES = ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active")


@contextmanager
def counted(
    prometheus: Callable[[str], str], timeline: Timeline, most: int = UNLIMITED
) -> Iterator[tuple[str, Traffic]]:
    with limited(prometheus(timeline.text()), most) as url:
        yield url


@pytest.mark.parametrize("pods", [4, 16])
def test_plain_hour_takes_at_most_eight_queries(prometheus: Callable[[str], str], pods: int) -> None:
    with counted(prometheus, cluster(pods)) as (url, traffic):
        (record,) = attribute(url, more=BY_LABEL)
    assert len(record.lines) == pods
    assert len(traffic.queries) == 8


@pytest.mark.parametrize("signal", OTHER_NAMES)
def test_signal_is_read_under_each_of_its_names(prometheus: Callable[[str], str], signal: str) -> None:
    with counted(prometheus, cluster(8, signal=signal)) as (url, traffic):
        (record,) = attribute(url)
    assert sorted(line.effective_usd or 0 for line in record.lines) == [amount(Decimal(10 * i) / 8) for i in range(8)]
    assert len(traffic.queries) == 7
    assert any("up%7B" in query and "dcgm" in query for query in traffic.queries)


def test_replicated_prometheus_takes_no_more_queries(prometheus: Callable[[str], str]) -> None:
    timeline = cluster(8)
    for metric, rows in timeline.families.items():
        replica_rows = [row.replace("{", '{prometheus_replica="a",') for row in rows]
        for_other = [row.replace("{", '{prometheus_replica="b",') for row in rows if not row.endswith("00.000")]
        timeline.families[metric] = replica_rows + for_other
    with counted(prometheus, timeline) as (url, traffic):
        (record,) = attribute(url)
    assert [line.allocated_gpu_hours / SCALE for line in record.lines] == [1.0] * 8
    assert len(traffic.queries) == 7


def test_24_hours_take_the_same_eight_queries(prometheus: Callable[[str], str]) -> None:
    with counted(prometheus, cluster(8, start=-25 * 60)) as (url, traffic):
        records = attribute(url, hours=24, more=BY_LABEL)
    assert [line.allocated_gpu_hours / SCALE for record in records for line in record.lines] == [1.0] * 24 * 8
    assert len(traffic.queries) == 8


def test_pods_that_start_and_end_take_few_more_queries(prometheus: Callable[[str], str]) -> None:
    timeline = cluster(16)
    for name, start, end, node in (("early", -65, 20, "n4"), ("late", 30, 125, "n4"), ("later", 35, 125, "n5")):
        timeline.pod(name, start, end, node=node, uid=f"0a1b{name}")
        timeline.device(0.5, start, end, node=node, exported_pod=name, exported_namespace="team")
    timeline.pod("done", -65, 125, node="n4", uid="0a1bdone", finished_at=-30)
    for node in ("n4", "n5"):
        timeline.node(node, capacity={"nvidia_com_gpu": 4}, labels=L4)
        timeline.up(job="dcgm-exporter", instance=f"{node}:9400")
        timeline.device(0, gpu=1, node=node)
    with counted(prometheus, timeline) as (url, traffic):
        (record,) = attribute(url)
    lines = {line.pod: line for line in record.lines}
    assert len(lines) == 19
    for name, minutes in {"early": 20, "late": 30, "later": 25}.items():
        assert lines[name].allocated_gpu_hours / SCALE == pytest.approx(minutes / 60, abs=1 / 60)
        assert (lines[name].effective_usd or 0) / SCALE == pytest.approx(0.5 * 10 * minutes / 60, abs=0.2)
    counts = [query for query in traffic.queries if "%22count+DCGM" in query]
    assert len(counts) == 1
    assert "n4%3A9400" in counts[0]
    assert "n0%3A9400" not in counts[0], "exporters whose series have equal counts need no second query"
    phases = [query for query in traffic.queries if "phase%3D~" in query and "start%22" in query]
    assert len(phases) == 1
    assert "0a1bdone" in phases[0]
    assert "1eef" not in phases[0], "pods that run at both ends need no second query"
    device_queries = [query for query in traffic.queries if "GPU%5C%5C-n4" in query or "GPU-n4" in query]
    assert len(device_queries) == 1
    assert "n4%5C%5C-0" in device_queries[0]
    assert "n4%5C%5C-1" not in device_queries[0], "a device seen at every scrape needs no second query"
    assert len(traffic.queries) <= 7 + 5


def test_pods_without_gpus_are_not_queried(prometheus: Callable[[str], str]) -> None:
    sizes = []
    for others in (0, 50):
        timeline = cluster(8)
        for i in range(others):
            pod_labels = {"namespace": "web", "pod": f"w{i}", "uid": f"0c-{i}", "job": "kube-state-metrics"}
            timeline.add("kube_pod_status_phase", phase="Running", instance="10.0.0.1:8080", **pod_labels)
            timeline.add(
                "kube_pod_owner", owner_kind="ReplicaSet", owner_name="r", instance="10.0.0.1:8080", **pod_labels
            )
        with counted(prometheus, timeline) as (url, traffic):
            attribute(url)
        sizes.append(sum(traffic.answered))
    assert sizes[1] == pytest.approx(sizes[0], abs=200)


def test_owners_of_pods_with_claims_take_no_more_queries(prometheus: Callable[[str], str]) -> None:
    timeline = cluster(8)
    source = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    for i in range(8):
        name, claim = f"claiming-{i}", f"claim-{i}"
        labels = {"namespace": "team", "pod": name, "uid": f"0d-{i}", **source}
        timeline.add("kube_pod_owner", owner_kind="Job", owner_name="train", owner_is_controller="true", **labels)
        timeline.add("kube_pod_resourceclaim_info", resourceclaim_name=claim, resourceclaim_namespace="team", **labels)
        timeline.device(
            0.5,
            node="dra",
            gpu=i,
            exported_pod=name,
            exported_namespace="team",
            dra_claim_name=claim,
            dra_claim_namespace="team",
        )
    timeline.node("dra", capacity={}, labels=L4)
    timeline.up(job="dcgm-exporter", instance="dra:9400")
    with counted(prometheus, timeline) as (url, traffic):
        (record,) = attribute(url)
    assert [line.workload for line in record.lines if line.node == "dra"] == ["train"] * 8
    assert not [query for query in traffic.queries if "0d-" in query], "they exist at the hour's end"
    assert len(traffic.queries) == 8, "one more, for claims"


def test_outage_across_hour_edge_takes_three_more_queries(prometheus: Callable[[str], str]) -> None:
    with counted(prometheus, cluster(16, gap=(-10, 12))) as (url, traffic):
        (record,) = attribute(url)
    assert {line.allocated_gpu_hours / SCALE for line in record.lines} == {1.0}
    uid_queries = [query for query in traffic.queries if "0a1b-" in query]
    assert not uid_queries, "pods on both sides of a gap need no closer look"
    assert len(traffic.queries) <= 7 + 3


@pytest.mark.parametrize("most", [20_000, 12_000, 8_000])
def test_oversized_queries_are_split(prometheus: Callable[[str], str], most: int) -> None:
    timeline = cluster(48)
    timeline.pod("short", 10, 40, node="n3", uid="0a1b-ffff")
    timeline.node("trn", capacity={"aws_amazon_com_neuroncore": 2})
    timeline.pod("cores", node="trn", resource="aws_amazon_com_neuroncore", units=2, uid="0a1b-fffe")
    for core in ("0", "1"):
        timeline.add(
            "neuroncore_utilization_ratio",
            value=0.4,
            instance_id="i-trn",
            neuroncore=core,
            job="neuron",
            instance="trn:8000",
        )
    with counted(prometheus, timeline) as (url, traffic):
        whole = attribute(url, hours=2, more=BY_LABEL)
    assert max(traffic.answered) > most
    with counted(prometheus, timeline, most) as (url, traffic):
        parts = attribute(url, hours=2, more=BY_LABEL)
    assert traffic.refused
    assert [record.lines for record in parts] == [record.lines for record in whole]
    assert [record.totals for record in parts] == [record.totals for record in whole]


def test_unsplittable_oversized_query_is_an_explained_error(prometheus: Callable[[str], str]) -> None:
    with (
        counted(prometheus, cluster(8), most=300) as (url, _),
        pytest.raises(MetricsTooLargeError, match="response larger than the max"),
    ):
        attribute(url)


def test_nodes_at_0_take_one_more_query_of_these_nodes(prometheus: Callable[[str], str]) -> None:
    """Of two nodes, the GPUs of one are at 0 all hour; the other's have a use."""
    timeline = cluster(8)
    timeline.device(70, node="n0", signal="DCGM_FI_DEV_POWER_USAGE", exported_pod="p0", exported_namespace="team")
    with counted(prometheus, timeline) as (url, usual):
        attribute(url)
    timeline.families[BUSY] = [
        f"{line.rpartition('} ')[0]}}} 0 {line.split()[-1]}" if 'Hostname="n0"' in line else line
        for line in timeline.families[BUSY]
    ]
    with counted(prometheus, timeline) as (url, traffic):
        (record,) = attribute(url)
    assert record.status == "complete"
    assert len(traffic.queries) == len(usual.queries) + 1
    (further,) = [query for query in traffic.queries if "DCGM_FI_DEV_GPU_UTIL%7B" in query]
    assert "n0" in further
    assert "n1" not in further


def test_idle_node_without_pods_takes_no_more_queries(prometheus: Callable[[str], str]) -> None:
    timeline = cluster(8)
    with counted(prometheus, timeline) as (url, usual):
        attribute(url)
    timeline.node("idle", capacity={"nvidia_com_gpu": 1}, labels=L4 | {"node_kubernetes_io_instance_type": "g6.xlarge"})
    timeline.device(0, node="idle", gpu=0)
    timeline.up(job="dcgm-exporter", instance="idle:9400")
    with counted(prometheus, timeline) as (url, traffic):
        (record,) = attribute(url)
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.unallocated_usd == amount(10)
    assert len(traffic.queries) == len(usual.queries)
