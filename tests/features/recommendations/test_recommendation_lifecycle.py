"""Nightly runs over weeks: states of recommendations when a workload changes, loses its prices, or comes back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import KarpenterDisruption
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.review_service import read_look_back
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.stubs import (
    SETTINGS_TEXT,
    FakePriceBook,
    SettingsStub,
    SimulatedLedger,
    UnreachableKarpenter,
    nightly,
    price,
)

DAYS = 24


def states(runs: Sequence[dict[str, Recommendation]], kind: str) -> list[str]:
    return [
        next((recommendation.state for key, recommendation in rows.items() if key.startswith(kind)), "")
        for rows in runs
    ]


def test_schedule_is_applied_and_verified_and_not_recommended_again() -> None:
    """Idle at weekends and at night; from day 15 on, it is stopped in these hours."""

    def busy(hour: int) -> bool:
        return hour // 24 % 7 < 5 and 8 <= hour % 24 < 20

    load = sim.Load("chat", lambda h: 1.2 if busy(h) else 0.0, lambda h: 2 if busy(h) or h < 24 * 15 else 0)
    runs = nightly(list(sim.simulate([load], 24 * 32)), range(14, 32))
    nightly_states = states(runs, "off-hours")
    changes = [state for index, state in enumerate(nightly_states) if not index or state != nightly_states[index - 1]]
    assert changes == ["open", "applied", "verified"], nightly_states
    (recommendation,) = (row for row in runs[-1].values() if row.content.kind == "off-hours")
    stopped = sum(not busy(hour) for hour in range(168)) / 168 * 2 * 1.5 * 730
    assert recommendation.verified_usd is not None
    assert recommendation.verified_usd <= recommendation.content.saving.usd
    assert 0.98 * stopped <= float(recommendation.verified_usd) <= stopped


def test_lower_price_is_not_credited_to_the_recommendation() -> None:
    """Eight GPUs become two on day 14, when the price falls by a third. The saving counts at the lower price."""
    before, after = sim.Pool(price=Decimal("1.5")), sim.Pool(price=Decimal(1))

    def records(pods: int, pool: sim.Pool) -> list[HourRecord]:
        return list(sim.simulate([sim.Load("big", lambda _: 1.0, lambda _: pods, pool=pool)], 24 * DAYS))

    days = 24 * 14
    kept, changed = records(8, after)[days:], records(2, after)[days:]
    (first, *_, last) = nightly(records(8, before)[:days] + changed, range(13, DAYS))
    (recommendation,) = last.values()
    assert [row.state for row in first.values()] == ["open"]
    saved = sim.costs(kept)[0] - sim.costs(changed)[0]
    assert recommendation.state == "verified"
    assert float(recommendation.verified_usd or 0) == pytest.approx(saved)
    assert saved < 8760 - 1460, "the difference of costs before and after would be more"


def test_pool_with_fewer_pods_verifies_no_consolidation() -> None:
    """Six nodes of eight GPUs run nine pods. From day 14 on, two nodes run all of them, or a third of them."""
    wide = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=6)
    tight = replace(wide, packs_pods=True, min_nodes=2)

    def verified_of(pods: int) -> set[Decimal]:
        loads = [
            sim.Load("job", lambda _: 9.0, lambda _, count=count: count, kind="Job", pool=pool)  # type: ignore[misc]
            for count, pool in ((9, wide), (pods, tight))
        ]
        old, new = (list(sim.simulate([load], 24 * DAYS)) for load in loads)
        runs = nightly(old[: 24 * 14] + new[24 * 14 :], [13, 15, 22])
        verified = (
            recommendation.verified_usd
            for rows in runs
            for key, recommendation in rows.items()
            if key.startswith("consolidate")
        )
        return {usd for usd in verified if usd is not None}

    assert verified_of(9) == {Decimal(4 * 16 * 730)}
    assert verified_of(3) == {Decimal(0)}


class SettingsInBerlin(SettingsStub):
    def current(self) -> StoredSettings:
        text = f"{SETTINGS_TEXT}alerts: {{time_zone: Europe/Berlin}}\n"
        return StoredSettings(1, text, parse_settings(text), "test", sim.START)


def test_schedules_are_in_the_settings_time_zone() -> None:
    load = sim.Load("chat", lambda hour: 1.0 if 8 <= hour % 24 < 20 else 0.0, lambda _: 2)
    (recommendation,) = nightly(list(sim.simulate([load], 24 * 15)), [15], SettingsInBerlin())[0].values()
    assert 'timezone: Europe/Berlin, start: "0 9 * * 1"' in recommendation.content.patch, (
        "an hour before UTC in November"
    )


class IdleKarpenter(UnreachableKarpenter):
    """Karpenter reports no eligible node."""

    def week(self, end: datetime) -> KarpenterDisruption:
        assert end == sim.START + timedelta(days=10)
        return KarpenterDisruption({"underutilized": 0}, {})


def test_evidence_of_consolidation_has_karpenter_metrics() -> None:
    wide = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=6)
    records = list(sim.simulate([sim.Load("job", lambda _: 9.0, lambda _: 9, kind="Job", pool=wide)], 240))
    (recommendation,) = nightly(records, [10], karpenter=IdleKarpenter())[0].values()
    assert recommendation.content.kind == "consolidate"
    assert "no node of the cluster was eligible" in recommendation.content.evidence.facts["Karpenter"]


def test_hours_without_a_price_verify_no_saving() -> None:

    def unpriced(line: Line) -> Line:
        return line._replace(allocated_usd=None, gpu_hourly_usd=None, price_source="", waste_usd=None)

    busy = sim.Load("big", lambda _: 1.0, lambda hour: 8 if hour < 24 * 14 else 2)
    records = [
        structs.replace(record, lines=tuple(map(unpriced, record.lines))) if index >= 24 * 15 else record
        for index, record in enumerate(sim.simulate([busy], 24 * DAYS))
    ]
    (first, *_, last) = nightly(records, range(13, DAYS))
    assert [row.state for row in first.values()] == ["open"]
    (recommendation,) = last.values()
    assert (recommendation.state, recommendation.verified_usd) == ("applied", None), "an unknown cost is not 0"


def test_a_saving_is_not_verified_in_another_currency() -> None:
    busy = sim.Load("big", lambda _: 1.0, lambda hour: 8 if hour < 24 * 14 else 2)
    records = [
        structs.replace(record, currency="JPY") if index >= 24 * 14 else record
        for index, record in enumerate(sim.simulate([busy], 24 * DAYS))
    ]
    (*_, last) = nightly(records, range(13, DAYS))
    assert [row.verified_usd for row in last.values()] == [None]


def test_change_of_currency_withdraws_recommendation_with_reason() -> None:
    idle = sim.Load("old", lambda _: 0.0, lambda _: 2)
    records = [
        structs.replace(record, currency="JPY") if index >= 240 else record
        for index, record in enumerate(sim.simulate([idle], 24 * 11))
    ]
    (*_, last) = nightly(records, [10, 11])
    assert [(row.state, row.reason) for row in last.values()] == [
        (
            "withdrawn",
            "newer figures no longer support it: hours of the look-back are in JPY and USD, which cannot be added up",
        )
    ]


def test_gpus_of_another_model_are_not_part_of_the_recommendation() -> None:
    """Idle on A10G until day 10; from day 9 on, the same object has busy pods on L4."""
    old = sim.Load("chat", lambda _: 0.0, lambda hour: 2 if hour < 240 else 0)
    pool = sim.Pool("l4", "g6.xlarge", 1, Decimal(5), model="NVIDIA-L4")
    new = replace(old, work=lambda _: 0.5, pods=lambda hour: 1 if hour >= 216 else 0, pool=pool)
    pairs = zip(sim.simulate([old], 24 * 18), sim.simulate([new], 24 * 18), strict=True)
    records = [structs.replace(a, lines=a.lines + b.lines, nodes=a.nodes + b.nodes) for a, b in pairs]
    (*_, last) = nightly(records, [8, 11, 18])
    (recommendation,) = last.values()
    assert recommendation.content.kind == "idle"
    assert (recommendation.state, recommendation.verified_usd) == ("verified", Decimal(2) * Decimal("1.5") * 730)


@pytest.mark.parametrize(
    ("capacity_type", "end"),
    [("spot", ("verified", Decimal(2920))), ("reserved", ("withdrawn", None)), ("", ("withdrawn", None))],
)
def test_spot_recommendation_is_applied_only_by_spot_nodes(capacity_type: str, end: tuple[str, Decimal | None]) -> None:
    """Four replicas move from $1.50 on demand to nodes at $0.50: spot, as recommended, or other capacity."""
    load, book = (
        sim.Load("serve", lambda _: 2.4, lambda _: 4),
        FakePriceBook([price("spot", "0.5", 400, instance_type="g5.xlarge")]),
    )
    pool = sim.Pool("other", price=Decimal("0.5"), capacity_type=capacity_type)
    before, after = (list(sim.simulate([each], 24 * 23)) for each in (load, replace(load, pool=pool)))
    first, _, last = nightly(before[: 24 * 14] + after[24 * 14 :], [13, 15, 23], book=book)
    ((key, recommendation),) = first.items()
    assert (recommendation.content.kind, recommendation.state) == ("spot", "open")
    assert (last[key].state, last[key].verified_usd) == end


@pytest.mark.parametrize("moved", [{"business_unit": "R&D 50%"}, {"gpu_model": "NVIDIA-L4"}], ids=["unit", "model"])
def test_workload_idle_on_other_gpus_was_not_scaled_to_zero(moved: dict[str, str]) -> None:
    """From 07:00 of day 10 on, the same idle pods belong to another business unit or use another GPU model."""
    idle = sim.Load("old", lambda _: 0.0, lambda _: 3)
    records = [
        structs.replace(record, lines=tuple(line._replace(**moved) for line in record.lines))  # type: ignore[arg-type]
        if index >= 24 * 10 + 7
        else record
        for index, record in enumerate(sim.simulate([idle], 24 * 20))
    ]
    ((key, first),), *later = (tuple(rows.items()) for rows in nightly(records, range(10, 21)))
    assert first.state == "open"
    nights = [dict(rows)[key] for rows in later]
    assert {(row.state, row.reason, row.verified_usd) for row in nights} == {("withdrawn", "its subject is gone", None)}
    ((other, last),) = (pair for pair in later[-1] if pair[0] != key)
    assert other.startswith("idle-")
    assert last.state == "open"


def test_second_gpu_model_withdraws_recommendation_with_reason() -> None:
    """Too large on A10G. From day 10 on, the same object also has pods on L4, and a change would affect both."""
    old = sim.Load("chat", lambda _: 0.5, lambda _: 4)
    pool = sim.Pool("l4", "g6.xlarge", 1, Decimal(5), model="NVIDIA-L4")
    new = replace(old, work=lambda _: 0.5, pods=lambda hour: 1 if hour >= 240 else 0, pool=pool)
    pairs = zip(sim.simulate([old], 24 * 11), sim.simulate([new], 24 * 11), strict=True)
    records = [structs.replace(a, lines=a.lines + b.lines, nodes=a.nodes + b.nodes) for a, b in pairs]
    before, after = nightly(records, [10, 11])
    ((key, recommendation),) = before.items()
    assert (recommendation.content.kind, recommendation.state) == ("fewer-gpus", "open")
    assert after[key].state == "withdrawn"
    assert after[key].reason == (
        "newer figures no longer support it: utilization 12% on average, 12% in the busiest hour; its other pods have "
        "another GPU model or resource, and a change would affect all of them"
    )


def test_withdrawn_recommendation_gives_the_new_figures() -> None:
    load = sim.Load("chat", lambda hour: 0.2 if hour < 240 else 2.4, lambda _: 4)
    before, after = nightly(list(sim.simulate([load], 24 * 12)), [10, 12])
    (key,) = before
    assert after[key].state == "withdrawn"
    assert after[key].reason.startswith(
        "newer figures no longer support it: utilization 14% on average, 60% in the busiest"
    )


def test_undone_recommendation_reopens_the_same_night() -> None:
    idle = sim.Load("old", lambda _: 0.0, lambda hour: 0 if 24 * 14 <= hour < 24 * 17 else 4)
    nightly_states = states(nightly(list(sim.simulate([idle], 24 * DAYS)), range(13, DAYS)), "idle")
    assert "withdrawn" not in nightly_states, nightly_states
    assert nightly_states[0] == "open"
    assert "applied" in nightly_states
    assert nightly_states[-1] == "open"


@pytest.mark.parametrize("day", [19, 20, 21, 22])
def test_weekend_does_not_withdraw_a_recommendation(day: int) -> None:
    """Idle on working days, scaled to zero at weekends."""
    idle = sim.Load("old", lambda _: 0.0, lambda hour: 4 if hour // 24 % 7 < 5 else 0)
    assert states(nightly(list(sim.simulate([idle], 24 * DAYS)), [18, day]), "idle") == ["open", "open"]


@pytest.mark.parametrize("fetched", [{"p5.48xlarge": 50.0}, {"p5.48xlarge": 50.0, "g5.xlarge": 0.9}])
def test_built_in_list_prices_are_those_of_types_without_fetched_prices(fetched: dict[str, float]) -> None:
    pool = replace(sim.Pool(), price=Decimal("1.006"), price_source="list-price")
    simulated = sim.simulate([sim.Load("serve", lambda _: 0.5, lambda _: 2, pool=pool)], 24)
    records = [
        structs.replace(record, nodes=tuple(structs.replace(node, zone="us-east-1b") for node in record.nodes))
        for record in simulated
    ]
    look_back = read_look_back(
        SimulatedLedger(records), "a", sim.START + 24 * HOUR, list_prices=fetched, spot_prices={}, memory={}, waits={}
    )
    assert look_back.list_prices == {"g5.xlarge": 1.006} | fetched


def test_number_of_workloads_in_memory_is_limited() -> None:
    """A service and five bare pods an hour, each for an hour, are 1,201 workloads; about 100 are kept."""
    serve = sim.Load("serve", lambda _: 0.5, lambda _: 2)
    short = sim.Load("task", lambda _: 1.0, lambda _: 5, kind="Pod")
    records = [
        structs.replace(
            record,
            lines=tuple(
                line._replace(workload=f"{line.pod}-{index}", pod=f"{line.pod}-{index}", uid=f"{line.uid}-{index}")
                if line.workload == "task"
                else line
                for line in record.lines
            ),
        )
        for index, record in enumerate(sim.simulate([serve, short], 240))
    ]
    ledger, end = SimulatedLedger(records), sim.START + 240 * HOUR

    def read(max_workloads: int) -> Any:
        days = timedelta(days=10)
        return read_look_back(
            ledger,
            "a",
            end,
            list_prices={},
            spot_prices={},
            memory={},
            waits={},
            length=days,
            max_workloads=max_workloads,
        )

    few, all_ = read(100), read(10_000)
    assert len(all_.workloads) == 1201
    assert 75 <= len(few.workloads) <= 105
    names = {key.name for key in few.workloads}
    assert {f"task-{number}-239" for number in range(5)} | {"serve"} <= names, (
        "workloads that ended longest ago are dropped"
    )
    (service,) = (history for key, history in few.workloads.items() if key.name == "serve")
    assert sum(service.held_gpu_hours) == 480, "running workloads keep all their hours"
    assert few.pools == all_.pools
