"""What the rows of the fault table stand on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.chaos.crash import Undisturbed, Verdict, compare, figures
from tests.chaos.world import Endpoints, World


@dataclass
class Bench:
    """What a fault needs."""

    endpoints: Endpoints
    start: datetime
    prometheus: str
    """Address of a real one that holds `first_seen`."""
    first_seen: datetime
    verdict: Verdict = field(default_factory=Verdict)

    @contextmanager
    def world(self, **how: Any) -> Iterator[World]:
        """A deployment of its own."""
        made = World(self.endpoints, how.pop("first", self.start), **how)
        try:
            yield made
        finally:
            made.close()

    def expect(
        self, fault: str, disturbed: World, quiet: World, seen: Callable[[World], dict[str, Any]] = World.seen
    ) -> None:
        """Compare two whole runs."""
        expected = Undisturbed(quiet.saved(), (), seen(quiet), {*quiet.messages()}, quiet.notifications())
        compare(self.verdict, fault, disturbed, expected, seen=seen)

    def expect_figures(self, fault: str, disturbed: World, quiet: World) -> None:
        """Compare figures alone: where hours are tried in another order, versions and news may rightly differ."""
        self.verdict.tried += 1
        expected, seen = figures(quiet.seen()), figures(disturbed.seen())
        self.verdict.lost += [f"{fault}: {name}" for name in expected.keys() - seen.keys()]
        self.verdict.doubled += [f"{fault}: {name}" for name in seen if seen[name] != expected.get(name)]
        heard = {(cluster, hour) for cluster, hour, _ in disturbed.messages()}
        self.verdict.unsaid += [f"{fault}: {one[:2]}" for one in quiet.messages() if one[:2] not in heard]
        self.verdict.dead += [f"{fault}: {one}" for one in disturbed.dead]

    def check(self, what: str, *, holds: bool) -> None:
        """A fault that has an outcome of its own."""
        self.verdict.tried += 1
        if not holds:
            self.verdict.lost.append(what)


Faulty = Callable[[Bench], None]
"""A row of the table."""
