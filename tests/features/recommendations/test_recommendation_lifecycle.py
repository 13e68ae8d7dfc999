"""The nightly run over weeks: what becomes of advice when its workload changes, loses prices or comes back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.core.line_use import LineUse
from gpucost.core.model import HourRecord, Line
from gpucost.features.recommendations.daily_cache import gpu_memory_cache, waiting_pods_cache
from gpucost.features.recommendations.history import Disruption
from gpucost.features.recommendations.look_back import read_look_back
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.service import RecommendationService
from gpucost.runtime.messages import RecommendationsDue
from gpucost.settings_document import parse_settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.test_recommendation_service import (
    TEXT,
    Book,
    Kept,
    Memory,
    NoDays,
    Reviews,
    Silent,
    Store,
    Waits,
    price,
)
from tests.records import use_of

DAYS = 24


class SimulatedLedger(Ledger):
    """Hours of a simulated fleet."""

    def __init__(self, records: Sequence[HourRecord]) -> None:
        self._records = {one.hour: one for one in records}

    def latest(self, cluster: str) -> Manifest | None:
        return self._manifest(cluster, max(self._records))

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [self._manifest(cluster, hour) for hour in sorted(self._records) if start <= hour < end]

    def uses_of(self, manifest: Manifest) -> list[LineUse]:
        return [use_of(line) for line in self._records[manifest.hour].lines]

    def nodes_of(self, manifest: Manifest) -> tuple[Any, Any]:
        return self._records[manifest.hour].nodes, ()

    def _manifest(self, cluster: str, hour: datetime) -> Manifest:
        currency = self._records[hour].currency
        return Manifest(cluster, hour, "complete", 1, "1-a", 1, None, 0, None, hour + HOUR, currency=currency)


class Rows(Reviews):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Recommendation] = {}

    def recommendations(self, _cluster: str) -> list[Recommendation]:
        return list(self.rows.values())

    def put(self, recommendation: Recommendation) -> Recommendation:
        self.rows[recommendation.id] = recommendation
        return recommendation


def nightly(
    records: Sequence[HourRecord],
    days: Sequence[int],
    settings: Store | None = None,
    karpenter: Any = None,
    book: Book | None = None,
) -> list[dict[str, Recommendation]]:
    """What is stored after the run at the end of each day."""
    store, found = Rows(), []
    for day in days:
        now = sim.START + timedelta(days=day)

        def clock(now: datetime = now) -> datetime:
            return now

        memory = gpu_memory_cache(Memory(now), Kept(), clock=clock)
        waiting = waiting_pods_cache(Waits(), NoDays(), clock=clock)
        stored: Any = settings or Store()
        prices = book or Book([])
        service = RecommendationService(
            stored,
            SimulatedLedger(records),
            store,
            prices,
            memory,
            waiting,
            karpenter or Silent(),
            clock=clock,
            time_zone=lambda: stored.current().settings.alerts.time_zone,  # noqa: B023 - called within the iteration
        )
        service.review_clusters(RecommendationsDue(scheduled_time=now, cluster="a"), lambda: 900)
        found.append(dict(store.rows))
    return found


def states(runs: Sequence[dict[str, Recommendation]], kind: str) -> list[str]:
    return [next((one.state for key, one in rows.items() if key.startswith(kind)), "") for rows in runs]


def test_schedule_is_applied_and_verified_and_not_recommended_again() -> None:
    """Idle on Saturdays and Sundays and at night; from day 15 on it is stopped then."""

    def busy(hour: int) -> bool:
        return hour // 24 % 7 < 5 and 8 <= hour % 24 < 20

    load = sim.Load("chat", lambda h: 1.2 if busy(h) else 0.0, lambda h: 2 if busy(h) or h < 24 * 15 else 0)
    runs = nightly(list(sim.simulate([load], 24 * 32)), range(14, 32))
    found = states(runs, "off-hours")
    message = [one for index, one in enumerate(found) if not index or one != found[index - 1]]
    assert message == ["open", "applied", "verified"], found
    (one,) = (own for own in runs[-1].values() if own.content.kind == "off-hours")
    stopped = sum(not busy(hour) for hour in range(168)) / 168 * 2 * 1.5 * 730
    assert one.verified_usd is not None
    assert one.verified_usd <= one.content.saving.usd
    assert 0.98 * stopped <= float(one.verified_usd) <= stopped


def test_lower_price_is_not_credited_to_the_recommendation() -> None:
    """Eight GPUs become two on day 14, when the price falls by a third: against the fleet that kept eight at it."""
    before, after = sim.Pool(price=Decimal("1.5")), sim.Pool(price=Decimal(1))

    def records(pods: int, pool: sim.Pool) -> list[HourRecord]:
        return list(sim.simulate([sim.Load("big", lambda _: 1.0, lambda _: pods, pool=pool)], 24 * DAYS))

    days = 24 * 14
    kept, changed = records(8, after)[days:], records(2, after)[days:]
    (first, *_, last) = nightly(records(8, before)[:days] + changed, range(13, DAYS))
    (one,) = last.values()
    assert [own.state for own in first.values()] == ["open"]
    saved = sim.costs(kept)[0] - sim.costs(changed)[0]
    assert one.state == "verified"
    assert float(one.verified_usd or 0) == pytest.approx(saved)
    assert saved < 8760 - 1460, "what an hour cost before, less what it costs since, would be more"


def test_a_pool_that_lost_its_work_has_consolidated_nothing() -> None:
    """Six nodes of eight GPUs for nine pods; from day 14 on two nodes: of all pods packed, or of a third of them."""
    wide = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs=False, keeps=6)
    tight = replace(wide, packs=True, keeps=2)

    def verified_of(pods: int) -> set[Decimal]:
        loads = [sim.Load("job", lambda _: 9.0, lambda _, count=count: count, kind="Job", pool=pool)  # type: ignore[misc]
                 for count, pool in ((9, wide), (pods, tight))]  # fmt: skip
        old, new = (list(sim.simulate([load], 24 * DAYS)) for load in loads)
        runs = nightly(old[: 24 * 14] + new[24 * 14 :], [13, 15, 22])
        message = (own.verified_usd for rows in runs for key, own in rows.items() if key.startswith("consolidate"))
        return {usd for usd in message if usd is not None}

    assert verified_of(9) == {Decimal(4 * 16 * 730)}
    assert verified_of(3) == {Decimal(0)}


class InBerlin(Store):
    def current(self) -> StoredSettings:
        text = f"{TEXT}alerts: {{time_zone: Europe/Berlin}}\n"
        return StoredSettings(1, text, parse_settings(text), "test", sim.START)


def test_schedules_are_in_the_settings_time_zone() -> None:
    load = sim.Load("chat", lambda hour: 1.0 if 8 <= hour % 24 < 20 else 0.0, lambda _: 2)
    (one,) = nightly(list(sim.simulate([load], 24 * 15)), [15], InBerlin())[0].values()
    assert 'timezone: Europe/Berlin, start: "0 9 * * 1"' in one.content.patch, "an hour before UTC in November"


class Asked(Silent):
    """Karpenter saw no node that it could take away."""

    def week(self, end: datetime) -> Disruption:
        assert end == sim.START + timedelta(days=10)
        return Disruption({"underutilized": 0}, {})


def test_evidence_of_consolidation_has_karpenter_metrics() -> None:
    wide = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs=False, keeps=6)
    records = list(sim.simulate([sim.Load("job", lambda _: 9.0, lambda _: 9, kind="Job", pool=wide)], 240))
    (one,) = nightly(records, [10], karpenter=Asked())[0].values()
    assert one.content.kind == "consolidate"
    assert "no node of the cluster was eligible" in one.content.evidence.facts["Karpenter"]


def test_a_saving_is_not_verified_by_hours_without_a_price() -> None:

    def unpriced(line: Line) -> Line:
        return line._replace(allocated_usd=None, gpu_hourly_usd=None, price_source="", waste_usd=None)

    busy = sim.Load("big", lambda _: 1.0, lambda hour: 8 if hour < 24 * 14 else 2)
    records = [
        replace(one, lines=tuple(map(unpriced, one.lines))) if index >= 24 * 15 else one
        for index, one in enumerate(sim.simulate([busy], 24 * DAYS))
    ]
    (first, *_, last) = nightly(records, range(13, DAYS))
    assert [one.state for one in first.values()] == ["open"]
    (one,) = last.values()
    assert (one.state, one.verified_usd) == ("applied", None), "an unknown cost is not 0"


def test_a_saving_is_not_verified_in_another_currency() -> None:
    busy = sim.Load("big", lambda _: 1.0, lambda hour: 8 if hour < 24 * 14 else 2)
    records = [
        replace(one, currency="JPY") if index >= 24 * 14 else one
        for index, one in enumerate(sim.simulate([busy], 24 * DAYS))
    ]
    (*_, last) = nightly(records, range(13, DAYS))
    assert [one.verified_usd for one in last.values()] == [None]


def test_change_of_currency_withdraws_recommendation_with_reason() -> None:
    idle = sim.Load("old", lambda _: 0.0, lambda _: 2)
    records = [
        replace(one, currency="JPY") if index >= 240 else one for index, one in enumerate(sim.simulate([idle], 24 * 11))
    ]
    (*_, last) = nightly(records, [10, 11])
    assert [(one.state, one.reason) for one in last.values()] == [(
        "withdrawn",
        "newer figures no longer support it: hours of the look-back are in JPY and USD, which cannot be added up",
    )]  # fmt: skip


def test_gpus_of_another_model_are_not_part_of_the_recommendation() -> None:
    """Idle on A10G, which goes on day 10; on day 9 the same object got pods on L4, which are at work."""
    old = sim.Load("chat", lambda _: 0.0, lambda hour: 2 if hour < 240 else 0)
    pool = sim.Pool("l4", "g6.xlarge", 1, Decimal(5), model="NVIDIA-L4")
    new = replace(old, work=lambda _: 0.5, pods=lambda hour: 1 if hour >= 216 else 0, pool=pool)
    pairs = zip(sim.simulate([old], 24 * 18), sim.simulate([new], 24 * 18), strict=True)
    records = [replace(a, lines=a.lines + b.lines, nodes=a.nodes + b.nodes) for a, b in pairs]
    (*_, last) = nightly(records, [8, 11, 18])
    (one,) = last.values()
    assert one.content.kind == "idle"
    assert (one.state, one.verified_usd) == ("verified", Decimal(2) * Decimal("1.5") * 730)


@pytest.mark.parametrize(("capacity_type", "end"), [
    ("spot", ("verified", Decimal(2920))), ("reserved", ("withdrawn", None)), ("", ("withdrawn", None)),
])  # fmt: skip
def test_only_spot_nodes_are_spot(capacity_type: str, end: tuple[str, Decimal | None]) -> None:
    """Four replicas leave $1.50 on demand for nodes at $0.50: of spot, as advised, or something else."""
    load, book = (
        sim.Load("serve", lambda _: 2.4, lambda _: 4),
        Book([price("spot", "0.5", 400, instance_type="g5.xlarge")]),
    )
    pool = sim.Pool("other", price=Decimal("0.5"), capacity_type=capacity_type)
    before, since = (list(sim.simulate([one], 24 * 23)) for one in (load, replace(load, pool=pool)))
    first, _, last = nightly(before[: 24 * 14] + since[24 * 14 :], [13, 15, 23], book=book)
    ((key, one),) = first.items()
    assert (one.content.kind, one.state) == ("spot", "open")
    assert (last[key].state, last[key].verified_usd) == end


@pytest.mark.parametrize("moved", [{"business_unit": "R&D 50%"}, {"gpu_model": "NVIDIA-L4"}], ids=["unit", "model"])
def test_workload_idle_on_other_gpus_was_not_scaled_to_zero(moved: dict[str, str]) -> None:
    """From 07:00 of day 10 on the same idle pods are another business unit's, or on another GPU model."""
    idle = sim.Load("old", lambda _: 0.0, lambda _: 3)
    records = [
        replace(one, lines=tuple(line._replace(**moved) for line in one.lines)) if index >= 24 * 10 + 7 else one  # type: ignore[arg-type]
        for index, one in enumerate(sim.simulate([idle], 24 * 20))
    ]
    ((key, first),), *later = (tuple(rows.items()) for rows in nightly(records, range(10, 21)))
    assert first.state == "open"
    message = [dict(rows)[key] for rows in later]
    assert {(one.state, one.reason, one.verified_usd) for one in message} == {
        ("withdrawn", "its subject is gone", None)
    }
    ((other, last),) = (own for own in later[-1] if own[0] != key)
    assert other.startswith("idle-")
    assert last.state == "open"


def test_second_gpu_model_withdraws_recommendation_with_reason() -> None:
    """Too large on A10G; from day 10 on the same object has pods on L4, too: what changes these changes those."""
    old = sim.Load("chat", lambda _: 0.5, lambda _: 4)
    pool = sim.Pool("l4", "g6.xlarge", 1, Decimal(5), model="NVIDIA-L4")
    new = replace(old, work=lambda _: 0.5, pods=lambda hour: 1 if hour >= 240 else 0, pool=pool)
    pairs = zip(sim.simulate([old], 24 * 11), sim.simulate([new], 24 * 11), strict=True)
    records = [replace(a, lines=a.lines + b.lines, nodes=a.nodes + b.nodes) for a, b in pairs]
    before, after = nightly(records, [10, 11])
    ((key, one),) = before.items()
    assert (one.content.kind, one.state) == ("fewer-gpus", "open")
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
    found = states(nightly(list(sim.simulate([idle], 24 * DAYS)), range(13, DAYS)), "idle")
    assert "withdrawn" not in found, found
    assert found[0] == "open"
    assert "applied" in found
    assert found[-1] == "open"


@pytest.mark.parametrize("day", [19, 20, 21, 22])
def test_a_weekend_withdraws_nothing(day: int) -> None:
    """Idle on working days, scaled to zero at weekends."""
    idle = sim.Load("old", lambda _: 0.0, lambda hour: 4 if hour // 24 % 7 < 5 else 0)
    assert states(nightly(list(sim.simulate([idle], 24 * DAYS)), [18, day]), "idle") == ["open", "open"]


def test_pods_without_an_owner_fill_no_memory_however_many_come_and_go() -> None:
    """Five bare pods an hour, each for an hour, beside a service: 1,200 workloads of which 100 are kept."""
    serve = sim.Load("serve", lambda _: 0.5, lambda _: 2)
    short = sim.Load("task", lambda _: 1.0, lambda _: 5, kind="Pod")
    records = [
        replace(one, lines=tuple(
            line._replace(workload=f"{line.pod}-{index}", pod=f"{line.pod}-{index}", uid=f"{line.uid}-{index}")
            if line.workload == "task" else line for line in one.lines
        ))
        for index, one in enumerate(sim.simulate([serve, short], 240))
    ]  # fmt: skip
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
    assert {f"task-{number}-239" for number in range(5)} | {"serve"} <= names, "those that ended longest ago went"
    (one,) = (own for key, own in few.workloads.items() if key.name == "serve")
    assert sum(one.held) == 480, "what goes on is kept whole"
    assert few.pools == all_.pools
