"""Two things taken away from the recorded hour at once: what one makes unknown, the other one leaves unknown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hours import HOUR_MS
from gpucost.pipeline.attribute import AttributedHour
from tests.recorded_hour.recording import (
    RecordedSeries,
    Transform,
    attribute,
    nodes_of,
    read_series,
    running_variants,
    unpack,
)
from tests.recorded_hour.transforms import CHANGED, DCGM, KSM, NEURON, READ, RIGHT, ambiguous, without_capacity_of_cpus
from tests.system.metered_hours import assert_identity

SINGLE: Mapping[str, Transform] = {
    **{name: RIGHT[name] for name in ("no-claim-info", "no-times", "no-up", "exported-labels", "two-replicas")},
    **CHANGED,
    "ambiguous": ambiguous,
    "without-cpus": without_capacity_of_cpus,
}
ALIKE = ({"no-node-labels", "no-node-labels-no-slots", "ambiguous", "without-cpus"}, {"every-minute", "two-replicas"})
"""Of each set, only one is taken away at a time: they are ways to lack the same."""
PAIRS = [
    (first, second) for first, second in combinations(SINGLE, 2) if not any({first, second} <= alike for alike in ALIKE)
]
EDGES = 0.35
"""GPU-hours by which edges of pods, each within a scrape or a gap, may move on one node."""
USED = "used GPU-hours of GPUs that no node advertises and no pod requested on al-dra-1, al-dra-2"
REPRESENTATIVE = [
    ("no-node-labels-no-slots", "no-claim-labels"),
    ("no-node-labels", "no-claim-labels"),
    ("no-node-labels", "no-phases"),
    ("no-uids", "gap-of-allocation"),
    ("no-times", "no-phases"),
    ("no-claim-info", "no-claim-labels"),
    ("no-claim-labels", "only-admin-claims"),
    ("gap-of-utilization", "no-admin-label"),
    ("no-up", "gap-of-allocation"),
    ("no-phases", "gap-of-allocation"),
    ("no-claim-labels", "ambiguous"),
    ("no-claim-info", "no-admin-label"),
    ("no-uids", "no-phases"),
]
"""Each thing with one that concerns the same pods or nodes."""


def both(first: Transform, second: Transform) -> Transform:
    def transform(series: RecordedSeries) -> Iterable[RecordedSeries]:
        return [changed for between in first(series) for changed in second(between)]

    return transform


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Sequence[RecordedSeries]:
    series = read_series(unpack(tmp_path_factory.mktemp("recorded")), (KSM, DCGM, NEURON))
    return [each for each in series if each.name.startswith(READ)]


def attribute_pairs(recorded: Sequence[RecordedSeries], pairs: Iterable[tuple[str, str]]) -> dict[str, AttributedHour]:
    """The hours of some pairs, and of each of their parts."""
    variants = {name: SINGLE[name] for pair in pairs for name in pair}
    variants |= {f"{first}.{second}": both(SINGLE[second], SINGLE[first]) for first, second in pairs}
    with running_variants(recorded, variants) as url:
        return {variant: attribute(url, variant) for variant in variants}


@pytest.fixture(scope="module")
def hours(recorded: Sequence[RecordedSeries]) -> dict[str, AttributedHour]:
    return attribute_pairs(recorded, REPRESENTATIVE)


def gpu_hours_by_node(hour: AttributedHour, part: str) -> dict[str, float]:
    """GPU-hours of a part of the nodes' capacity, or wasted ones."""
    nodes = nodes_of(hour)
    if part != "waste":
        return {name: float(getattr(usage, f"{part}_gpu_ms") / HOUR_MS) for name, usage in nodes.items()}
    wasted = dict.fromkeys(nodes, 0.0)
    for line in hour.record.lines:
        measured = line.allocated_gpu_hours - line.unmeasured_gpu_hours
        wasted[line.node] += (measured - (line.effective_gpu_hours or 0)) / SCALE
    return wasted


def kinds_of_unknown(hour: AttributedHour) -> set[str]:
    """What notes say, without names and numbers."""
    notes = (note for note in hour.record.notes if note.startswith(("unknown: ", "no scrapes from ")))
    return {re.sub(r"'[^']*'|\S*\d\S*", "…", note).partition(",")[0] for note in notes}


def assert_unknown_stays_unknown(hours: Mapping[str, AttributedHour], first: str, second: str) -> None:
    parts, hour = (hours[first], hours[second]), hours[f"{first}.{second}"]
    assert_identity(hour.record)
    assert hour.record.status == "complete"
    assert not any(gpu_hours_by_node(hour, "excess").values())
    for part in ("stranded", "unallocated", "waste"):
        of_parts = [gpu_hours_by_node(each, part) for each in parts]
        for node, amount in gpu_hours_by_node(hour, part).items():
            assert amount <= max(of_part[node] for of_part in of_parts) + EDGES, (node, part)
    expected = set().union(*map(kinds_of_unknown, parts))
    if "no-claim-labels" in {first, second}:  # then no metric says which claims have a device
        expected = {note for note in expected if "are allocated only" not in note and "are each allocated" not in note}
        if "no-claim-info" in {first, second}:  # nor that there are claims: only the use of their GPUs is left
            expected = {note for note in expected if "pods with ResourceClaims" not in note}
            assert any(USED in note for note in hour.record.notes)
    elif {first, second} == {"only-admin-claims", "no-admin-label"}:  # one claim is left, of a plain namespace
        expected = set()
    assert expected <= kinds_of_unknown(hour)


@pytest.mark.parametrize(("first", "second"), REPRESENTATIVE)
def test_pair_leaves_unknown_what_each_of_its_parts_leaves_unknown(
    hours: dict[str, AttributedHour], first: str, second: str
) -> None:
    assert_unknown_stays_unknown(hours, first, second)


@pytest.mark.nightly
def test_all_pairs_leave_unknown_what_each_of_their_parts_leaves_unknown(recorded: Sequence[RecordedSeries]) -> None:
    for start in range(0, len(PAIRS), 20):
        pairs = PAIRS[start : start + 20]
        hours = attribute_pairs(recorded, pairs)
        for first, second in pairs:
            assert_unknown_stays_unknown(hours, first, second)
