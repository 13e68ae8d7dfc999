"""Cheaper GPUs for inference servers that run on two models, in figures that were computed by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR, floor_day
from gpucost.features.recommendations.history import PodLatency
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of
from tests.features.recommendations.stubs import NOW, SETTINGS_TEXT, SettingsStub, nightly

HOURS = 192
H100 = sim.Pool("h100", "p5.4xlarge", 1, Decimal(5), model="NVIDIA-H100")
L40S = sim.Pool("l40s", "g6e.xlarge", 1, Decimal(2), model="NVIDIA-L40S")
ON_H100 = sim.Load("chat-h100", lambda _: 1.2, lambda _: 3, pool=H100)
ON_L40S = sim.Load("chat-l40s", lambda _: 0.8, lambda _: 2, pool=L40S)
Latency = Callable[[str, int], tuple[float, float] | None]
"""(Requests, p95 in seconds) of a pod, by its name and hour."""


def same_p95(pod: str, hour: int) -> tuple[float, float]:
    """Pods on H100 serve 600 requests an hour, those on L40S 700 by day and 100 at night."""
    return (600, 1.0) if "h100" in pod else (700 if 8 <= hour % 24 < 20 else 100, 1.0)


def simulated(*loads: sim.Load, hours: int = HOURS) -> list[HourRecord]:
    """Hours in which the loads are the pods of one workload."""
    return [
        structs.replace(record, lines=tuple(line._replace(workload="chat") for line in record.lines))
        for record in sim.simulate(loads, hours)
    ]


def latencies_of(records: Sequence[HourRecord], latency: Latency) -> dict[datetime, list[PodLatency]]:
    days: dict[datetime, dict[tuple[str, str], list[tuple[int, float, float]]]] = {}
    for number, record in enumerate(records):
        for line in record.lines:
            if (of_pod := latency(line.pod, number)) is not None:
                of_day = days.setdefault(floor_day(record.hour), {})
                of_day.setdefault((line.namespace, line.pod), []).append((record.hour.hour, *of_pod))
    return {day: [PodLatency(*name, tuple(hours)) for name, hours in of_day.items()] for day, of_day in days.items()}


def recommended(
    latency: Latency = same_p95,
    loads: Sequence[sim.Load] = (ON_H100, ON_L40S),
    *,
    is_part_of_server: Callable[[str], bool] = lambda _: False,
) -> list[RecommendationContent]:
    records = simulated(*loads)
    look_back = look_back_of(records, latencies=latencies_of(records, latency))
    look_back.is_part_of_server = is_part_of_server
    review = review_cluster(look_back, records[-1].hour + 2 * HOUR, {})
    return [content for content in review.recommendations if content.kind == "cheaper-gpus"]


def test_pods_move_to_the_cheaper_model_that_serves_as_much_at_the_same_p95() -> None:
    (content,) = recommended()
    assert content.summary == (
        "Run Deployment research-ns/chat on NVIDIA-L40S only: its pods there served as many requests at the same p95 "
        "latency as those on NVIDIA-H100, and a GPU-hour costs 60% less"
    )
    assert content.subject.gpu_model == "NVIDIA-H100"
    # By hand: three GPUs, each $3 cheaper, 730 hours a month.
    assert content.saving.usd == content.saving.cash_usd == Decimal(6570)
    assert content.current_gpus == 3
    assert content.recommended_gpus == 0
    facts = content.evidence.facts
    assert facts["requests per pod"] == "600 on average in the busiest hour on NVIDIA-H100"
    # Eight days of 12 hours, two pods.
    assert facts["p95 latency on NVIDIA-L40S"] == "1 s in 192 hours of pods with as many requests"
    assert facts["price per GPU-hour"] == "5 (NVIDIA-H100), 2 (NVIDIA-L40S)"
    assert "operator: In, values: [g6e.xlarge]" in content.patch


@pytest.mark.parametrize(
    ("requests", "p95", "is_recommended"), [(600, 1.05, True), (600, 1.06, False), (599, 1.0, False)]
)
def test_evidence_is_as_many_requests_at_the_same_p95(requests: float, p95: float, *, is_recommended: bool) -> None:
    def latency(pod: str, _: int) -> tuple[float, float]:
        return (600, 1.0) if "h100" in pod else (requests, p95)

    assert bool(recommended(latency)) == is_recommended


def test_a_few_hours_are_no_evidence() -> None:
    def on_the_first_day(pod: str, hour: int) -> tuple[float, float]:
        return (600, 1.0) if "h100" in pod or hour < 11 else (100, 1.0)

    assert not recommended(on_the_first_day), "22 hours of pods"


@pytest.mark.parametrize("unknown", ["h100", "l40s"])
def test_unknown_latency_is_no_evidence(unknown: str) -> None:
    assert not recommended(lambda pod, hour: None if unknown in pod and hour % 4 == 0 else same_p95(pod, hour))


@pytest.mark.parametrize(
    "changed",
    [
        replace(ON_L40S, kind="Job"),
        replace(ON_L40S, pool=replace(L40S, capacity_type="spot")),
        replace(ON_L40S, pool=replace(L40S, price=Decimal(5))),
        replace(ON_L40S, gpus=2, pool=replace(L40S, gpus=2)),
        replace(ON_L40S, lifetime=(60, 10**6)),
    ],
    ids=["another workload", "spot", "same price", "two GPUs a pod", "less than a week"],
)
def test_only_pods_of_the_same_kind_are_compared(changed: sim.Load) -> None:
    assert not recommended(loads=(ON_H100, changed))


@pytest.mark.parametrize(
    "loads",
    [
        [replace(load, kind="Job") for load in (ON_H100, ON_L40S)],
        [replace(load, pool=replace(load.pool, price=Decimal(0))) for load in (ON_H100, ON_L40S)],
    ],
    ids=["jobs", "free"],
)
def test_jobs_and_free_gpus_get_no_recommendation(loads: list[sim.Load]) -> None:
    assert not recommended(loads=loads)


def test_sides_of_a_server_are_not_compared() -> None:
    assert not recommended(is_part_of_server=lambda name: name == "chat")


def test_move_is_applied_and_its_saving_verified() -> None:
    """On day 10 the three pods move. From then on five pods run on L40S."""
    days = 24
    before = simulated(ON_H100, ON_L40S, hours=24 * days)
    after = simulated(replace(ON_L40S, work=lambda _: 2.0, pods=lambda _: 5), hours=24 * days)
    records = before[: 24 * 10] + after[24 * 10 :]
    latencies = latencies_of(records, same_p95)
    inference = parse_settings(SETTINGS_TEXT + "inference: {enabled: true}\n")
    settings: Any = SettingsStub(StoredSettings(1, SETTINGS_TEXT, inference, "test", NOW))

    def cache(_: object) -> Any:
        return SimpleNamespace(days=lambda _cluster, _start, _end, _deadline: latencies)

    first, second, last = nightly(records, [9, 12, days - 1], settings=settings, latency=cache)
    (key,) = (key for key in first if key.startswith("cheaper-gpus"))
    assert [night[key].state for night in (first, second, last)] == ["open", "applied", "verified"]
    assert last[key].applied_at == records[24 * 10].hour
    # Five GPUs cost $3.80 an hour on average before, and $2 after: 5 × $1.80 = 3 × $3.
    assert last[key].verified_usd == Decimal(6570)
