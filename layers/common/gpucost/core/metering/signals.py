"""The catalog of NVIDIA's utilization signals: their names, scales, exporter versions and whether they work under MIG.

Other vendors' signals are in `accelerators`. Sources: dcgm-exporter's `etc/default-counters.csv` and METRICS.md (ratios
0.0 to 1.0), DCGM's `dcgm_fields.h` (percent fields; the names of the field naming standard that exporter 4.9 uses),
exporter 1.x (lower case).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

_RATIO, _PERCENT = Decimal(1), Decimal(100)


class Exporter(Struct, frozen=True):
    """An exporter in the settings and in Kubernetes."""

    source: str
    """Its name in `sources` of the settings; the collectors' job has it with hyphens."""
    series: str
    """Its name and its metrics, for the reference of settings."""
    namespaces: tuple[str, ...]
    """Where its chart is installed by default; empty for dcgm-exporter, which has a release for each kind of pools."""
    metric_prefixes: tuple[str, ...] = ()
    """Prefixes of its metrics, in lower case. Of several exporters, the longest that fits counts."""
    discovery_labels: tuple[str, ...] = ()
    """What identifies its pods, by Prometheus' names after `__meta_kubernetes_`: `pod_label_app`."""
    discovery_values: str = ""
    """A regular expression of their values, separated by semicolons."""
    names_no_node: bool = False
    """Whether the collectors add the node's name to its series."""

    @property
    def job(self) -> str:
        """The job that the rendered collectors give it."""
        return self.source.replace("_", "-")


class Signal(Struct, frozen=True):
    """A metric of a device's utilization."""

    name: str
    family: str
    """What it measures; the names of one family are the same quantity in different versions of the exporter."""
    scale: Decimal
    """The value of full use."""
    works_under_mig: bool
    """Whether partitions of a device (MIG devices, parts of AMD GPUs) have it."""
    exporter_versions: str
    """The exporter versions that report it."""
    works_on_whole_gpus: bool = True
    averaged_over: str = ""
    """The label of a device's parts. Each has a series, and the device's utilization is their mean."""
    matchers: tuple[tuple[str, str], ...] = ()
    """Labels and values of the series that stand for the whole device, if others of the same name do not."""


SIGNALS: dict[str, Signal] = {
    signal.name: signal
    for signal in (
        Signal(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "graphics engine",
            _RATIO,
            works_under_mig=True,
            exporter_versions="2.0-4.8",
        ),
        Signal(
            "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
            "graphics engine",
            _RATIO,
            works_under_mig=True,
            exporter_versions="4.9+",
        ),
        Signal(
            "dcgm_fi_prof_gr_engine_active", "graphics engine", _RATIO, works_under_mig=True, exporter_versions="1.x"
        ),
        Signal("DCGM_FI_PROF_SM_ACTIVE", "multiprocessors", _RATIO, works_under_mig=True, exporter_versions="2.0-4.8"),
        Signal("DCGM_FI_PROF_SM_UTIL_RATIO", "multiprocessors", _RATIO, works_under_mig=True, exporter_versions="4.9+"),
        Signal("DCGM_FI_DEV_GPU_UTIL", "device", _PERCENT, works_under_mig=False, exporter_versions="2.0-4.8"),
        Signal("DCGM_FI_DEV_GPU_UTIL_RATIO", "device", _RATIO, works_under_mig=False, exporter_versions="4.9+"),
        Signal("dcgm_gpu_utilization", "device", _PERCENT, works_under_mig=False, exporter_versions="1.x"),
    )
}
SUCCESSORS: Mapping[str, str] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    "DCGM_FI_PROF_SM_ACTIVE": "DCGM_FI_PROF_SM_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    "DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES",
    "DCGM_FI_DEV_FB_FREE": "DCGM_FI_DEV_FB_FREE_BYTES",
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
}
"""The metrics of dcgm-exporter up to 4.8 that anything reads, and their names from 4.9 on (DCGM 4.7).

Units change with three names: percent become a ratio, millijoules joules, and MiB bytes. Sources: the release notes of
dcgm-exporter 4.9.0, go-dcgm's `const_fields.go`, and DCGM's field identifiers.
"""
PROCESS_FAMILY = "device"
"""The family that dcgm-exporter 4.5.3-4.8.2 and later report per process of shared GPUs, in virtual-GPU mode. Memory
(`DCGM_FI_DEV_FB_USED`) is the only other such metric; profiling counters are copied to each pod."""

_FALLBACK_FAMILIES = ("graphics engine", "device")
"""The families to fall back to, in order, for GPUs without the signal of the settings. `device` overstates use, because
it only says whether any kernel ran; profiling counters are better where they are collected."""


def signals_by_preference(signal: str, scale: Decimal | None) -> Sequence[Sequence[Signal]]:
    """Return the signals to query by rank, best first: the settings' signal and its aliases, then fallback families.

    Args:
        signal: the signal that the settings name.
        scale: its value at full use, if the settings override that of the catalog.
    """
    preferred = SIGNALS[signal]
    families = [preferred.family, *(family for family in _FALLBACK_FAMILIES if family != preferred.family)]
    return [
        [
            replace(candidate, scale=scale) if candidate is preferred and scale is not None else candidate
            for candidate in SIGNALS.values()
            if candidate.family == family
        ]
        for family in families
    ]
