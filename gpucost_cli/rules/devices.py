"""PromQL for the utilization of devices and the pods that hold them, for every version of the exporters."""

from collections.abc import Sequence
from decimal import Decimal

from gpucost.core.metering.accelerators import accelerator_of_signal
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.queries import Queries, name_matcher, quote
from gpucost_cli.rules import shares
from gpucost_cli.rules.promql import first_available, first_label

DEVICE_LABELS = "node, UUID, GPU_I_ID"
"""Labels that identify a GPU, or a MIG device in it."""
_LABELS = {
    "node": ("node", "hostname", "Hostname"),
    "UUID": ("UUID", "uuid"),
    "namespace": ("exported_namespace", "namespace", "pod_namespace"),
    "pod": ("exported_pod", "pod", "pod_name"),
}
"""Labels that exporters use for each fact. An idle GPU may carry the exporter's own pod, which requests no GPU."""


def device_utilization(queries: Queries, ranks: Sequence[Sequence[Signal]]) -> str:
    """Return the utilization of each device, 0 to 1, by its best signal; one series for each pod label."""
    vectors = [_signals_vector(queries, signals) for rank in ranks for signals in _group_by_scale(rank)]
    return first_available(vectors, DEVICE_LABELS)


def claimed_devices(queries: Queries, ranks: Sequence[Sequence[Signal]]) -> str:
    """Return the GPUs of each device that a pod has through a ResourceClaim, which the exporter's labels name.

    A MIG device has the share of its profile that is the same on all models, else its compute slices.
    """
    names = name_matcher(signal.name for rank in ranks for signal in rank if accelerator_of_signal(signal.name) is None)

    def claimed(matcher: str) -> str:
        vector = queries.series_selector("", names, 'dra_claim_name!=""', matcher)
        for target, label_names in {**_LABELS, "uid": ("pod_uid",)}.items():
            vector = first_label(vector, target, label_names)
        return f"group by ({DEVICE_LABELS}, namespace, pod, uid) ({vector})"

    of_profiles = [
        f"{claimed(f'GPU_I_PROFILE=~{quote(profiles)}')} * {float(share)!r}"
        for share, profiles in shares.profiles_by_share().items()
    ]
    return " or ".join([claimed('GPU_I_ID=""'), *of_profiles])


def _group_by_scale(rank: Sequence[Signal]) -> list[list[Signal]]:
    """Group the signals of one rank that have the same scale and MIG support."""
    groups: dict[tuple[Decimal, bool], list[Signal]] = {}
    for signal in rank:
        groups.setdefault((signal.scale, signal.works_under_mig), []).append(signal)
    return list(groups.values())


def _signals_vector(queries: Queries, signals: Sequence[Signal]) -> str:
    matchers = [name_matcher(signal.name for signal in signals)]
    if not signals[0].works_under_mig:
        matchers.append('GPU_I_ID=""')  # under MIG the metric is absent or always 0
    vector = queries.series_selector("", *matchers)
    for target, label_names in _LABELS.items():
        vector = first_label(vector, target, label_names)
    scale = f" / {signals[0].scale}" if signals[0].scale != 1 else ""
    return f"clamp(max by ({DEVICE_LABELS}, namespace, pod, vgpu) ({vector}){scale}, 0, 1)"
