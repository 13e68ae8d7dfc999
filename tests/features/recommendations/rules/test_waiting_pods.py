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


def recommended(queues: Sequence[line.Queue], waits: Waits | None = None) -> dict[str, RecommendationContent]:
    """By pool."""
    loads = [load for queue in queues for load in line.loads(queue.jobs, queue.pool, queue.nodes, HOURS)]
    days: dict[datetime, list[Wait]] = {}
    for queue in queues:
        for day, own in line.waits(queue.jobs, queue.pool, queue.nodes, HOURS).items():
            days.setdefault(day, []).extend(own)
    look = LookBack("demo", sim.START, HOURS)
    look.add_waits(days if waits is None else waits)
    for record in sim.simulate(loads, HOURS):
        look.add(record.hour, map(use_of, record.lines), record.nodes, record.currency)
    found = review_cluster(look, sim.START + timedelta(hours=HOURS), {})
    return {
        recommendation.subject.node_pool: recommendation
        for recommendation in found.recommendations
        if recommendation.kind == "pending"
    }


@pytest.fixture(scope="module")
def found() -> list[tuple[line.Queue, RecommendationContent | None]]:
    """Each pool by itself: a node is nobody else's, and jobs of one namespace go where its jobs went."""
    queues = line.queues(1, 10, DAYS)
    return [(queue, recommended([queue]).get(queue.pool.name)) for queue in queues]


def test_recall_and_precision_of_pending_are_095_at_least(
    found: list[tuple[line.Queue, RecommendationContent | None]],
) -> None:
    wanted = {recommendation.pool.name for recommendation, _ in found if recommendation.truth}
    given = {recommendation.pool.name for recommendation, content in found if content is not None}
    assert len(wanted) >= 4
    assert len(wanted & given) / len(wanted) >= 0.95, wanted - given
    assert len(wanted & given) / len(given) >= 0.95, given - wanted


def test_the_nodes_are_those_with_which_the_simulated_queue_is_gone(
    found: list[tuple[line.Queue, RecommendationContent | None]],
) -> None:
    for recommendation, content in found:
        if content is None:
            continue
        more = int(content.recommended_gpus - content.current_gpus)
        assert more == line.fewest_more(recommendation.jobs, recommendation.pool, recommendation.nodes), (
            recommendation.pool.name
        )
        before, after = (
            line.waited(recommendation.jobs, recommendation.pool, recommendation.nodes + added) for added in (0, more)
        )
        assert f"{before:,.1f} GPU-hours" in content.summary
        left = float(content.evidence.facts["replay"].split("with the nodes, ")[1].split(" of ")[0].replace(",", ""))
        assert left == pytest.approx(after, abs=0.1 * before), "what the re-simulated queue still waits"
        grown = replace(recommendation.pool, keeps=recommendation.nodes + more)
        costs = [
            sim.costs(list(sim.simulate(line.loads(recommendation.jobs, pool, pool.keeps, HOURS), HOURS)))[0]
            for pool in (recommendation.pool, grown)
        ]
        assert float(content.saving.usd) == pytest.approx(costs[0] - costs[1], rel=0.1)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 8))
def test_recall_precision_and_nodes_on_many_queues(seed: int) -> None:
    many = [(queue, recommended([queue]).get(queue.pool.name)) for queue in line.queues(seed, 40, DAYS)]
    test_recall_and_precision_of_pending_are_095_at_least(many)
    test_the_nodes_are_those_with_which_the_simulated_queue_is_gone(many)


def test_waiting_is_valued_beside_the_nodes_by_hand() -> None:
    """Two jobs of four hours come at nine every day to one GPU: the second waits four hours, at $3 an hour."""
    pool = sim.Pool("solo", keeps=1, price=Decimal(3))
    jobs = [line.Job(f"j{day}-{recommendation}", 24 * day + 9, 4) for day in range(DAYS) for recommendation in (1, 2)]
    recommendation = recommended([line.Queue(pool, 1, tuple(jobs), truth=True)])["solo"]
    assert recommendation.summary == (
        "Add 1 g5.xlarge node to node pool solo: 14 pods waited 56.0 GPU-hours for nvidia.com/gpu"
    )
    assert (
        recommendation.saving.usd
        == recommendation.saving.low_usd
        == recommendation.saving.high_usd
        == recommendation.saving.cash_usd
        == -3 * 730
    )
    facts = recommendation.evidence.facts
    assert facts["longest wait"] == "4.0 hours (research-ns/j0-2-0)"
    assert facts["requested at once"] == "1 GPUs, mean of the busiest hour"
    assert facts["cost of waiting"].startswith("$365.00 a month at $3.000 per GPU-hour"), "a sixth of the month's hours"
    assert facts["nodes in hours of waiting only"] == "$365.00 a month"
    assert facts["waited by namespace"] == "research-ns 56.0"
    assert recommendation.current_gpus == 1
    assert recommendation.recommended_gpus == 2  # nodes
    assert recommendation.confidence == "medium"


@pytest.mark.parametrize("days", [0, 6, 7])
def test_no_recommendation_without_metrics_of_waiting_pods(days: int) -> None:
    queue = next(queue for queue in line.queues(1, 5, DAYS) if queue.truth)
    message = line.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    seen = {day: waits for number, (day, waits) in enumerate(sorted(message.items())) if number < days}
    assert bool(recommended([queue], seen)) == (days == 7)
    assert not recommended([queue], dict.fromkeys(message, ())), "seen, and nobody waited"


def test_pods_that_fit_no_pool_or_node_get_no_recommendation() -> None:
    queue = next(queue for queue in line.queues(1, 5, DAYS) if queue.truth)
    message = line.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    for change in ({"resource": "nvidia.com/mig-1g.10gb"}, {"units": queue.pool.gpus + 1}):
        assert not recommended(
            [queue],
            {day: [load._replace(**change) for load in own] for day, own in message.items()},
        )


def test_pods_that_never_ran_run_as_long_as_others_or_to_the_end() -> None:
    recommendation = PendingPod("ns", "p", 1, 0.0, 5.0, 10.0)
    assert remaining_wait([recommendation, replace(recommendation, pod="q")], 1, 1) == 5, "the second waits as it did"
    assert remaining_wait([recommendation, replace(recommendation, pod="q", arrived=3.0, runs=1.0)], 2, 1) == 0
    assert remaining_wait([replace(recommendation, runs=2.0), replace(recommendation, pod="q")], 1, 1) == 2
    assert remaining_wait([replace(recommendation, units=2)], 5, 1) == 10, "no node is large enough"


def test_more_nodes_never_leave_more_waiting() -> None:
    queue = line.queues(3, 2, DAYS)[1]
    begun = line.starts(queue.jobs, queue.pool, queue.nodes)
    own = [PendingPod("ns", job.name, job.gpus, job.comes, begun[job.name] - job.comes, job.runs) for job in queue.jobs]
    left = [remaining_wait(own, nodes, queue.pool.gpus) for nodes in range(1, 12)]
    assert all(recommendation >= other for recommendation, other in pairwise(left))
    assert left[-1] == 0


def test_pending_pod_combines_its_days_and_the_ledger() -> None:
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
        message = {
            sim.START + timedelta(days=day): [Wait(namespace, f"x{day}", f"x{day}", "nvidia.com/gpu", 1, ((9, 1.0),))]
            for day in range(DAYS)
        }
        assert recommended(queues, message).keys() == {pool_name}, namespace


def test_amounts_are_in_the_currency_of_the_ledger() -> None:
    queue = next(queue for queue in line.queues(1, 5, DAYS) if queue.truth)
    look = LookBack("demo", sim.START, HOURS)
    look.add_waits(line.waits(queue.jobs, queue.pool, queue.nodes, HOURS))
    for record in sim.simulate(line.loads(queue.jobs, queue.pool, queue.nodes, HOURS), HOURS):
        look.add(record.hour, map(use_of, record.lines), record.nodes, "EUR")
    (recommendation,) = [
        recommendation
        for recommendation in review_cluster(look, sim.START, {}).recommendations
        if recommendation.kind == "pending"
    ]
    assert recommendation.currency == "EUR"
    assert recommendation.evidence.facts["cost of waiting"].startswith("EUR ")
    assert "$" not in str(recommendation.evidence.facts)
