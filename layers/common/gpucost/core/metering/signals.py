"""The catalogue of utilization signals: what exporters emit, under which names, at which scale, and where it works.

Sources: dcgm-exporter's `etc/default-counters.csv` and METRICS.md (ratios 0.0 to 1.0), DCGM's `dcgm_fields.h`
(percent fields; the names of the field naming standard that exporter 4.9 uses), exporter 1.x (lower case), the Neuron
Monitor user guide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

_ONE, _PERCENT = Decimal(1), Decimal(100)


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric that says how busy a device is."""

    name: str
    family: str
    """What it measures; names of one family are one quantity, at different versions of the exporter."""
    scale: Decimal
    """The value that means fully used."""
    works_under_mig: bool
    exporter: str
    """Versions that emit it."""


SIGNALS: dict[str, Signal] = {
    signal.name: signal
    for signal in (
        Signal("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "graphics engine", _ONE, works_under_mig=True, exporter="2.0-4.8"),
        Signal("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "graphics engine", _ONE, works_under_mig=True, exporter="4.9+"),
        Signal("dcgm_fi_prof_gr_engine_active", "graphics engine", _ONE, works_under_mig=True, exporter="1.x"),
        Signal("DCGM_FI_PROF_SM_ACTIVE", "multiprocessors", _ONE, works_under_mig=True, exporter="2.0-4.8"),
        Signal("DCGM_FI_PROF_SM_UTIL_RATIO", "multiprocessors", _ONE, works_under_mig=True, exporter="4.9+"),
        Signal("DCGM_FI_DEV_GPU_UTIL", "device", _PERCENT, works_under_mig=False, exporter="2.0-4.8"),
        Signal("DCGM_FI_DEV_GPU_UTIL_RATIO", "device", _ONE, works_under_mig=False, exporter="4.9+"),
        Signal("dcgm_gpu_utilization", "device", _PERCENT, works_under_mig=False, exporter="1.x"),
    )
}
NEURON = Signal("neuroncore_utilization_ratio", "neuroncore", _ONE, works_under_mig=True, exporter="neuron-monitor")

_NEXT_BEST = ("graphics engine", "device")
"""Families tried, in this order, for GPUs that do not tell the one that settings prefer. `device` says only that
anything ran at all in a time, so that it overstates; profiling counters are better where they are collected."""


def signals_by_preference(signal: str, scale: Decimal | None) -> Sequence[Sequence[Signal]]:
    """Signals to ask for, best rank first: the settings' own and its other names, then families that stand in for it.

    Args:
        signal: the one that settings name.
        scale: its value at full use, where settings give one other than the catalogue's.
    """
    preferred = SIGNALS[signal]
    families = [preferred.family, *(family for family in _NEXT_BEST if family != preferred.family)]
    return [
        [
            replace(one, scale=scale) if one is preferred and scale is not None else one
            for one in SIGNALS.values()
            if one.family == family
        ]
        for family in families
    ]
