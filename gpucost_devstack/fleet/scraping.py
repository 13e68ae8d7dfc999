"""How a target is scraped: interval, offset, jitter, gaps."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MINUTE_MS = 60_000
Minutes = float | Fraction


@dataclass(frozen=True)
class Scraping:
    """One scrape target of Prometheus. Times are minutes from the scenario's base."""

    job: str
    instance: str
    interval_seconds: Fraction | int = 60
    """The scrape interval."""
    offset_seconds: Fraction | float = 0
    """Offset of the scrapes from multiples of the interval."""
    jitter_ms: int = 0
    """Largest deviation of a scrape, uniformly distributed."""
    gaps: Sequence[tuple[Minutes, Minutes]] = ()
    """Intervals in which scrapes fail."""
    lifetime: tuple[Minutes, Minutes] = (-1e6, 1e6)
    """When the target exists."""
    up: str = "kept"
    """`kept` (0 while scrapes fail), `absent in gaps`, or `dropped`."""
    changed_interval: tuple[Minutes, int] | None = None
    """(minute, new scrape interval in seconds)."""
    node: str = ""
    """The target's label `node`, which only the rendered scrape configuration adds."""

    @property
    def target_labels(self) -> dict[str, str]:
        """The labels that every series of the target has."""
        return {"job": self.job, "instance": self.instance} | ({"node": self.node} if self.node else {})

    def times(self, start: Minutes, end: Minutes) -> list[int]:
        """Milliseconds from the base of all attempted scrapes in `[start, end)` minutes."""
        changes = (end, self.changed_interval[0]) if self.changed_interval else (end, end)
        runs = [(start, min(end, changes[1]), self.interval_seconds)]
        if self.changed_interval:
            runs.append((self.changed_interval[0], end, self.changed_interval[1]))
        generator = random.Random(f"{self.job}/{self.instance}")
        times: list[int] = []
        for begin, stop, seconds in runs:
            step = Fraction(seconds) * 1000
            offset = Fraction(self.offset_seconds) * 1000
            if not self.jitter_ms and step.denominator == offset.denominator == 1:
                first = max(begin, self.lifetime[0]) * MINUTE_MS - offset
                last = min(stop, self.lifetime[1]) * MINUTE_MS - offset
                whole_step = int(step)
                times += [
                    at + int(offset)
                    for at in range(math.ceil(first / whole_step) * whole_step, math.ceil(last), whole_step)
                ]
                continue
            scrape_number = (Fraction(begin) * MINUTE_MS - Fraction(self.offset_seconds) * 1000) // step
            while (at := scrape_number * step + Fraction(self.offset_seconds) * 1000) < stop * MINUTE_MS:
                at += generator.randint(-self.jitter_ms, self.jitter_ms) if self.jitter_ms else 0
                if begin * MINUTE_MS <= at < stop * MINUTE_MS and self._exists(at):
                    times.append(int(at))
                scrape_number += 1
        return sorted(set(times))

    def succeeds(self, at: int) -> bool:
        """Whether the scrape at a time succeeds."""
        return not any(a * MINUTE_MS <= at < b * MINUTE_MS for a, b in self.gaps)

    def successful_times(self, start: Minutes, end: Minutes) -> list[int]:
        """Milliseconds from the base of the scrapes that succeed."""
        return [at for at in self.times(start, end) if self.succeeds(at)]

    @property
    def longest_interval_minutes(self) -> Fraction:
        """The longest time between two scrapes, in minutes."""
        seconds = max(
            Fraction(self.interval_seconds), Fraction(self.changed_interval[1] if self.changed_interval else 0)
        )
        return (seconds + Fraction(2 * self.jitter_ms, 1000)) / 60

    def _exists(self, at: Fraction) -> bool:
        return self.lifetime[0] * MINUTE_MS <= at < self.lifetime[1] * MINUTE_MS
