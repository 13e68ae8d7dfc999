"""Off-hours on simulated fleets: what could stop, what could not, and what it saves."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import yaml

from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

HOURS = 504
"""Three weeks: each hour of the week three times."""


def is_office(hour: int) -> bool:
    """Monday to Friday, 07:00 to 19:00 UTC; the simulation begins on a Monday."""
    return hour // 24 % 7 < 5 and 7 <= hour % 24 < 19


def loads(seed: int) -> list[sim.Load]:
    """Half of them stop being used at night, one in ten only nearly; some are small, some are young."""
    chance = random.Random(seed)
    found = []
    for number in range(16):
        pods = chance.randint(1, 4)
        level = pods * chance.uniform(0.4, 0.6)
        sort = ("office", "always", "nearly", "once")[number % 4]
        rest = {"office": 0.0, "always": level * 0.8, "nearly": 0.06 * pods, "once": 0.0}[sort]

        def work(hour: int, *, level: float = level, rest: float = rest, sort: str = sort, pods: int = pods) -> float:
            if sort == "once" and (hour % 24 < 3 or hour % 24 >= 19) and hour < 168:
                return 0.5 * pods  # night shifts, in the first week alone
            return level if is_office(hour) else rest

        truth = "off-hours" if sort in {"office", "once"} else ""
        found.append(sim.Load(f"{sort}-{number}", work, lambda _, pods=pods: pods, truth=truth))  # type: ignore[misc]
    return found


def recommended(own: list[sim.Load], hours: int = HOURS) -> list[RecommendationContent]:
    look = look_at(list(sim.simulate(own, hours)))
    return list(review_cluster(look, sim.START + timedelta(hours=hours), {}).recommendations)


@pytest.fixture(scope="module")
def found() -> tuple[list[sim.Load], dict[str, RecommendationContent]]:
    own = loads(5)
    return own, {
        recommendation.subject.workload: recommendation
        for recommendation in recommended(own)
        if recommendation.kind == "off-hours"
    }


def test_recall_and_precision_of_off_hours(found: tuple[list[sim.Load], dict[str, RecommendationContent]]) -> None:
    own, given = found
    wanted = {load.name for load in own if load.truth}
    assert len(wanted) == 8
    assert len(wanted & given.keys()) / len(wanted) >= 0.95, wanted - given.keys()
    assert len(wanted & given.keys()) / len(given) >= 0.95, given.keys() - wanted


def test_claimed_savings_are_those_of_the_fleet_that_stops(
    found: tuple[list[sim.Load], dict[str, RecommendationContent]],
) -> None:
    own, given = found
    for load in own:
        if load.name not in given:
            continue
        recommendation = given[load.name]

        def is_quiet(hour: int, load: sim.Load = load) -> bool:
            return all(load.work(week * 168 + hour % 168) == 0 for week in range(3))

        stopped = replace(load, pods=lambda hour, load=load, quiet=is_quiet: 0 if quiet(hour) else load.pods(hour))  # type: ignore[misc]
        before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (load, stopped))
        assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)


def test_the_schedule_runs_when_it_is_needed_and_stops_when_not(
    found: tuple[list[sim.Load], dict[str, RecommendationContent]],
) -> None:
    recommendation = next(recommendation for name, recommendation in found[1].items() if name.startswith("office"))
    document = yaml.safe_load(recommendation.patch)
    on = set()
    for trigger in document["spec"]["triggers"]:
        (_, first, _, _, begin), (_, last, _, _, end) = (trigger["metadata"][name].split() for name in ("start", "end"))
        hour = (int(begin) - 1) % 7 * 24 + int(first)  # cron's Sunday is 0
        while hour % 168 != (int(end) - 1) % 7 * 24 + int(last):
            on.add(hour % 168)
            hour += 1
    assert on == {hour for hour in range(168) if is_office(hour)}
    assert "Mon 07:00 to Mon 19:00" in recommendation.evidence.facts["needed (UTC)"]


def test_a_rollout_does_not_double_the_replicas_of_the_schedule() -> None:
    """In one hour each of three pods is replaced half way: six were seen, three at once."""
    own = [sim.Load("office", lambda hour: 1.5 if is_office(hour) else 0.0, lambda _: 3)]
    records = list(sim.simulate(own, HOURS))
    rollout = records[200]
    lines = [
        line._replace(uid=f"{line.uid}{which}", allocated_gpu_hours=line.allocated_gpu_hours / 2,
            effective_gpu_hours=None if line.effective_gpu_hours is None else line.effective_gpu_hours / 2,
            allocated_usd=None if line.allocated_usd is None else line.allocated_usd / 2,
        )
        for line in rollout.lines for which in "ab"
    ]  # fmt: skip
    records[200] = replace(rollout, lines=tuple(lines))
    (recommendation,) = review_cluster(look_at(records), sim.START + timedelta(hours=HOURS), {}).recommendations
    assert recommendation.kind == "off-hours"
    triggers = yaml.safe_load(recommendation.patch)["spec"]["triggers"]
    assert {trigger["metadata"]["desiredReplicas"] for trigger in triggers} == {"3"}


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(6, 16))
def test_recall_precision_and_savings_on_many_fleets(seed: int) -> None:
    own = loads(seed)
    given = {
        recommendation.subject.workload: recommendation
        for recommendation in recommended(own)
        if recommendation.kind == "off-hours"
    }
    test_recall_and_precision_of_off_hours((own, given))
    test_claimed_savings_are_those_of_the_fleet_that_stops((own, given))


@pytest.mark.parametrize(
    ("change", "hours"),
    [({}, 216), ({"kind": "Job"}, HOURS), ({"seen": 0.5}, HOURS), ({"source": "node"}, HOURS)],
    ids=["nine days", "a job", "half seen", "guessed"],
)
def test_no_schedule_where_the_pattern_is_not_known(change: dict[str, object], hours: int) -> None:
    load = sim.Load("office", lambda hour: 0.5 if is_office(hour) else 0.0, lambda _: 1)
    assert [recommendation.kind for recommendation in recommended([load], HOURS)] == ["off-hours"]
    assert not recommended([replace(load, **change)], hours)  # type: ignore[arg-type]


def test_larger_saving_of_fewer_gpus_and_schedule_is_recommended() -> None:
    few = sim.Load("few", lambda hour: 0.3 if is_office(hour) else 0.0, lambda _: 8)
    short = sim.Load("short", lambda hour: 1.0 if is_office(hour) else 0.0, lambda _: 4)
    kinds = {recommendation.subject.workload: recommendation.kind for recommendation in recommended([few, short])}
    assert kinds == {"few": "fewer-gpus", "short": "off-hours"}


def test_a_schedule_follows_the_clock_of_the_settings_zone_over_the_end_of_summer_time() -> None:
    """Berlin's office hours, 9 to 19, from 19 October 2026 on: summer time ends on the 25th."""
    zone, start = ZoneInfo("Europe/Berlin"), datetime(2026, 10, 19, tzinfo=UTC)

    def is_office_there(hour: int) -> bool:
        local = (start + timedelta(hours=hour)).astimezone(zone)
        return local.weekday() < 5 and 9 <= local.hour < 19

    recommendation = sim.Load(
        "chat", lambda hour: 1.0 * is_office_there(hour), lambda hour: 2 if is_office_there(hour) else 3
    )
    shift = sim.START - start
    look = look_at([replace(record, hour=record.hour - shift) for record in sim.simulate([recommendation], HOURS)])
    (in_utc,) = review_cluster(look, start, {}).recommendations
    look.time_zone = zone
    (local,) = review_cluster(look, start, {}).recommendations
    assert "unless alerts.time_zone in the settings names the time zone" in in_utc.risk_note
    assert "UTC" not in local.risk_note
    assert local.evidence.facts["needed (Europe/Berlin)"].startswith("Mon 09:00 to Mon 19:00, Tue 09:00 to Tue 19:00")
    triggers = [trigger["metadata"] for trigger in yaml.safe_load(local.patch)["spec"]["triggers"]]
    assert triggers[0] == {
        "timezone": "Europe/Berlin", "start": "0 9 * * 1", "end": "0 19 * * 1", "desiredReplicas": "3"
    }  # fmt: skip
    assert {trigger["timezone"] for trigger in triggers} == {"Europe/Berlin"}
    stopped = replace(recommendation, pods=lambda hour: 2 if is_office_there(hour) else 0)
    before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (recommendation, stopped))
    assert float(local.saving.usd) == pytest.approx(before - after, rel=1e-3)
    assert in_utc.saving.usd < local.saving.usd, "in UTC the hour between the two clocks never seems idle"


def test_a_zone_of_half_hours_starts_at_half_past() -> None:
    """07:00 UTC is 12:30 in India."""
    look = look_at(list(sim.simulate([sim.Load("c", lambda hour: 1.0 * is_office(hour), lambda _: 2)], HOURS)))
    look.time_zone = ZoneInfo("Asia/Kolkata")
    (recommendation,) = review_cluster(look, sim.START, {}).recommendations
    (first, *_) = yaml.safe_load(recommendation.patch)["spec"]["triggers"]
    assert (first["metadata"]["start"], first["metadata"]["end"]) == ("30 12 * * 1", "30 0 * * 2")
    assert recommendation.evidence.facts["needed (Asia/Kolkata)"].startswith("Mon 12:30 to Tue 00:30")
