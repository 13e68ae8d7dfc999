"""Absolute time in minutes, and random choices that depend on nothing but their names."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

HOUR = 60
DAY = 24 * HOUR
WEEK = 7 * DAY
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
"""A Monday. All times of the demo's fleet are minutes since then."""


@dataclass(frozen=True)
class Period:
    """A range of absolute minutes, both of them full hours."""

    start: int
    end: int

    @classmethod
    def between(cls, start: datetime, end: datetime) -> "Period":
        """The period between two full hours."""
        for at in (start, end):
            if at.astimezone(UTC) != at.astimezone(UTC).replace(minute=0, second=0, microsecond=0):
                raise ValueError(f"{at.isoformat()}: not a full hour. Pass a time such as 2026-11-20T06:00:00Z")
        return cls(absolute_minute(start), absolute_minute(end))

    def overlaps(self, start: int, end: int) -> bool:
        """Whether an interval has a minute in the period."""
        return start < self.end and end > self.start

    def cycles(self, length: int, *, offset: int = 0, before: int = 0, after: int = 0) -> range:
        """The starts of all cycles (days, weeks) that overlap the period, and of some before and after it.

        Args:
            length: minutes of a cycle.
            offset: minutes by which the first cycle starts after the epoch.
            before: how many earlier cycles may still have pods in the period.
            after: how many later cycles may have pods that wait in the period.
        """
        first = (self.start - offset) // length - before
        return range(first * length + offset, self.end + after * length, length)


def absolute_minute(at: datetime) -> int:
    """Minutes from the epoch to a time."""
    return (at - EPOCH) // timedelta(minutes=1)


def draw(*names: object) -> float:
    """A number in [0, 1) that depends on the names only."""
    digest = blake2b("/".join(map(str, names)).encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


def suffix(*names: object, length: int = 5) -> str:
    """A suffix like those of Kubernetes, which depends on the names only."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    return "".join(alphabet[int(draw(*names, position) * len(alphabet))] for position in range(length))


def hour_of_day(minute: int) -> int:
    """The UTC hour of a time."""
    return minute % DAY // HOUR


def is_weekend(minute: int) -> bool:
    """Whether a time is on a Saturday or Sunday (UTC)."""
    return minute // DAY % 7 >= 5


def is_working_hour(minute: int) -> bool:
    """Whether a time is between 08:00 and 18:00 (UTC) from Monday to Friday."""
    return not is_weekend(minute) and 8 <= hour_of_day(minute) < 18


def traffic(name: str, minute: int, *, weekend: float = 0.55, peak_hour: int = 15) -> float:
    """The traffic of a service in the hour of a time, 0 to 1: high by day, lower on weekends, a bit random."""
    wave = (1 + math.cos((hour_of_day(minute) - peak_hour) / 24 * 2 * math.pi)) / 2
    noise = 0.88 + 0.12 * draw("traffic", name, minute // HOUR)
    return (0.12 + 0.88 * wave) * noise * (weekend if is_weekend(minute) else 1)
