"""How a target is scraped: interval, phase, jitter, gaps."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MINUTE_MS = 60_000
Minutes = float | Fraction


@dataclass(frozen=True)
class Scraping:
    """One target of Prometheus; times are minutes from the scenario's base."""

    job: str
    instance: str
    seconds: Fraction | int = 60
    """The scrape interval."""
    phase: Fraction | float = 0
    """Seconds by which scrapes come later than multiples of the interval."""
    jitter: int = 0
    """At most so many milliseconds off, evenly spread."""
    gaps: Sequence[tuple[Minutes, Minutes]] = ()
    """When scrapes fail."""
    life: tuple[Minutes, Minutes] = (-1e6, 1e6)
    """When the target is there at all."""
    up: str = "kept"
    """`kept` (0 while scrapes fail), `absent in gaps`, or `dropped`."""
    then: tuple[Minutes, int] | None = None
    """From a minute on, another interval in seconds."""

    def times(self, start: Minutes, end: Minutes) -> list[int]:
        """Milliseconds from the base of all scrapes tried in `[start, end)` minutes, whatever became of them."""
        changes = (end, self.then[0]) if self.then else (end, end)
        runs = [(start, min(end, changes[1]), self.seconds)]
        if self.then:
            runs.append((self.then[0], end, self.then[1]))
        spread = random.Random(f"{self.job}/{self.instance}")
        found = []
        for begin, stop, seconds in runs:
            step = Fraction(seconds) * 1000
            place = (Fraction(begin) * MINUTE_MS - Fraction(self.phase) * 1000) // step
            while (at := place * step + Fraction(self.phase) * 1000) < stop * MINUTE_MS:
                at += spread.randint(-self.jitter, self.jitter) if self.jitter else 0
                if begin * MINUTE_MS <= at < stop * MINUTE_MS and self._is_there(at):
                    found.append(int(at))
                place += 1
        return sorted(set(found))

    def succeeds(self, at: int) -> bool:
        """Whether the scrape at a time is answered."""
        return not any(a * MINUTE_MS <= at < b * MINUTE_MS for a, b in self.gaps)

    def answered(self, start: Minutes, end: Minutes) -> list[int]:
        """Milliseconds of the scrapes that were answered."""
        return [at for at in self.times(start, end) if self.succeeds(at)]

    @property
    def longest(self) -> Fraction:
        """The longest time between two scrapes, in minutes."""
        seconds = max(Fraction(self.seconds), Fraction(self.then[1] if self.then else 0))
        return (seconds + Fraction(2 * self.jitter, 1000)) / 60

    def _is_there(self, at: Fraction) -> bool:
        return self.life[0] * MINUTE_MS <= at < self.life[1] * MINUTE_MS
