"""The pure core on a fixed hour: metering, exact splits and lines, without Prometheus, ledger or network.

Every GPU held all hour by a pod of its own and used to some part, eight on a node. Instructions are counted by the
interpreter, and so repeat on every machine with the same Python.
"""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import FrameType
from typing import Any

from benchmarks.hour import settings_for
from benchmarks.large_cluster import PODS_PER_NODE
from gpucost.core.attribution import attribute_usage
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
)
from gpucost.pipeline.attribute import attribution_rules
from gpucost.pipeline.pricing import pricing_of
from gpucost.runtime.gc_control import gc_paused

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
GPU, MODEL = "nvidia_com_gpu", "NVIDIA H100 80GB HBM3"


def observation(pods: int, units: int) -> Observation:
    """The observation of the hour."""
    scrapes = Scrapes(tuple(to_epoch_ms(HOUR) + minute * 60_000 for minute in range(-60, 120)))
    capacity = {GPU: Decimal(PODS_PER_NODE)}
    labels = {"label_node_kubernetes_io_instance_type": "p5.48xlarge"}
    nodes = tuple(
        NodeObservation(f"node-{n}", f"aws:///z/i-{n}", None, labels, (NodeState(None, capacity, capacity, {}),))
        for n in range(-(-pods // PODS_PER_NODE))
    )
    request = (ContainerRequest("main", "container", GPU, Decimal(1)),)
    observations = tuple(
        PodObservation(f"team-{i % units}", f"pod-{i}", f"uid-{i:012d}", f"node-{i // PODS_PER_NODE}", request, None,
                       workload=f"app-{i // 4}")
        for i in range(pods)
    )  # fmt: skip
    devices = tuple(
        DeviceSeries(
            node=pod.node, uuid=f"GPU-{i}", mig_instance="", mig_profile="", model=MODEL, namespace=pod.namespace,
            pod=pod.pod, uid="", slot="", resource_claim="", scrape_target="d", scale=Decimal(1), signal_rank=0,
            sample_count=60, sample_sum=60 * Decimal(i % 100) / 100,
        )
        for i, pod in enumerate(observations)
    )  # fmt: skip
    return Observation("large", HOUR, {"k": scrapes}, observations, nodes, devices, {"d": scrapes}, collects_nodes=True,
                       collects_capacity=True)  # fmt: skip


def hour_of(pods: int, units: int) -> Callable[[], HourRecord]:
    """A function that attributes the hour from scratch."""
    settings, observed = settings_for("http://127.0.0.1:9", units), observation(pods, units)
    metering = MeteringRules(settings.utilization.sources, None)
    rules = attribution_rules(settings, pricing_of(settings))

    def run() -> HourRecord:
        with gc_paused():  # as the service does
            return attribute_usage(meter(observed, metering), rules)

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
