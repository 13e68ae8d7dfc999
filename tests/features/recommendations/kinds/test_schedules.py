"""Off-hours schedules on simulated fleets: recall, precision and savings."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml
from msgspec import structs

from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 504
"""Three weeks: each hour of the week three times."""


def is_office(hour: int) -> bool:
    """Monday to Friday, 07:00 to 19:00 UTC; the simulation begins on a Monday."""
    return hour // 24 % 7 < 5 and 7 <= hour % 24 < 19


def loads(seed: int) -> list[sim.Load]:
    """Half of the workloads are idle at night, a quarter nearly, and a quarter is always busy."""
    rng = random.Random(seed)
    workloads = []
    for number in range(16):
        pods = rng.randint(1, 4)
        level = pods * rng.uniform(0.4, 0.6)
        pattern = ("office", "always", "nearly", "once")[number % 4]
        rest = {"office": 0.0, "always": level * 0.8, "nearly": 0.06 * pods, "once": 0.0}[pattern]

        def work(
            hour: int, *, level: float = level, rest: float = rest, pattern: str = pattern, pods: int = pods
        ) -> float:
            if pattern == "once" and (hour % 24 < 3 or hour % 24 >= 19) and hour < 168:
                return 0.5 * pods  # night shifts, in the first week alone
            return level if is_office(hour) else rest

        truth = "off-hours" if pattern in {"office", "once"} else ""
        workloads.append(sim.Load(f"{pattern}-{number}", work, lambda _, pods=pods: pods, expected_kind=truth))  # type: ignore[misc]
    return workloads


def recommended(workloads: list[sim.Load], hours: int = HOURS) -> list[RecommendationContent]:
    look_back = look_back_of(list(sim.simulate(workloads, hours)))
    return list(review_cluster(look_back, sim.START + timedelta(hours=hours), {}).recommendations)


@pytest.fixture(scope="module")
def reviewed() -> tuple[list[sim.Load], dict[str, RecommendationContent]]:
    workloads = loads(5)
    return workloads, {
        recommendation.subject.workload: recommendation
        for recommendation in recommended(workloads)
        if recommendation.kind == "off-hours"
    }


@pytest.mark.tools  # seconds
def test_recall_and_precision_of_off_hours(reviewed: tuple[list[sim.Load], dict[str, RecommendationContent]]) -> None:
    workloads, schedules = reviewed
    expected = {load.name for load in workloads if load.expected_kind}
    assert len(expected) == 8
    assert len(expected & schedules.keys()) / len(expected) >= 0.95, expected - schedules.keys()
    assert len(expected & schedules.keys()) / len(schedules) >= 0.95, schedules.keys() - expected


@pytest.mark.tools  # seconds
def test_savings_match_the_fleet_simulated_with_the_schedule(
    reviewed: tuple[list[sim.Load], dict[str, RecommendationContent]],
) -> None:
    workloads, schedules = reviewed
    for load in workloads:
        if load.name not in schedules:
            continue
        recommendation = schedules[load.name]

        def is_quiet(hour: int, load: sim.Load = load) -> bool:
            return all(load.work(week * 168 + hour % 168) == 0 for week in range(3))

        stopped = replace(load, pods=lambda hour, load=load, quiet=is_quiet: 0 if quiet(hour) else load.pods(hour))  # type: ignore[misc]
        before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (load, stopped))
        assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)


@pytest.mark.tools  # seconds
def test_schedule_runs_in_the_needed_hours_only(
    reviewed: tuple[list[sim.Load], dict[str, RecommendationContent]],
) -> None:
    recommendation = next(recommendation for name, recommendation in reviewed[1].items() if name.startswith("office"))
    document = yaml.safe_load(recommendation.patch)
    running_hours = set()
    for trigger in document["spec"]["triggers"]:
        (_, first, _, _, begin), (_, last, _, _, end) = (trigger["metadata"][name].split() for name in ("start", "end"))
        hour = (int(begin) - 1) % 7 * 24 + int(first)  # cron's Sunday is 0
        while hour % 168 != (int(end) - 1) % 7 * 24 + int(last):
            running_hours.add(hour % 168)
            hour += 1
    assert running_hours == {hour for hour in range(168) if is_office(hour)}
    assert "Mon 07:00 to Mon 19:00" in recommendation.evidence.facts["needed (UTC)"]


def test_rollout_does_not_double_the_replicas_of_the_schedule() -> None:
    """Three pods are each replaced in the middle of an hour: six are seen, three at a time."""
    workloads = [sim.Load("office", lambda hour: 1.5 if is_office(hour) else 0.0, lambda _: 3)]
    records = list(sim.simulate(workloads, HOURS))
    rollout = records[200]
    lines = [
        line._replace(
            uid=f"{line.uid}{suffix}",
            allocated_gpu_hours=line.allocated_gpu_hours // 2,
            effective_gpu_hours=None if line.effective_gpu_hours is None else line.effective_gpu_hours // 2,
            allocated_usd=None if line.allocated_usd is None else line.allocated_usd // 2,
        )
        for line in rollout.lines
        for suffix in "ab"
    ]
    records[200] = structs.replace(rollout, lines=tuple(lines))
    (recommendation,) = review_cluster(look_back_of(records), sim.START + timedelta(hours=HOURS), {}).recommendations
    assert recommendation.kind == "off-hours"
    triggers = yaml.safe_load(recommendation.patch)["spec"]["triggers"]
    assert {trigger["metadata"]["desiredReplicas"] for trigger in triggers} == {"3"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 16))
def test_recall_precision_and_savings_on_many_fleets(seed: int) -> None:
    workloads = loads(seed)
    schedules = {
        recommendation.subject.workload: recommendation
        for recommendation in recommended(workloads)
        if recommendation.kind == "off-hours"
    }
    test_recall_and_precision_of_off_hours((workloads, schedules))
    test_savings_match_the_fleet_simulated_with_the_schedule((workloads, schedules))


@pytest.mark.parametrize(
    ("change", "hours"),
    [({}, 216), ({"kind": "Job"}, HOURS), ({"observed_share": 0.5}, HOURS), ({"source": "node"}, HOURS)],
    ids=["nine days", "a job", "half observed", "node average"],
)
def test_no_schedule_without_three_weeks_of_observed_pod_utilization(change: dict[str, object], hours: int) -> None:
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1)
    assert [recommendation.kind for recommendation in recommended([load], HOURS)] == ["off-hours"]
    assert not recommended([replace(load, **change)], hours)  # type: ignore[arg-type]


def test_hours_that_are_mostly_unobserved_are_not_idle() -> None:
    """On Mondays from 0 to 6, a tenth of each hour is observed, without use: the rest may have been busy."""
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1)
    records = list(sim.simulate([load], HOURS))
    for index, record in enumerate(records):
        if index % 168 < 6:
            unmeasured = [
                line._replace(unmeasured_gpu_hours=line.allocated_gpu_hours * 9 // 10) for line in record.lines
            ]
            records[index] = structs.replace(record, lines=tuple(unmeasured))
    (recommendation,) = review_cluster(look_back_of(records), sim.START + timedelta(hours=HOURS), {}).recommendations
    assert recommendation.evidence.facts["needed (UTC)"].startswith("Mon 00:00 to Mon 19:00, Tue 07:00 to Tue 19:00")


@pytest.mark.parametrize(("weeks_unobserved", "is_idle"), [(1, True), (HOURS // 168 - 1, False)])
def test_hours_of_the_week_are_idle_if_they_were_idle_each_time_they_were_observed(
    weeks_unobserved: int, *, is_idle: bool
) -> None:
    """The exporter is down on Saturdays from 3 to 4, in one week or in all weeks but one."""
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1)
    records = list(sim.simulate([load], HOURS))
    for index in range(5 * 24 + 3, weeks_unobserved * 168, 168):
        lines = [line._replace(unmeasured_gpu_hours=line.allocated_gpu_hours) for line in records[index].lines]
        records[index] = structs.replace(records[index], lines=tuple(lines))
    (recommendation,) = review_cluster(look_back_of(records), sim.START + timedelta(hours=HOURS), {}).recommendations
    schedule = recommendation.evidence.facts["needed (UTC)"]
    assert ("Sat 03:00" in schedule) != is_idle
    assert ("(no figures)" in schedule) != is_idle


def test_hours_of_the_week_without_figures_are_named() -> None:
    """Saturdays from 3 to 4 have no figures in any week: the schedule runs the workload then, and says why."""
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1)
    records = [
        structs.replace(record, status="incomplete") if index % 168 == 5 * 24 + 3 else record
        for index, record in enumerate(sim.simulate([load], HOURS))
    ]
    (recommendation,) = review_cluster(look_back_of(records), sim.START + timedelta(hours=HOURS), {}).recommendations
    schedule = recommendation.evidence.facts["needed (UTC)"]
    assert schedule.endswith("Fri 07:00 to Fri 19:00, Sat 03:00 to Sat 04:00 (no figures)")
    assert schedule.count("(no figures)") == 1


def test_workloads_that_stop_by_themselves_need_no_schedule() -> None:
    """It is gone at night, except for half an hour after work."""
    load = sim.Load("stops", lambda hour: 0.5 if is_office(hour) else 0.0, lambda hour: int(is_office(hour - 1)))
    assert not recommended([load])
    lingering = replace(load, pods=lambda hour: int(is_office(hour - 1) or is_office(hour - 4)))
    assert [recommendation.kind for recommendation in recommended([lingering])] == ["off-hours"]


@pytest.mark.parametrize(
    ("kind", "risk"), [("Deployment", "Requests outside"), ("StatefulSet", "What is only in its memory is lost")]
)
def test_risk_of_a_schedule_depends_on_the_kind_of_workload(kind: str, risk: str) -> None:
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1, kind=kind)
    (recommendation,) = recommended([load])
    assert recommendation.risk_note.startswith(risk)


def test_larger_saving_of_fewer_gpus_and_schedule_is_recommended() -> None:
    few = sim.Load("few", lambda hour: 0.3 if is_office(hour) else 0.0, lambda _: 8)
    short = sim.Load("short", lambda hour: 1.0 if is_office(hour) else 0.0, lambda _: 4)
    kinds = {recommendation.subject.workload: recommendation.kind for recommendation in recommended([few, short])}
    assert kinds == {"few": "fewer-gpus", "short": "off-hours"}


def test_schedule_follows_the_time_zone_across_the_end_of_summer_time() -> None:
    """Berlin's office hours, 9 to 19, from 19 October 2026 on: summer time ends on the 25th."""
    zone, start = ZoneInfo("Europe/Berlin"), datetime(2026, 10, 19, tzinfo=UTC)

    def is_local_office(hour: int) -> bool:
        local = (start + timedelta(hours=hour)).astimezone(zone)
        return local.weekday() < 5 and 9 <= local.hour < 19

    load = sim.Load("chat", lambda hour: 1.0 * is_local_office(hour), lambda hour: 2 if is_local_office(hour) else 3)
    shift = sim.START - start
    look_back = look_back_of(
        [structs.replace(record, hour=record.hour - shift) for record in sim.simulate([load], HOURS)]
    )
    (in_utc,) = review_cluster(look_back, start, {}).recommendations
    look_back.time_zone = zone
    (local,) = review_cluster(look_back, start, {}).recommendations
    assert "unless alerts.time_zone in the settings names the time zone" in in_utc.risk_note
    assert "UTC" not in local.risk_note
    assert local.risk_note == "Requests outside the schedule fail, because only the schedule starts the workload."
    assert local.evidence.facts["needed (Europe/Berlin)"].startswith("Mon 09:00 to Mon 19:00, Tue 09:00 to Tue 19:00")
    triggers = [trigger["metadata"] for trigger in yaml.safe_load(local.patch)["spec"]["triggers"]]
    assert triggers[0] == {
        "timezone": "Europe/Berlin",
        "start": "0 9 * * 1",
        "end": "0 19 * * 1",
        "desiredReplicas": "3",
    }
    assert {trigger["timezone"] for trigger in triggers} == {"Europe/Berlin"}
    stopped = replace(load, pods=lambda hour: 2 if is_local_office(hour) else 0)
    before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (load, stopped))
    assert float(local.saving.usd) == pytest.approx(before - after, rel=1e-3)
    assert in_utc.saving.usd < local.saving.usd, "in UTC the hour between the two clocks never seems idle"


def test_schedule_follows_a_time_zone_with_a_30_minute_offset() -> None:
    """07:00 UTC is 12:30 in India."""
    look_back = look_back_of(
        list(sim.simulate([sim.Load("c", lambda hour: 1.0 * is_office(hour), lambda _: 2)], HOURS))
    )
    look_back.time_zone = ZoneInfo("Asia/Kolkata")
    (recommendation,) = review_cluster(look_back, sim.START, {}).recommendations
    (first, *_) = yaml.safe_load(recommendation.patch)["spec"]["triggers"]
    assert (first["metadata"]["start"], first["metadata"]["end"]) == ("30 12 * * 1", "30 0 * * 2")
    assert recommendation.evidence.facts["needed (Asia/Kolkata)"].startswith("Mon 12:30 to Tue 00:30")
