"""The utilization signals that attribution would read.

All of `doctor` reads the catalog of signals through this module, so that a change of the catalog affects it alone.
"""

from collections.abc import Sequence
from decimal import Decimal

from gpucost.core.metering.accelerators import ACCELERATOR_SIGNALS
from gpucost.core.metering.energy import ENERGY_COUNTER, ENERGY_COUNTERS, POWER_GAUGES
from gpucost.core.metering.signals import PROCESS_FAMILY, SIGNALS, Signal, signals_by_preference

__all__ = [
    "ENERGY_COUNTER",
    "ENERGY_COUNTERS",
    "ENERGY_METRICS",
    "Signal",
    "accelerator_signal_names",
    "all_signal_names",
    "process_signal_names",
    "signals_by_family",
    "signals_by_rank",
    "usual_scale",
]

ENERGY_METRICS = (*ENERGY_COUNTERS, *POWER_GAUGES)
"""The metrics of energy, in order of preference."""


def signals_by_rank(signal: str, scale: Decimal | None) -> Sequence[Sequence[Signal]]:
    """The signals that attribution reads, best rank first: the configured one under all its names, then fallbacks."""
    return signals_by_preference(signal, scale)


def usual_scale(signal: Signal) -> Decimal:
    """The exporter's value at full use, regardless of the settings."""
    return SIGNALS[signal.name].scale


def signals_by_family() -> dict[str, list[Signal]]:
    """All signals by family. Signals of one family are the same quantity under several exporters' names."""
    by_family: dict[str, list[Signal]] = {}
    for signal in SIGNALS.values():
        by_family.setdefault(signal.family, []).append(signal)
    return by_family


def process_signal_names() -> tuple[str, ...]:
    """The names of the signal that exporters report per process of shared GPUs."""
    return tuple(signal.name for signal in SIGNALS.values() if signal.family == PROCESS_FAMILY)


def all_signal_names() -> tuple[str, ...]:
    """The names of all utilization metrics."""
    return (*SIGNALS, *accelerator_signal_names())


def accelerator_signal_names() -> tuple[str, ...]:
    """The names of the utilization metrics of other vendors than NVIDIA."""
    return tuple(signal.name for signal in ACCELERATOR_SIGNALS)
