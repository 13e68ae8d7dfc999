"""Every kind of recommendation on one screen, with names as long as Kubernetes allows."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import get_args

import pytest

from gpucost.features.recommendations.history import LookBack, ReservedPrice, SpotPrice
from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.model import Recommendation, RecommendationContent, RecommendationSubject
from gpucost.features.recommendations.review import review_cluster
from gpucost_cli.recommendation_screen import SCREEN_WIDTH, render_recommendation
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations import simulated_queue
from tests.records import compact_line_of

HOURS = 672
LONG = "a-service-whose-name-is-as-long-as-a-label-of-kubernetes-may-be"
A100 = "NVIDIA A100-SXM4-40GB"
SERVER = f"{LONG}-served-by-"


def fleet() -> Iterator[sim.Load]:
    """One workload or pool for each kind; the commitment covers the remaining steady nodes."""
    yield sim.Load(f"{LONG}-0", lambda _: 0.0, lambda _: 2, kind="StatefulSet")
    yield sim.Load(f"{LONG}-1", sim.daily(0.2, 0.9, random.Random(1)), lambda _: 6)
    yield sim.Load(f"{LONG}-2", lambda _: 2.0, lambda _: 2)
    yield sim.Load(f"{LONG}-3", lambda hour: 1.0 if 7 <= hour % 24 < 19 else 0.0, lambda _: 2)
    yield sim.Load(f"{LONG}-4", lambda _: 1.5, lambda _: 3)
    mig = sim.Pool(f"{LONG}-mig", "p4d.24xlarge", 8, Decimal(32), model=A100)
    for number in range(9):
        yield sim.Load(
            f"{LONG}-m{number}", lambda _: 0.12, lambda _: 2, pool=mig, kind="Job", memory_gib=3 + 3 * (number % 3)
        )
    shared = sim.Pool(f"{LONG}-shared", "g6.xlarge", 1, Decimal(1), model="NVIDIA L4")
    for number in range(6):
        yield sim.Load(
            f"{LONG}-s{number}",
            lambda hour, number=number: 0.6 if hour % 2 == number % 2 else 0.05,  # type: ignore[misc]
            lambda _: 1,
            pool=shared,
            kind="Job",
            memory_gib=5.0,
        )
    spread = sim.Pool(f"{LONG}-spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=6)
    yield sim.Load(f"{LONG}-p", lambda _: 6.0, lambda _: 9, pool=spread, kind="Job")
    for model, price in (("NVIDIA-H100-80GB-HBM3", 12), ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 4)):
        pool = sim.Pool(f"{LONG}-{price}", f"g{price}.48xlarge", 1, Decimal(price), model=model)
        yield sim.Load(f"{SERVER}{price}", lambda _: 1.2, lambda _: 2, pool=pool)


@pytest.fixture(scope="module")
def recommended() -> dict[str, RecommendationContent]:
    """The longest recommendation of each kind."""
    queue = sim.Pool(f"{LONG}-queue", "g5.12xlarge", 1, Decimal(6), min_nodes=1)
    jobs = [
        simulated_queue.Job(f"{LONG}-{day}-{number}", 24 * day + 9, 4, 1, f"{LONG}-ns")
        for day in range(28)
        for number in range(3)
    ]
    loads = [*fleet(), *simulated_queue.loads(jobs, queue, 1, HOURS)]
    look_back = LookBack("demo", sim.START, HOURS)
    look_back.memory_peaks.update(sim.memory(loads, HOURS))
    look_back.add_waits(simulated_queue.waits(jobs, queue, 1, HOURS))
    for record in sim.simulate(loads, HOURS):
        of_server = [line for line in record.lines if line.workload.startswith(SERVER)]
        look_back.latencies[record.hour] = {(line.namespace, line.pod): (1234567.0, 1.2345) for line in of_server}
        lines = [line._replace(workload=f"{LONG}-server") if line in of_server else line for line in record.lines]
        look_back.add_hour(record.hour, map(compact_line_of, lines), record.nodes, record.currency)
    look_back.spot_prices["g5.xlarge"] = SpotPrice(0.5, 0.5, 0.5)
    look_back.reserved_prices.update(
        {"g5.xlarge": ReservedPrice(0.9, "g5.*"), "g6.xlarge": ReservedPrice(0.5, "g6.xlarge")}
    )
    longest: dict[str, RecommendationContent] = {}
    for recommendation in review_cluster(look_back, sim.START + timedelta(hours=HOURS), {}).recommendations:
        previous = longest.get(recommendation.kind)
        if previous is None or len(str(previous)) < len(str(recommendation)):
            longest[recommendation.kind] = recommendation
    return longest


@pytest.mark.parametrize("kind", get_args(KindName))
@pytest.mark.parametrize("state", ["open", "dismissed"])
def test_recommendation_is_rendered_completely(
    recommended: dict[str, RecommendationContent], kind: str, state: str
) -> None:
    recommendation = Recommendation(recommended[kind], "open", sim.START, sim.START, sim.START)
    if state == "dismissed":
        recommendation = replace(
            recommendation, state="dismissed", reason="kept for the launch of next month " * 3, author="ann@example.com"
        )
    lines = render_recommendation(recommendation)
    patch = recommendation.content.patch.rstrip().splitlines()
    assert lines[len(lines) - len(patch) :] == patch
    assert max(map(len, lines[: len(lines) - len(patch)])) <= SCREEN_WIDTH, "\n".join(lines)
    text = " ".join(" ".join(lines).split())
    for expected in (
        recommendation.id,
        recommendation.content.risk_note,
        f"{abs(recommendation.content.saving.usd):,.2f}",
        "evidence",
        "confidence",
    ):
        assert expected in text
    for name in recommendation.content.evidence.facts:
        assert f"{name}:" in text


def test_control_characters_of_a_name_do_not_reach_the_terminal(recommended: dict[str, RecommendationContent]) -> None:
    subject = RecommendationSubject("demo", "u", "ns", "Deployment", "x\x1b[2J")
    content = replace(recommended["idle"], subject=subject, summary="Scale x\x1b[2J down")
    assert "\x1b" not in "\n".join(
        render_recommendation(Recommendation(content, "open", sim.START, sim.START, sim.START))
    )
