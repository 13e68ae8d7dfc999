"""The catalogue of utilization signals: what dcgm-exporter emits, at which scale, and where it works.

Sources: dcgm-exporter's `etc/default-counters.csv` and METRICS.md (ratios 0.0 to 1.0), DCGM's `dcgm_fields.h`
(percent fields; the 4.7 names that exporter 4.9 uses).
"""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric that says how busy a GPU or MIG device is."""

    name: str
    scale: Decimal
    """The value that means fully used."""
    works_under_mig: bool


SIGNALS: dict[str, Signal] = {
    signal.name: signal
    for signal in (
        Signal("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Decimal(1), works_under_mig=True),
        Signal("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", Decimal(1), works_under_mig=True),
        Signal("DCGM_FI_PROF_SM_ACTIVE", Decimal(1), works_under_mig=True),
        Signal("DCGM_FI_PROF_SM_UTIL_RATIO", Decimal(1), works_under_mig=True),
        Signal("DCGM_FI_DEV_GPU_UTIL", Decimal(100), works_under_mig=False),
        Signal("DCGM_FI_DEV_GPU_UTIL_RATIO", Decimal(1), works_under_mig=False),
    )
}
