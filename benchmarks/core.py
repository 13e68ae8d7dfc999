"""The pure core on a fixed hour: metering, exact splits and lines, without Prometheus, ledger or network.

Every GPU held all hour by a pod of its own and used to some part, eight on a node; or pods that take turns on the GPUs
of one node, by request or by claim. Instructions are counted by the interpreter, and so repeat on every machine with
the same Python.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import FrameType
from typing import Any

from msgspec.structs import replace

from benchmarks.hour import settings_for
from benchmarks.large_cluster import PODS_PER_NODE
from gpucost.core.attribution import build_record
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.gpu_fractions import fraction_share, limit_to_gpus
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GpuNode
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import (
    ClaimedDevice,
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    OfferedDevice,
    PodObservation,
)
from gpucost.core.metering.usage import Holding
from gpucost.pipeline.attribute import attribution_rules
from gpucost.pipeline.pricing import pricing_of
from gpucost.runtime.process import gc_paused
from gpucost.settings import CoreSettings

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
GPU, MODEL = "nvidia_com_gpu", "NVIDIA H100 80GB HBM3"
REQUEST = (ContainerRequest("main", "container", GPU, Decimal(1)),)
NODE_LABELS = {"label_node_kubernetes_io_instance_type": "p5.48xlarge"}
SHORT_STEP_MS = 15_000
"""Between two scrapes of pods that take turns."""


def observation(pods: int, units: int) -> Observation:
    """The observation of the hour."""
    scrapes = Scrapes(tuple(to_epoch_ms(HOUR) + minute * 60_000 for minute in range(-60, 120)))
    capacity = {GPU: Decimal(PODS_PER_NODE)}
    nodes = tuple(
        NodeObservation(
            f"node-{n}", f"aws:///z/i-{n}", None, NODE_LABELS, (NodeState(None, capacity, capacity, NODE_LABELS),)
        )
        for n in range(-(-pods // PODS_PER_NODE))
    )
    observations = tuple(
        PodObservation(
            f"team-{i % units}",
            f"pod-{i}",
            f"uid-{i:012d}",
            f"node-{i // PODS_PER_NODE}",
            REQUEST,
            None,
            workload=f"app-{i // 4}",
            labels={"label_team": f"team-{i % units}", "label_app": "train"},
        )
        for i in range(pods)
    )
    devices = tuple(
        DeviceSeries(
            node=pod.node,
            uuid=f"GPU-{i}",
            mig_instance="",
            mig_profile="",
            model=MODEL,
            namespace=pod.namespace,
            pod=pod.pod,
            uid="",
            slot="",
            resource_claim="",
            scrape_target="d",
            scale=Decimal(1),
            signal_rank=0,
            sample_count=60,
            sample_sum=60 * Decimal(i % 100) / 100,
        )
        for i, pod in enumerate(observations)
    )
    return Observation(
        "large",
        HOUR,
        {"k": scrapes},
        observations,
        nodes,
        devices,
        {"d": scrapes},
        collects_nodes=True,
        collects_capacity=True,
    )


def turns(pods: int, units: int) -> Observation:
    """An hour in which pods take turns on the GPUs of one node, with a sample every 15 seconds."""
    start = to_epoch_ms(HOUR)
    scrapes = Scrapes(tuple(range(start - HOUR_MS, start + 2 * HOUR_MS, SHORT_STEP_MS)))
    times = range(start, start + HOUR_MS, SHORT_STEP_MS)
    capacity = {GPU: Decimal(PODS_PER_NODE)}
    node = NodeObservation("node", "aws:///z/i", None, NODE_LABELS, (NodeState(None, capacity, capacity, NODE_LABELS),))
    observations: list[PodObservation] = []
    devices: list[DeviceSeries] = []
    turns_of_gpu = pods // PODS_PER_NODE
    for i in range(pods):
        turn, gpu = divmod(i, PODS_PER_NODE)
        its_times = times[len(times) * turn // turns_of_gpu : len(times) * (turn + 1) // turns_of_gpu]
        samples = {"k": tuple(its_times)}
        pod = PodObservation(
            f"team-{i % units}",
            f"pod-{i}",
            f"uid-{i:012d}",
            "node",
            REQUEST,
            samples,
            samples,
            workload=f"app-{i // 4}",
        )
        device = DeviceSeries(
            node="node",
            uuid=f"GPU-{gpu}",
            mig_instance="",
            mig_profile="",
            model=MODEL,
            namespace=pod.namespace,
            pod=pod.pod,
            uid="",
            slot="",
            resource_claim="",
            scrape_target="d",
            scale=Decimal(1),
            signal_rank=0,
            samples=tuple((time, Decimal(i % 100) / 100) for time in its_times),
        )
        observations.append(pod)
        devices.append(device)
    return Observation(
        "large",
        HOUR,
        {"k": scrapes},
        tuple(observations),
        (node,),
        tuple(devices),
        {"d": scrapes},
        collects_nodes=True,
        collects_capacity=True,
    )


def turns_by_claim(pods: int, units: int) -> Observation:
    """The hour of `turns`, with a ResourceClaim of each pod for its GPU, which the node offers in ResourceSlices."""
    by_request = turns(pods, units)
    observations: list[PodObservation] = []
    devices: list[DeviceSeries] = []
    for i, (pod, device) in enumerate(zip(by_request.pods, by_request.devices, strict=True)):
        claim, name = f"claim-{i}", f"gpu-{i % PODS_PER_NODE}"
        claimed = ClaimedDevice(claim, "node", device.uuid, "", name, DRA_GPU_DRIVER)
        request = ContainerRequest("", "container", DRA_GPU_DRIVER, Decimal(1))
        observations.append(replace(pod, requests=(request,), claimed_device=claimed))
        devices.append(replace(device, resource_claim=claim, claimed_name=name, dra_driver=DRA_GPU_DRIVER))
    (node,) = by_request.nodes
    offered = tuple(OfferedDevice("node", f"gpu-{gpu}", None) for gpu in range(PODS_PER_NODE))
    return replace(
        by_request,
        pods=tuple(observations),
        devices=tuple(devices),
        nodes=(replace(node, states=()),),
        offered_devices=offered,
    )


def hour_of(pods: int, units: int, *, by_label: bool = False, shared: int = 0) -> Callable[[], HourRecord]:
    """A function that attributes the hour from scratch.

    Args:
        pods: how many there are.
        units: their business units.
        by_label: whether units own pods by label.
        shared: how many of the units distribute their cost.
    """
    settings = settings_for("http://127.0.0.1:9", units, by_label=by_label, shared=shared)
    return _attributing(observation(pods, units), settings)


def hour_of_turns(pods: int, units: int, *, by_claim: bool = False) -> Callable[[], HourRecord]:
    """A function that attributes an hour of pods that take turns from scratch."""
    observed = turns_by_claim(pods, units) if by_claim else turns(pods, units)
    return _attributing(observed, settings_for("http://127.0.0.1:9", units))


def fractions_in_turn(pods: int) -> Callable[[], list[Holding]]:
    """A function that limits fractions of a GPU to it: of a pod that has a half all hour, and of pods in turn."""
    start, node = to_epoch_ms(HOUR), GpuNode("node", physical_gpus=PODS_PER_NODE)
    ends = [start + HOUR_MS * (turn + 1) // pods for turn in range(pods)]
    times = [IntervalMs(start, start + HOUR_MS), *map(IntervalMs, [start, *ends], ends)]
    holdings = [
        Holding(
            PodObservation("team", f"pod-{i}", f"uid-{i}", "node", REQUEST, None),
            node,
            GPU,
            1,
            fraction_share(Fraction(3, 4) if i else Fraction(1, 2), 1, node),
            time,
            time,
            time.end,
            time.start,
        )
        for i, time in enumerate(times)
    ]
    gpus_of_pod = {("team", holding.pod.pod): frozenset({"GPU-0"}) for holding in holdings}
    return partial(limit_to_gpus, holdings, gpus_of_pod)


def _attributing(observed: Observation, settings: CoreSettings) -> Callable[[], HourRecord]:
    """A function that attributes an observed hour from scratch."""
    metering = MeteringRules(settings.utilization.sources, None)
    rules = attribution_rules(settings, pricing_of(settings))

    def run() -> HourRecord:
        with gc_paused():  # as the service does
            return build_record(meter(observed, metering), rules)

    return run


def instructions(run: Callable[[], object]) -> int:
    """Bytecode instructions that a call executes, in its threads, too. C code such as `decimal` is not counted."""
    counts: Counter[int] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            counts[threading.get_ident()] += 1
        return trace

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return counts.total()
