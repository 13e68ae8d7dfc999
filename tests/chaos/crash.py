"""Every crash point: killed at the k-th outside call, before it or after it took effect, then run again as AWS would.

Hours follow one another, and between two ticks no message waits: an hour's crash is compared from a saved moment before
its tick to the end of the tick after it. Where everything that readers see and alerting remembers is equal there, the
rest of the day is equal too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.chaos.outside import WRITES, Fault
from tests.chaos.world import Endpoints, Saved, World


@dataclass
class Verdict:
    """What faults led to.

    Attributes:
        tried: faults.
        lost: hours (or sums of them) that readers miss, or see less of than undisturbed.
        doubled: those that they see more of, or otherwise.
        unsaid: messages or notifications that nobody got.
        dead: messages that ended in dead letters and should not have.
    """

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unsaid: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)

    def is_clean(self) -> bool:
        """Whether every fault was survived."""
        return self.tried > 0 and not (self.lost or self.doubled or self.unsaid or self.dead)


@dataclass(frozen=True)
class Undisturbed:
    """Two ticks as they should be."""

    before: Saved
    calls: tuple[str, ...]
    """Of the first of the two."""
    seen: dict[str, Any]
    messages: set[Any]
    notifications: set[str]


def undisturbed(world: World, ticks: range) -> Iterator[tuple[int, Undisturbed]]:
    """Run the day once; yields each of these ticks together with the one after it."""
    world.run(*range(ticks.start))
    before = world.saved()
    for number in ticks:
        world.restore(before)
        world.run(number)
        calls, after = tuple(world.outside.calls), world.saved()
        world.run(number + 1)
        yield number, Undisturbed(before, calls, world.seen(), world.messages(), world.notifications())
        before = after


def compare(verdict: Verdict, what: str, world: World, expected: Undisturbed) -> None:
    """Note in a verdict how a disturbed world differs from what is expected."""
    verdict.tried += 1
    seen = world.seen()
    for name, value in expected.seen.items():
        if name not in seen:
            verdict.lost.append(f"{what}: {name}")
        elif seen[name] != value:
            verdict.doubled.append(f"{what}: {name}: {seen[name]} instead of {value}")
    verdict.doubled += [f"{what}: {name}" for name in seen.keys() - expected.seen.keys()]
    verdict.doubled += [f"{what}: {one}" for one in world.messages() - expected.messages]
    verdict.unsaid += [f"{what}: {one}" for one in expected.messages - world.messages()]
    verdict.unsaid += [f"{what}: {one}" for one in expected.notifications - world.notifications()]
    verdict.doubled += [f"{what}: {one}" for one in world.notifications() - expected.notifications]
    verdict.dead += [f"{what}: {one}" for one in world.dead]


def faults_of(calls: tuple[str, ...]) -> Iterator[tuple[int, Fault]]:
    """Every way in which each call can fail. Killed before a call is killed after the one before it."""
    yield 1, "killed before"
    for place, _ in enumerate(calls, start=1):
        yield place, "killed after"
    for place, name in enumerate(calls, start=1):
        yield place, "throttled"
        if name in WRITES:
            yield place, "timed out after"
        if name == "batch_write_item":
            yield place, "half taken"


def enumerate_crashes(
    endpoints: Endpoints, start: datetime, ticks: range, clusters: tuple[str, ...], *, only_kills: bool = False
) -> Iterator[tuple[str, Verdict]]:
    """Try every fault at every call of these ticks; yields the verdict so far after each."""
    verdict = Verdict()
    quiet, world = World(endpoints, start, clusters), World(endpoints, start, clusters)
    try:
        for number, expected in undisturbed(quiet, ticks):
            for place, fault in faults_of(expected.calls):
                if only_kills and not fault.startswith("killed"):
                    continue
                what = f"hour {number}, call {place} ({expected.calls[place - 1]}) {fault}"
                world.restore(expected.before)
                world.outside.plan[place] = fault
                world.run(number, number + 1)
                compare(verdict, what, world, expected)
                yield what, verdict
    finally:
        quiet.close()
        world.close()
