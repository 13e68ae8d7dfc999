"""Pods that wait: pools with queues of which it is known how many nodes more would have served them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from gpucost.features.recommendations.history import LookBack, Wait
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.rules.waiting_pods import PendingPod, pending_pods, remaining_wait
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations import simulated_queue as line
from tests.records import use_of

DAYS = 14
HOURS = 24 * DAYS
Waits = Mapping[datetime, Sequence[Wait]]


def advised(queues: Sequence[line.Queue], waits: Waits | None = None) -> dict[str, RecommendationContent]:
    """By pool."""
    loads = [load for one in queues for load in line.loads(one.jobs, one.pool, one.nodes, HOURS)]
    days: dict[datetime, list[Wait]] = {}
    for one in queues:
        for day, own in line.waits(one.jobs, one.pool, one.nodes, HOURS).items():
            days.setdefault(day, []).extend(own)
    look = LookBack("demo", sim.START, HOURS)
    look.add_waits(days if waits is None else waits)
    for record in sim.simulate(loads, HOURS):
        look.add(record.hour, map(use_of, record.lines), record.nodes, record.currency)
    found = review_cluster(look, sim.START + timedelta(hours=HOURS), {})
    return {one.subject.node_pool: one for one in found.recommendations if one.kind == "pending"}


@pytest.fixture(scope="module")
def found() -> list[tuple[line.Queue, RecommendationContent | None]]:
    """Each pool by itself: a node is nobody else's, and jobs of one namespace go where its jobs went."""
    queues = line.queues(1, 10, DAYS)
    return [(one, advised([one]).get(one.pool.name)) for one in queues]


def test_recall_and_precision_of_pending_are_095_at_least(
    found: list[tuple[line.Queue, RecommendationContent | None]],
) -> None:
    wanted = {one.pool.name for one, _ in found if one.truth}
    given = {one.pool.name for one, advice in found if advice is not None}
    assert len(wanted) >= 4
    assert len(wanted & given) / len(wanted) >= 0.95, wanted - given
    assert len(wanted & given) / len(given) >= 0.95, given - wanted


def test_the_nodes_are_those_with_which_the_simulated_queue_is_gone(
    found: list[tuple[line.Queue, RecommendationContent | None]],
) -> None:
    for one, advice in found:
        if advice is None:
            continue
        more = int(advice.recommended_gpus - advice.current_gpus)
        assert more == line.fewest_more(one.jobs, one.pool, one.nodes), one.pool.name
        before, after = (line.waited(one.jobs, one.pool, one.nodes + added) for added in (0, more))
        assert f"{before:,.1f} GPU-hours" in advice.summary
        left = float(advice.evidence.facts["replay"].split("with the nodes, ")[1].split(" of ")[0].replace(",", ""))
        assert left == pytest.approx(after, abs=0.1 * before), "what the re-simulated queue still waits"
        grown = replace(one.pool, keeps=one.nodes + more)
        costs = [
            sim.costs(list(sim.simulate(line.loads(one.jobs, pool, pool.keeps, HOURS), HOURS)))[0]
            for pool in (one.pool, grown)
        ]
        assert float(advice.saving.usd) == pytest.approx(costs[0] - costs[1], rel=0.1)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 8))
def test_recall_precision_and_nodes_on_many_queues(seed: int) -> None:
    many = [(one, advised([one]).get(one.pool.name)) for one in line.queues(seed, 40, DAYS)]
    test_recall_and_precision_of_pending_are_095_at_least(many)
    test_the_nodes_are_those_with_which_the_simulated_queue_is_gone(many)


def test_waiting_is_valued_beside_the_nodes_by_hand() -> None:
    """Two jobs of four hours come at nine every day to one GPU: the second waits four hours, at $3 an hour."""
    pool = sim.Pool("solo", keeps=1, price=Decimal(3))
    jobs = [line.Job(f"j{day}-{one}", 24 * day + 9, 4) for day in range(DAYS) for one in (1, 2)]
    one = advised([line.Queue(pool, 1, tuple(jobs), truth=True)])["solo"]
    assert one.summary == ("Add 1 g5.xlarge node to node pool solo: 14 pods waited 56.0 GPU-hours for nvidia.com/gpu")
    assert one.saving.usd == one.saving.low_usd == one.saving.high_usd == one.saving.cash_usd == -3 * 730
    facts = one.evidence.facts
    assert facts["longest wait"] == "4.0 hours (research-ns/j0-2-0)"
    assert facts["requested at once"] == "1 GPUs, mean of the busiest hour"
    assert facts["cost of waiting"].startswith("$365.00 a month at $3.000 per GPU-hour"), "a sixth of the month's hours"
    assert facts["nodes in hours of waiting only"] == "$365.00 a month"
    assert facts["waited by namespace"] == "research-ns 56.0"
    assert one.current_gpus == 1
    assert one.recommended_gpus == 2  # nodes
    assert one.confidence == "medium"


@pytest.mark.parametrize("days", [0, 6, 7])
def test_none_is_given_where_nobody_saw_who_waited(days: int) -> None:
    queue = next(one for one in line.queues(1, 5, DAYS) if one.truth)
    told = line.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    seen = {day: waits for number, (day, waits) in enumerate(sorted(told.items())) if number < days}
    assert bool(advised([queue], seen)) == (days == 7)
    assert not advised([queue], dict.fromkeys(told, ())), "seen, and nobody waited"


def test_what_no_pool_has_or_no_node_could_hold_gets_no_nodes() -> None:
    queue = next(one for one in line.queues(1, 5, DAYS) if one.truth)
    told = line.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    for change in ({"resource": "nvidia.com/mig-1g.10gb"}, {"units": queue.pool.gpus + 1}):
        assert not advised([queue], {day: [one._replace(**change) for one in own] for day, own in told.items()})


def test_pods_that_never_ran_hold_what_they_get_as_long_as_others_or_to_the_end() -> None:
    one = PendingPod("ns", "p", 1, 0.0, 5.0, 10.0)
    assert remaining_wait([one, replace(one, pod="q")], 1, 1) == 5, "the second waits as it did"
    assert remaining_wait([one, replace(one, pod="q", arrived=3.0, runs=1.0)], 2, 1) == 0
    assert remaining_wait([replace(one, runs=2.0), replace(one, pod="q")], 1, 1) == 2
    assert remaining_wait([replace(one, units=2)], 5, 1) == 10, "no node is large enough"


def test_more_nodes_never_leave_more_waiting() -> None:
    queue = line.queues(3, 2, DAYS)[1]
    begun = line.starts(queue.jobs, queue.pool, queue.nodes)
    own = [PendingPod("ns", job.name, job.gpus, job.comes, begun[job.name] - job.comes, job.runs) for job in queue.jobs]
    left = [remaining_wait(own, nodes, queue.pool.gpus) for nodes in range(1, 12)]
    assert all(one >= other for one, other in pairwise(left))
    assert left[-1] == 0


def test_a_pod_s_life_is_put_together_from_its_days_and_the_ledger() -> None:
    """By hand: it came at 23:45, was bound at 01:30, and held two GPUs for five hours of the look-back."""
    day = timedelta(days=1)
    wait = Wait("ns", "p-0", "p-0", "nvidia.com/gpu", 2, ((23, 0.25),))
    look = LookBack("demo", sim.START, 48)
    look.add_waits({sim.START: [wait], sim.START + day: [wait._replace(hours=((0, 1.0), (1, 0.5)))]})
    load = sim.Load("p", lambda _: 1.0, lambda _: 1, kind="Job", gpus=2, pool=sim.Pool("duo", gpus=2), life=(26, 31))
    for record in sim.simulate([load], 48):
        look.add(record.hour, map(use_of, record.lines), record.nodes, record.currency)
    assert pending_pods(look) == [("nvidia.com/gpu", PendingPod("ns", "p-0", 2, 23.75, 1.75, 5.0))]


def test_a_namespace_waits_for_the_pool_that_it_uses_and_a_new_one_for_the_largest() -> None:
    queues = []
    for name, jobs in (("small", 1), ("large", 3)):
        pool = sim.Pool(name, keeps=jobs)
        own = [
            line.Job(f"{name}-{day}-{n}", 24 * day + 9, 4, 1, f"{name}-ns") for day in range(DAYS) for n in range(jobs)
        ]
        queues.append(line.Queue(pool, jobs, tuple(own), truth=False))
    for namespace, pool_name in (("small-ns", "small"), ("large-ns", "large"), ("new-ns", "large")):
        told = {
            sim.START + timedelta(days=day): [Wait(namespace, f"x{day}", f"x{day}", "nvidia.com/gpu", 1, ((9, 1.0),))]
            for day in range(DAYS)
        }
        assert advised(queues, told).keys() == {pool_name}, namespace


def test_amounts_are_in_the_ledger_s_currency() -> None:
    queue = next(one for one in line.queues(1, 5, DAYS) if one.truth)
    look = LookBack("demo", sim.START, HOURS)
    look.add_waits(line.waits(queue.jobs, queue.pool, queue.nodes, HOURS))
    for record in sim.simulate(line.loads(queue.jobs, queue.pool, queue.nodes, HOURS), HOURS):
        look.add(record.hour, map(use_of, record.lines), record.nodes, "EUR")
    (one,) = [one for one in review_cluster(look, sim.START, {}).recommendations if one.kind == "pending"]
    assert one.currency == "EUR"
    assert one.evidence.facts["cost of waiting"].startswith("EUR ")
    assert "$" not in str(one.evidence.facts)
