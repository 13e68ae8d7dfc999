"""Recommendations for waiting pods, on pools whose required number of extra nodes is known from a simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from gpucost.features.recommendations.history import LookBack, PodWait
from gpucost.features.recommendations.kinds.pending import PendingPod, pending_pods, remaining_wait
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations import simulated_queue
from tests.records import compact_line_of

DAYS = 14
HOURS = 24 * DAYS
Waits = Mapping[datetime, Sequence[PodWait]]


def recommended(
    queues: Sequence[simulated_queue.Queue],
    waits: Waits | None = None,
    *,
    list_prices: Mapping[str, float] | None = None,
    currency: str = "USD",
) -> dict[str, RecommendationContent]:
    """Recommendations by node pool."""
    loads = [load for queue in queues for load in simulated_queue.loads(queue.jobs, queue.pool, queue.nodes, HOURS)]
    days: dict[datetime, list[PodWait]] = {}
    for queue in queues:
        for day, day_waits in simulated_queue.waits(queue.jobs, queue.pool, queue.nodes, HOURS).items():
            days.setdefault(day, []).extend(day_waits)
    look_back = LookBack("demo", sim.START, HOURS)
    look_back.add_waits(days if waits is None else waits)
    look_back.list_prices.update(list_prices or {})
    for record in sim.simulate(loads, HOURS):
        look_back.add_hour(record.hour, map(compact_line_of, record.lines), record.nodes, currency)
    review = review_cluster(look_back, sim.START + timedelta(hours=HOURS), {})
    return {
        recommendation.subject.node_pool: recommendation
        for recommendation in review.recommendations
        if recommendation.kind == "pending"
    }


@pytest.fixture(scope="module")
def reviewed_queues() -> list[tuple[simulated_queue.Queue, RecommendationContent | None]]:
    """Each pool is reviewed alone, because jobs are assigned to the pool that their namespace used before."""
    queues = simulated_queue.queues(1, 10, DAYS)
    return [(queue, recommended([queue]).get(queue.pool.name)) for queue in queues]


@pytest.mark.tools  # seconds
def test_recall_and_precision_of_pending_are_095_at_least(
    reviewed_queues: list[tuple[simulated_queue.Queue, RecommendationContent | None]],
) -> None:
    expected = {queue.pool.name for queue, _ in reviewed_queues if queue.needs_nodes}
    reported = {queue.pool.name for queue, recommendation in reviewed_queues if recommendation is not None}
    assert len(expected) >= 4
    assert len(expected & reported) / len(expected) >= 0.95, expected - reported
    assert len(expected & reported) / len(reported) >= 0.95, reported - expected


@pytest.mark.tools  # seconds
def test_recommended_nodes_remove_the_waiting_in_the_simulation(
    reviewed_queues: list[tuple[simulated_queue.Queue, RecommendationContent | None]],
) -> None:
    for queue, recommendation in reviewed_queues:
        if recommendation is None:
            continue
        extra_nodes = int(recommendation.recommended_gpus - recommendation.current_gpus)
        assert extra_nodes == simulated_queue.fewest_extra_nodes(queue.jobs, queue.pool, queue.nodes), queue.pool.name
        before, after = (
            simulated_queue.waiting_gpu_hours(queue.jobs, queue.pool, queue.nodes + extra) for extra in (0, extra_nodes)
        )
        assert f"{before:,.1f} GPU-hours" in recommendation.summary
        remaining = float(
            recommendation.evidence.facts["replay"].split("with the nodes, ")[1].split(" of ")[0].replace(",", "")
        )
        assert remaining == pytest.approx(after, abs=0.1 * before), "remaining wait in the simulation with more nodes"
        larger_pool = replace(queue.pool, min_nodes=queue.nodes + extra_nodes)
        costs = [
            sim.costs(list(sim.simulate(simulated_queue.loads(queue.jobs, pool, pool.min_nodes, HOURS), HOURS)))[0]
            for pool in (queue.pool, larger_pool)
        ]
        assert float(recommendation.saving.usd) == pytest.approx(costs[0] - costs[1], rel=0.1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3, 8))
def test_recall_precision_and_nodes_on_many_queues(seed: int) -> None:
    many = [(queue, recommended([queue]).get(queue.pool.name)) for queue in simulated_queue.queues(seed, 40, DAYS)]
    test_recall_and_precision_of_pending_are_095_at_least(many)
    test_recommended_nodes_remove_the_waiting_in_the_simulation(many)


def test_evidence_has_the_value_of_the_waiting_and_the_cost_of_the_nodes() -> None:
    """By hand: two jobs of four hours arrive at nine every day. The second waits four hours, at $3 an hour."""
    pool = sim.Pool("solo", min_nodes=1, price=Decimal(3))
    jobs = [simulated_queue.Job(f"j{day}-{number}", 24 * day + 9, 4) for day in range(DAYS) for number in (1, 2)]
    recommendation = recommended([simulated_queue.Queue(pool, 1, tuple(jobs), needs_nodes=True)])["solo"]
    assert recommendation.summary == (
        "Add 1 g5.xlarge node to node pool solo: 14 pods waited 56.0 GPU-hours for nvidia.com/gpu, worth $365 a month, "
        "less than the nodes cost"
    )
    assert recommendation.risk == "high"
    assert recommendation.risk_note.startswith("The nodes cost more than the waiting is worth")
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
    assert facts["value of the waiting"].startswith("$365.00 a month: the waited GPU-hours at $3.000"), (
        "a sixth of the month's hours"
    )
    assert facts["price of a node"] == "$3.000 an hour, as the pool's nodes"
    assert facts["nodes in hours of waiting only"] == "$365.00 a month"
    assert facts["waited by namespace"] == "research-ns 56.0"
    assert recommendation.current_gpus == 1
    assert recommendation.recommended_gpus == 2  # nodes
    assert recommendation.confidence == "medium"


@pytest.mark.parametrize(
    ("capacity_type", "list_price", "usd"),
    [
        ("reserved", 5.0, 5.0),
        ("capacity-block", 5.0, 5.0),
        ("reserved", 2.0, 3.0),
        ("reserved", None, 3.0),
        ("on-demand", 5.0, 3.0),
        ("spot", 5.0, 3.0),
    ],
)
def test_nodes_beyond_a_reservation_are_on_demand(capacity_type: str, list_price: float | None, usd: float) -> None:
    """The pool's node costs $3. The wait is valued at that rate, whatever more nodes cost."""
    pool = sim.Pool("solo", min_nodes=1, price=Decimal(3), capacity_type=capacity_type)
    jobs = [simulated_queue.Job(f"j{day}-{number}", 24 * day + 9, 4) for day in range(DAYS) for number in (1, 2)]
    queue = simulated_queue.Queue(pool, 1, tuple(jobs), needs_nodes=True)
    prices = {} if list_price is None else {"g5.xlarge": list_price}
    recommendation = recommended([queue], list_prices=prices)["solo"]
    assert float(recommendation.saving.usd) == pytest.approx(-usd * 730)
    facts = recommendation.evidence.facts
    assert f"{usd:.3f} an hour, " + ("on demand" if usd == list_price else "as the pool") in facts["price of a node"]
    assert f"{usd * 365 / 3:,.2f} a month" in facts["nodes in hours of waiting only"]
    assert "365.00 a month" in facts["value of the waiting"]
    if usd == list_price:
        assert recommendation.saving.cash_usd == recommendation.saving.list_usd == recommendation.saving.usd


@pytest.mark.parametrize("days", [0, 6, 7])
def test_no_recommendation_without_metrics_of_waiting_pods(days: int) -> None:
    queue = next(queue for queue in simulated_queue.queues(1, 5, DAYS) if queue.needs_nodes)
    waits = simulated_queue.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    observed = {day: day_waits for number, (day, day_waits) in enumerate(sorted(waits.items())) if number < days}
    assert bool(recommended([queue], observed)) == (days == 7)
    assert not recommended([queue], dict.fromkeys(waits, ())), "observed, but no pod waited"


def test_pods_that_fit_no_pool_or_node_get_no_recommendation() -> None:
    queue = next(queue for queue in simulated_queue.queues(1, 5, DAYS) if queue.needs_nodes)
    waits = simulated_queue.waits(queue.jobs, queue.pool, queue.nodes, HOURS)
    for change in ({"resource": "nvidia.com/mig-1g.10gb"}, {"units": queue.pool.gpus + 1}):
        assert not recommended(
            [queue], {day: [wait._replace(**change) for wait in day_waits] for day, day_waits in waits.items()}
        )


def test_replay_of_waiting_pods_by_hand() -> None:
    pod = PendingPod("ns", "p", 1, 0.0, 5.0, 10.0)
    assert remaining_wait([pod, replace(pod, pod="q")], 1, 1) == 5, "the second pod waits as before"
    assert remaining_wait([pod, replace(pod, pod="q", arrived=3.0, run_hours=1.0)], 2, 1) == 0
    assert remaining_wait([replace(pod, run_hours=2.0), replace(pod, pod="q")], 1, 1) == 2
    assert remaining_wait([replace(pod, units=2)], 5, 1) == 10, "no node is large enough"


def test_more_nodes_never_leave_more_waiting() -> None:
    queue = simulated_queue.queues(3, 2, DAYS)[1]
    started = simulated_queue.start_hours(queue.jobs, queue.pool, queue.nodes)
    pods = [
        PendingPod("ns", job.name, job.gpus, job.arrives, started[job.name] - job.arrives, job.runs)
        for job in queue.jobs
    ]
    remaining = [remaining_wait(pods, nodes, queue.pool.gpus) for nodes in range(1, 12)]
    assert all(wait >= next_wait for wait, next_wait in pairwise(remaining))
    assert remaining[-1] == 0


def test_pending_pod_combines_its_days_and_the_ledger() -> None:
    """By hand: it arrived at 23:45, was scheduled at 01:30, and held two GPUs for five hours of the look-back."""
    day = timedelta(days=1)
    wait = PodWait("ns", "p-0", "p-0", "nvidia.com/gpu", 2, ((23, 0.25),))
    look_back = LookBack("demo", sim.START, 48)
    look_back.add_waits({sim.START: [wait], sim.START + day: [wait._replace(hours=((0, 1.0), (1, 0.5)))]})
    load = sim.Load(
        "p", lambda _: 1.0, lambda _: 1, kind="Job", gpus=2, pool=sim.Pool("duo", gpus=2), lifetime=(26, 31)
    )
    for record in sim.simulate([load], 48):
        look_back.add_hour(record.hour, map(compact_line_of, record.lines), record.nodes, record.currency)
    assert pending_pods(look_back) == [("nvidia.com/gpu", PendingPod("ns", "p-0", 2, 23.75, 1.75, 5.0))]


def test_new_namespace_waits_for_the_largest_pool() -> None:
    queues = []
    for name, jobs in (("small", 1), ("large", 3)):
        pool = sim.Pool(name, min_nodes=jobs)
        pool_jobs = [
            simulated_queue.Job(f"{name}-{day}-{number}", 24 * day + 9, 4, 1, f"{name}-ns")
            for day in range(DAYS)
            for number in range(jobs)
        ]
        queues.append(simulated_queue.Queue(pool, jobs, tuple(pool_jobs), needs_nodes=False))
    for namespace, pool_name in (("small-ns", "small"), ("large-ns", "large"), ("new-ns", "large")):
        waits = {
            sim.START + timedelta(days=day): [
                PodWait(namespace, f"x{day}", f"x{day}", "nvidia.com/gpu", 1, ((9, 1.0),))
            ]
            for day in range(DAYS)
        }
        assert recommended(queues, waits).keys() == {pool_name}, namespace


def test_amounts_are_in_the_currency_of_the_ledger() -> None:
    queue = next(queue for queue in simulated_queue.queues(1, 5, DAYS) if queue.needs_nodes)
    (recommendation,) = recommended([queue], currency="EUR").values()
    assert recommendation.currency == "EUR"
    assert recommendation.evidence.facts["value of the waiting"].startswith("EUR ")
    assert "$" not in str(recommendation.evidence.facts)
