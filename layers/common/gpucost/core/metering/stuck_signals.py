"""Signals that are stuck at 0: a second witness says that a GPU was in use although its signal is exactly 0 all hour.

DCGM's profiling counters read 0 while another tool holds them, or after a fault of the driver. Other vendors' GPUs have
their power as a witness. A GPU that is idle according to every witness is idle.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import filterfalse
from operator import attrgetter

from msgspec import Struct

from gpucost.core.metering.accelerators import NVIDIA, accelerator_of_vendor
from gpucost.core.metering.observations import DeviceSeries, PodObservation

MIN_WITNESSED_USE = Fraction(1, 10)
"""The mean of another utilization signal that contradicts a signal of 0."""
MIN_POWER_RATIO = 2
"""How many times the power of its lowest hour of the day a GPU draws if it contradicts a signal of 0."""
_RESET_OF_NVIDIA = "restart dcgm-exporter, and end other tools that use DCGM's profiling counters"
Gpu = tuple[str, str]
"""Node and UUID."""


class PowerByHour(Struct, frozen=True):
    """The mean power of a GPU in the hour, and in its lowest hour of the day, this one included."""

    watts: Decimal
    lowest: Decimal

    @property
    def is_contradiction(self) -> bool:
        """Whether the GPU draws more than an idle one."""
        return self.lowest > 0 and self.watts >= MIN_POWER_RATIO * self.lowest


def gpus_at_zero(devices: Collection[DeviceSeries], pods: Collection[PodObservation]) -> dict[Gpu, str]:
    """Return the GPUs of the nodes of which every held device has a signal of exactly 0 all hour, with their vendors.

    Held are the devices that are labeled with a pod; all of a node that has no labels of pods. Vendors whose exporter
    has no other metric of a device's use are left out.

    Args:
        devices: the series of every device.
        pods: all that hold GPUs.
    """
    without_sum = filterfalse(attrgetter("sample_sum"), devices)  # few; no bytecode for each of the others
    nodes = {device.node for device in without_sum if _is_zero(device)}
    doubtful = nodes.intersection(pod.node for pod in pods) if nodes else nodes
    if not doubtful:
        return {}
    holders = {(pod.namespace, pod.pod) for pod in pods}
    at_zero: dict[tuple[str, str], set[str]] = {}
    in_use: set[Gpu] = set()
    nodes_in_use: set[tuple[str, str]] = set()
    held_in_use: set[tuple[str, str]] = set()
    labeled: dict[tuple[str, str], set[str]] = {}
    for device in devices:
        if device.node not in doubtful or not _has_witness(device.vendor):
            continue
        of_vendor = device.node, device.vendor
        is_held = (device.namespace, device.pod) in holders
        if not _is_zero(device):
            in_use.add((device.node, device.uuid))
            nodes_in_use.add(of_vendor)
            if is_held:
                held_in_use.add(of_vendor)
            continue
        at_zero.setdefault(of_vendor, set()).add(device.uuid)
        if is_held:
            labeled.setdefault(of_vendor, set()).add(device.uuid)
    gpus: dict[Gpu, str] = {}
    for (node, vendor), uuids in at_zero.items():
        # Without labels, any device in use may be held.
        if (node, vendor) not in (held_in_use if (node, vendor) in labeled else nodes_in_use):
            of_node = {(node, uuid) for uuid in labeled.get((node, vendor), uuids)}
            gpus |= dict.fromkeys(of_node - in_use, vendor)
    return gpus


def _has_witness(vendor: str) -> bool:
    accelerator = accelerator_of_vendor(vendor)
    return vendor == NVIDIA or (accelerator is not None and bool(accelerator.power_metrics))


def _is_zero(device: DeviceSeries) -> bool:
    if device.samples is not None:
        return bool(device.samples) and not any(use for _, use in device.samples)
    return device.sample_count > 0 and device.sample_sum == 0


def contradicted_gpus(
    gpus: Collection[Gpu], witnesses: Iterable[tuple[str, DeviceSeries]], power: Mapping[Gpu, PowerByHour]
) -> dict[Gpu, str]:
    """Return the GPUs whose signal of 0 is contradicted, each with what the witness says.

    Args:
        gpus: with a signal of 0.
        witnesses: their series of other signals, each with the signal's name.
        power: by GPU.
    """
    contradicted: dict[Gpu, str] = {}
    for signal, witness in witnesses:
        gpu = witness.node, witness.uuid
        if gpu in gpus and says_in_use(witness):
            contradicted.setdefault(gpu, f"{signal} says that they are in use")
    for gpu, by_hour in power.items():
        if gpu in gpus and by_hour.is_contradiction:
            contradicted.setdefault(gpu, "they draw at least twice the power of their lowest hour of the day")
    return contradicted


def says_in_use(series: DeviceSeries) -> bool:
    """Whether the mean of a witness's series contradicts a signal of 0."""
    return (
        series.sample_count > 0
        and series.sample_sum.is_finite()
        and Fraction(series.sample_sum) >= MIN_WITNESSED_USE * Fraction(series.scale) * series.sample_count
    )


def stuck_signal_notes(
    contradicted: Mapping[Gpu, str], measured: Collection[Gpu], vendors: Mapping[Gpu, str]
) -> Sequence[str]:
    """Return a note for each node with contradicted GPUs.

    Args:
        contradicted: the GPUs with what the witness says.
        measured: those that are measured by the witness.
        vendors: the vendor of each GPU.
    """
    by_node: dict[tuple[str, str, bool, str], int] = {}
    for gpu, statement in contradicted.items():
        accelerator = accelerator_of_vendor(vendors[gpu])
        reset = accelerator.reset if accelerator is not None else _RESET_OF_NVIDIA
        key = gpu[0], statement, gpu in measured, reset[0].upper() + reset[1:]
        by_node[key] = by_node.get(key, 0) + 1
    return [
        f"the utilization signal of {count} GPUs of node {node!r} is 0 all hour, although {statement}: "
        + ("they are measured by the latter" if is_measured else "their use counts as unmeasured")
        + f" (utilization.on_contradiction). {reset}"
        for (node, statement, is_measured, reset), count in sorted(by_node.items())
    ]
