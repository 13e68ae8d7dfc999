"""How busy devices are and whom they are labelled with, in one vector whatever the exporter's version and scrape."""

from collections.abc import Sequence
from decimal import Decimal

from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.queries import Queries, name_matcher
from gpucost_cli.rules.promql import first_of, first_that_matches

DEVICE = "node, UUID, GPU_I_ID"
"""What tells a GPU, or a MIG device in it."""
_LABELS = {
    "node": ("node", "hostname", "Hostname"),
    "UUID": ("UUID", "uuid"),
    "namespace": ("exported_namespace", "namespace", "pod_namespace"),
    "pod": ("exported_pod", "pod", "pod_name"),
}
"""Of each fact the labels that may tell it. An idle GPU may carry the exporter's own pod, which requests no GPU."""


def use(queries: Queries, ranks: Sequence[Sequence[Signal]]) -> str:
    """Use of each device, 0 to 1, by the best signal that tells it; a copy for every pod that it is labelled with."""
    vectors = [_of_signals(queries, signals) for rank in ranks for signals in _alike(rank)]
    return first_that_matches(vectors, DEVICE)


def _alike(rank: Sequence[Signal]) -> list[list[Signal]]:
    """Signals of one rank that are read in the same way."""
    found: dict[tuple[Decimal, bool], list[Signal]] = {}
    for signal in rank:
        found.setdefault((signal.scale, signal.works_under_mig), []).append(signal)
    return list(found.values())


def _of_signals(queries: Queries, signals: Sequence[Signal]) -> str:
    matchers = [name_matcher(signal.name for signal in signals)]
    if not signals[0].works_under_mig:
        matchers.append('GPU_I_ID=""')  # absent or 0 whatever runs there, so that it says nothing
    vector = queries.select("", *matchers)
    for target, sources in _LABELS.items():
        vector = first_of(vector, target, sources)
    scale = f" / {signals[0].scale}" if signals[0].scale != 1 else ""
    return f"clamp(max by ({DEVICE}, namespace, pod, vgpu) ({vector}){scale}, 0, 1)"
