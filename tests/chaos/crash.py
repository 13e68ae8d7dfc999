"""Every crash point: killed at the k-th outside call, before it or after it took effect, then run again as AWS would.

Hours follow one another, and between two ticks no message waits: an hour's crash is compared from a saved moment before
its tick to the end of the tick after it. Where everything that readers see and alerting remembers is equal there, the
rest of the day is equal too.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tests.chaos.external_calls import RESENT, WRITES, Fault
from tests.chaos.world import Endpoints, Saved, World

HEALED_AFTER = 5
"""Ticks until an attempt that failed, at an hour that had failed before, has been made again."""


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
    messages: set[tuple[Any, ...]]
    notifications: set[str]


def undisturbed(
    world: World, ticks: range, *, with_later: bool = False
) -> Iterator[tuple[int, Undisturbed, Undisturbed]]:
    """Run the day once; yields each of these ticks together with the one after it, and with several after it."""
    world.run(*range(ticks.start))
    before = world.saved()
    for number in ticks:
        world.restore(before)
        world.run(number)
        calls, after = tuple(world.outside.calls), world.saved()
        world.run(number + 1)
        next_one = Undisturbed(before, calls, world.seen(), {*world.messages()}, world.notifications())
        if with_later:
            world.run(*range(number + 2, number + 1 + HEALED_AFTER))
        yield number, next_one, Undisturbed(before, calls, world.seen(), {*world.messages()}, world.notifications())
        before = after


def compare(
    verdict: Verdict,
    what: str,
    world: World,
    expected: Undisturbed,
    *,
    delayed: bool = False,
    seen: Callable[[World], dict[str, Any]] = World.seen,
) -> None:
    """Note in a verdict how a disturbed world differs from what is expected.

    Where an attempt may rightly come an hour later than undisturbed, versions and attempts differ: then figures are
    compared, news by the hour they are about, and notifications by how often each was sent.
    """
    if delayed:
        expected = replace(expected, seen=figures(expected.seen), messages={one[:2] for one in expected.messages})
    verdict.tried += 1
    found = figures(world.seen()) if delayed else seen(world)
    heard: set[tuple[Any, ...]] = {one[:2] if delayed else one for one in world.messages()}
    for name, value in expected.seen.items():
        if name not in found:
            verdict.lost.append(f"{what}: {name}")
        elif found[name] != value:
            verdict.doubled.append(f"{what}: {name}: {found[name]} instead of {value}")
    verdict.doubled += [f"{what}: {name}" for name in found.keys() - expected.seen.keys()]
    verdict.doubled += [f"{what}: {one}" for one in heard - expected.messages]
    verdict.unsaid += [f"{what}: {one}" for one in expected.messages - heard]
    told, wanted = (
        Counter(map(_undated, ids) if delayed else ids) for ids in (world.notifications(), expected.notifications)
    )
    verdict.unsaid += [f"{what}: {one}" for one in wanted - told]
    verdict.doubled += [f"{what}: {one}" for one in told - wanted]
    verdict.dead += [f"{what}: {one}" for one in world.dead]


def _undated(notification: str) -> str:
    """Its id without its hour: where an hour comes late, a run of waste is noticed at the next one."""
    cluster, rule, unit, _, event = notification.split("/")
    return f"{cluster}/{rule}/{unit}/{event}"


def figures(seen: dict[str, Any]) -> dict[str, Any]:
    """All figures, without versions, attempts and what alerting remembers."""
    return {
        name: (value.totals, value.groups) if name.endswith("summary") else value
        for name, value in seen.items()
        if not name.endswith("manifest") and " alert " not in name
    }


def faults_of(calls: tuple[str, ...]) -> Iterator[tuple[int, Fault]]:
    """Every way in which each call can fail. Killed before a call is killed after the one before it."""
    yield 1, "killed before"
    for place, _ in enumerate(calls, start=1):
        yield place, "killed after"
    for place, name in enumerate(calls, start=1):
        yield place, "throttled"
        if name in WRITES:
            yield place, "timed out after"
        if name in RESENT:
            yield place, "sent twice"
        if name == "batch_write_item":
            yield place, "half taken"


def enumerate_crashes(
    endpoints: Endpoints, start: datetime, ticks: range, clusters: tuple[str, ...], *, only_kills: bool = False
) -> Iterator[tuple[str, Verdict]]:
    """Try every fault at every call of these ticks; yields the verdict so far after each."""
    verdict = Verdict()
    quiet, world = World(endpoints, start, clusters), World(endpoints, start, clusters)
    try:
        for number, next_one, later in undisturbed(quiet, ticks, with_later=not only_kills):
            for place, fault in faults_of(next_one.calls):
                if only_kills and not fault.startswith("killed"):
                    continue
                delayed = fault == "throttled"
                what = f"hour {number}, call {place} ({next_one.calls[place - 1]}) {fault}"
                world.restore(next_one.before)
                world.outside.plan[place] = fault
                world.run(*range(number, number + (HEALED_AFTER + 1 if delayed else 2)))
                compare(verdict, what, world, later if delayed else next_one, delayed=delayed)
                yield what, verdict
    finally:
        quiet.close()
        world.close()
