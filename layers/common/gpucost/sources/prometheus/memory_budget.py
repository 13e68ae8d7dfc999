"""Keeps what a Prometheus answers within the memory of a function, whatever it answers.

Sizes are upper estimates for CPython 3.11 to 3.13, made before anything is built. They were compared with the measured
memory of answers of every shape (`tests/sources/test_memory_budget.py`, docs/decisions/0062).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from sys import getsizeof
from threading import RLock
from typing import TYPE_CHECKING

from gpucost.core.errors import HoursTooLargeError, MetricsTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpucost.sources.prometheus.client import Series

MIB = 1 << 20
ANSWER_BYTES = 16 * MIB
"""Of one answer, decompressed. The largest of an hour of 40,000 pods has 11.1 MiB."""
ANSWER_MEMORY = 176 * MIB
"""For one parsed answer: what 16 MiB take that look like answers of Prometheus."""
OBSERVATION_MEMORY = 416 * MIB
"""For everything that is built of the answers for some hours. An hour of 40,000 pods is counted as 390 MiB."""
_SERIES, _DICT, _LABEL, _STRING, _SAMPLE = 160, 200, 64, 64, 136
_DERIVED = {"requests": 2000, "devices": 700, "device": 700}
_DERIVED_BY_DEFAULT = 150
_DERIVED_PER_RAW_SAMPLE = 216
SCRAPES_INCLUDED = 1_500_000
"""Scrapes of exporters that `OBSERVATION_MEMORY` leaves room for: an hour of 5,000 nodes, a scrape every 15 seconds."""
_SCRAPE = 160


class MemoryBudget:
    """The memory that answers may take together.

    Args:
        most: bytes.
    """

    def __init__(self, limit: int = OBSERVATION_MEMORY) -> None:
        self._limit = limit
        self._used = 0
        self.parsing_lock = RLock()
        """Held while an answer is parsed: two at once would take twice the memory and no less time."""

    def reset(self) -> None:
        """Begin anew: nothing of earlier answers is kept."""
        self._used = 0

    def admit(self, body: bytes) -> None:
        """Refuse an answer that there is no memory for.

        Raises:
            MetricsTooLargeError: it is too large by itself.
            HoursTooLargeError: it is too large beside what is there already.
        """
        needed = parsed_size(body)
        if needed > ANSWER_MEMORY:
            raise MetricsTooLargeError(
                f"answered so much that it takes {needed // MIB} MiB of memory, above {ANSWER_MEMORY // MIB}"
            )
        self._check(needed)

    def charge(self, needed: int) -> None:
        """Count memory that will be kept.

        Raises:
            HoursTooLargeError: there is not so much left.
        """
        self._check(needed)
        self._used += needed

    def check_scrapes(self, count: int) -> None:
        """Refuse scrape times that there is no memory for; they are kept for some hours only, and not counted.

        Raises:
            HoursTooLargeError: they are too many beside what is there already.
        """
        self._check(_SCRAPE * max(0, count - SCRAPES_INCLUDED))

    def charge_series(self, series: "Sequence[Series]", body: bytes) -> None:
        """Count an answer's series: roughly, and exactly only where that matters, because it takes time.

        Raises:
            HoursTooLargeError: there is not so much memory left.
        """
        needed = series_size(series, body)
        if self._used + needed > self._limit / 2:
            needed = exact_series_size(series, body)
        self.charge(needed)

    @contextmanager
    def temporary(self) -> Iterator[None]:
        """Count what is charged in the block only until its end."""
        before = self._used
        try:
            yield
        finally:
            self._used = before

    def _check(self, needed: int) -> None:
        if self._used + needed > self._limit:
            raise HoursTooLargeError(
                f"answered so much that the hours asked for together take more than {self._limit // MIB} MiB of memory"
            )


def parsed_size(body: bytes) -> int:
    """The most bytes that a JSON text takes once parsed: of objects, arrays, elements, strings, and their text."""
    containers = 200 * body.count(b"{") + 72 * body.count(b"[")
    return containers + 60 * body.count(b",") + 24 * body.count(b'"') + _text_size(body)


def series_size(series: "Sequence[Series]", body: bytes) -> int:
    """The most bytes that an answer's series take."""
    labels = sum(len(one.labels) for one in series)
    samples = sum(len(one.samples) for one in series)
    return (_SERIES + _DICT) * len(series) + (_LABEL + 2 * _STRING) * labels + _SAMPLE * samples + _text_size(body)


def exact_series_size(series: "Sequence[Series]", body: bytes) -> int:
    """The bytes that an answer's series take: labels that are alike share their strings."""
    size, samples = 0, 0
    strings: set[int] = set()
    for labels, values in series:
        size += getsizeof(labels)
        samples += len(values)
        strings.update(map(id, labels), map(id, labels.values()))
    return _SERIES * len(series) + size + _STRING * len(strings) + _SAMPLE * samples + _text_size(body)


def derived_size(name: str, series: "Sequence[Series]") -> int:
    """What is built of the series of a query beyond themselves, up to the lines of the hour."""
    return _DERIVED.get(name.split(" ", maxsplit=1)[0], _DERIVED_BY_DEFAULT) * sum(len(one.samples) for one in series)


def raw_samples_size(series: "Sequence[Series]") -> int:
    """What is built of raw samples beyond themselves."""
    return _DERIVED_PER_RAW_SAMPLE * sum(len(one.samples) for one in series)


def _text_size(body: bytes) -> int:
    """One character beyond the basic plane makes every character of its string take four bytes."""
    return len(body) if body.isascii() and rb"\u" not in body else 4 * len(body)
