"""Contradictory and implausible samples: nothing they report is billed, and every pair of exporters has a note."""

from decimal import Decimal
from fractions import Fraction

import pytest
from msgspec.structs import replace

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import DeviceSeries, Observation
from tests.core.single_node_cluster import ALWAYS, START, device, minutes, node, observation, pod

EXPORTER, TENANT = "dcgm-exporter|/n1:9400", "tenant|/10.9.9.9:8080"
SINGLE_GPU = {"label_nvidia_com_gpu_count": "1"}


def exported(*devices: DeviceSeries) -> Observation:
    """An observation in which both exporters are scraped all hour."""
    scrapes = {EXPORTER: ALWAYS, TENANT: ALWAYS, "d": ALWAYS}
    return replace(observation(devices=devices), utilization_scrapes=scrapes)


def test_gpus_on_node_with_contradictory_sources_are_unobserved() -> None:
    disputed = replace(node(), contradiction="capacity of nvidia_com_gpu on node n1 is reported as 7 and as 64")
    usage = meter(observation(nodes=(disputed,)), MeteringRules())
    (usage_of_node,) = usage.nodes or ()
    assert usage.pods == ()
    assert usage_of_node.unobserved_gpu_ms == usage_of_node.total_gpu_ms == 7 * HOUR_MS
    assert usage.notes == (
        "suspect samples: capacity of nvidia_com_gpu on node n1 is reported as 7 and as 64, with pod team/p on it; "
        "what it holds is unobserved",
        "first",
    )


def test_gpus_of_contradictory_pod_are_unobserved_and_the_others_unallocated() -> None:
    """The pod may hold three of seven GPUs."""
    usage = meter(replace(observation(), pods=(replace(pod(3), contradiction="sources differ"),)), MeteringRules())
    (usage_of_node,) = usage.nodes or ()
    assert usage.pods == ()
    assert usage_of_node.unobserved_gpu_ms == 3 * HOUR_MS
    assert usage_of_node.unallocated_gpu_ms == 4 * HOUR_MS
    assert usage.notes == ("suspect samples: pod team/p: sources differ; what it holds is unobserved", "first")


def test_pod_that_requests_more_than_its_node_advertises_holds_nothing() -> None:
    usage = meter(replace(observation(), pods=(pod(9),)), MeteringRules())
    (usage_of_node,) = usage.nodes or ()
    assert usage.pods == ()
    assert usage_of_node.unobserved_gpu_ms == 7 * HOUR_MS
    assert usage.notes == (
        "suspect samples: pod team/p requests 9 of nvidia.com/gpu, and node n1 has 7; what it holds is unobserved",
        "first",
    )


def test_every_implausible_pod_of_the_same_requests_has_a_note_and_disputed_time() -> None:
    """Both pods of a node may hold GPUs, and the second one is there all hour."""
    pods = (replace(pod(9), held_samples=None), replace(pod(9), pod="q", uid="v", held_samples=None))
    usage = meter(replace(observation(), pods=pods), MeteringRules())
    assert usage.pods == ()
    assert [note for note in usage.notes if "requests 9" in note] == [
        f"suspect samples: pod team/{name} requests 9 of nvidia.com/gpu, and node n1 has 7; what it holds is unobserved"
        for name in "pq"
    ]


def test_pod_keeps_its_gpus_when_node_advertises_fewer() -> None:
    states = (
        replace(node(7).states[0], sample_times={"k": minutes(-60, 30)}),
        replace(node(4).states[0], sample_times={"k": minutes(30, 120)}),
    )
    usage = meter(replace(observation(nodes=(replace(node(), states=states),)), pods=(pod(7),)), MeteringRules())
    (held,) = usage.pods
    assert held.gpu_ms == 7 * HOUR_MS
    assert usage.notes == ("first",)


@pytest.mark.parametrize(("contradiction", "source"), [("", "pod"), ("sources differ", "none")])
def test_unlabeled_use_is_of_lone_pod_unless_disputed_pod_may_have_held_gpus(contradiction: str, source: str) -> None:
    """The second pod holds no GPUs: without a contradiction, it requests none."""
    second = replace(pod(1 if contradiction else 0), pod="q", uid="q", contradiction=contradiction)
    whole = observation(devices=(device(labeled=False),), nodes=(node(1, SINGLE_GPU),))
    (measured,) = meter(replace(whole, pods=(pod(), second)), MeteringRules()).pods
    assert (measured.pod.pod, measured.use.source) == ("p", source)


def test_exporters_that_assign_more_devices_than_pod_requests_are_suspect() -> None:
    """The pod requests one GPU of a node that does not report how many it has."""
    devices = (replace(device(), scrape_target=EXPORTER), replace(device(), scrape_target=TENANT, uuid="GPU-1"))
    usage = meter(exported(*devices), MeteringRules())
    (unmeasured,) = usage.pods
    assert unmeasured.use.source == "none"
    assert unmeasured.effective_gpu_ms == 0
    assert usage.coverage.utilization == 0
    assert usage.notes == (
        "suspect samples: GPU exporters dcgm-exporter/n1:9400 and tenant/10.9.9.9:8080 contradict each other about 2 "
        "devices of node 'n1'; their use counts as unmeasured",
        "first",
    )
    (measured,) = meter(exported(devices[0]), MeteringRules()).pods
    assert measured.effective_gpu_ms == HOUR_MS // 2


def test_pods_on_other_nodes_than_that_of_suspect_exporters_are_measured() -> None:
    """Each pod holds its node's only GPU; the names of GPUs without UUID differ by exporter, so no GPU is surplus."""
    nodes = (node(1, SINGLE_GPU), replace(node(1, SINGLE_GPU), name="n2", provider_id="i-2"))
    pods = (pod(), replace(pod(), pod="q", uid="q", node="n2"))
    devices = (
        replace(device(), scrape_target=EXPORTER, uuid=f"{EXPORTER}/0/nvidia0"),
        replace(device(), scrape_target=TENANT, uuid=f"{TENANT}/0/nvidia0"),
        replace(device(labeled=False), scrape_target=EXPORTER, uuid=f"{EXPORTER}/1/nvidia1"),
        replace(device(labeled=False), scrape_target=EXPORTER, uuid="GPU-2", node="n2"),
    )
    usage = meter(replace(exported(*devices), nodes=nodes, pods=pods), MeteringRules())
    uses = {pod_usage.pod.pod: (pod_usage.use.source, pod_usage.use.utilization) for pod_usage in usage.pods}
    assert uses == {"p": ("none", None), "q": ("pod", Fraction(1, 2))}


def test_each_node_with_contradictory_exporters_is_noted() -> None:
    """On n1 they report different use of a GPU (0.5 and 1); on n2 they report two GPUs, and it has one."""
    nodes = (node(), replace(node(1, SINGLE_GPU), name="n2", provider_id="i-2"))
    pods = (pod(), replace(pod(), pod="q", uid="q", node="n2"))
    devices = (
        replace(device(total="30"), scrape_target=EXPORTER),
        replace(device(total="60"), scrape_target=TENANT),
        replace(device(), scrape_target=EXPORTER, node="n2", pod="q", uuid="GPU-2"),
        replace(device(labeled=False), scrape_target=TENANT, node="n2", uuid="GPU-3"),
    )
    usage = meter(replace(exported(*devices), nodes=nodes, pods=pods), MeteringRules())
    assert [(pod_usage.pod.pod, pod_usage.use.source) for pod_usage in usage.pods] == [("p", "none"), ("q", "none")]
    exporters = "suspect samples: GPU exporters dcgm-exporter/n1:9400 and tenant/10.9.9.9:8080 contradict each other"
    assert usage.notes == (
        f"{exporters} about 1 devices of node 'n1'; their use counts as unmeasured",
        f"{exporters} about 2 devices of node 'n2'; their use counts as unmeasured",
        "first",
    )


def test_only_implausible_utilization_is_noted() -> None:
    plausible = replace(device(), samples=((START, Decimal("0.5")), (START + 60_000, Decimal(1))))
    implausible = replace(plausible, pod="q", uuid="GPU-1", samples=((START, Decimal("0.5")), (START, Decimal(42))))
    usage = meter(observation(devices=(plausible, implausible)), MeteringRules())
    assert usage.notes[:2] == (
        "suspect samples: utilization of 'q' is 42, where 1 is full use; they count as unmeasured",
        "first",
    )
    assert not any("'p'" in note for note in usage.notes)
