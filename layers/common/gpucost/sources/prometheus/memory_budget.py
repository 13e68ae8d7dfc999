"""Keeps Prometheus' responses within a function's memory, whatever the server sends.

Sizes are upper estimates for CPython 3.11 to 3.13, made before any object is built. They were compared with the
measured memory of responses of every shape (`tests/sources/test_memory_budget.py`, docs/decisions/0062).
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
MAX_RESPONSE_BYTES = 16 * MIB
"""Largest response, decompressed. The largest response for an hour of 40,000 pods has 11.1 MiB."""
MAX_RESPONSE_MEMORY = 176 * MIB
"""For one parsed response: what 16 MiB of typical Prometheus JSON take."""
MAX_OBSERVATION_MEMORY = 416 * MIB
"""For everything built from the responses for some hours. An hour of 40,000 pods is counted as 390 MiB."""
_SERIES_BYTES, _DICT_BYTES, _LABEL_BYTES, _STRING_BYTES, _SAMPLE_BYTES = 160, 200, 64, 64, 136
_DERIVED_BYTES = {"requests": 2000, "devices": 700, "device": 700}
_DERIVED_BYTES_BY_DEFAULT = 150
_KEPT_BYTES_PER_RAW_SAMPLE = 352
"""A sample as it was received, and what is built from it."""
_KEPT_BYTES_PER_DEVICE_SAMPLE = 264
_KEPT_BYTES_PER_POD_SERIES = 500
SCRAPES_INCLUDED = 1_500_000
"""Scrapes of exporters that `MAX_OBSERVATION_MEMORY` includes: an hour of 5,000 nodes, a scrape every 15 seconds."""
_SCRAPE_BYTES = 160


class MemoryBudget:
    """The memory that several responses may take together.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int = MAX_OBSERVATION_MEMORY) -> None:
        self._limit = limit
        self._used = 0
        self.parsing_lock = RLock()
        """Held while a response is parsed: parsing two at once would take twice the memory and save no time."""

    def reset(self) -> None:
        """Start again at zero, once nothing of earlier responses is kept."""
        self._used = 0

    def admit(self, body: bytes) -> None:
        """Refuse a response that does not fit into memory.

        Raises:
            MetricsTooLargeError: the response alone is too large.
            HoursTooLargeError: it is too large in addition to what is kept already.
        """
        needed = parsed_size(body)
        if needed > MAX_RESPONSE_MEMORY:
            raise MetricsTooLargeError(
                f"answered with a response that takes {needed // MIB} MiB of memory, above {MAX_RESPONSE_MEMORY // MIB}"
            )
        self._check(needed)

    def charge(self, needed: int) -> None:
        """Count memory that stays in use.

        Raises:
            HoursTooLargeError: not enough memory is left.
        """
        self._check(needed)
        self._used += needed

    def check_scrapes(self, count: int) -> None:
        """Refuse scrape times that do not fit into memory. They are kept for some hours only and not counted.

        Raises:
            HoursTooLargeError: they are too many in addition to what is kept already.
        """
        self._check(_SCRAPE_BYTES * max(0, count - SCRAPES_INCLUDED))

    def charge_series(self, series: "Sequence[Series]", body: bytes) -> None:
        """Count a response's series: exactly where memory is short, else roughly, which is faster.

        Raises:
            HoursTooLargeError: not enough memory is left.
        """
        needed = series_size(series, body)
        if self._used + needed > self._limit / 2:
            needed = exact_series_size(series, body)
        self.charge(needed)

    @contextmanager
    def release_at_end(self) -> Iterator[None]:
        """Release at the block's end what is charged in it."""
        before = self._used
        try:
            yield
        finally:
            self._used = before

    def _check(self, needed: int) -> None:
        if self._used + needed > self._limit:
            raise HoursTooLargeError(
                f"answered with responses that together take more than {self._limit // MIB} MiB of memory"
            )


def parsed_size(body: bytes) -> int:
    """Upper estimate of the bytes that a JSON text takes once parsed: containers, elements, strings and their text."""
    containers = 200 * body.count(b"{") + 72 * body.count(b"[")
    return containers + 60 * body.count(b",") + 24 * body.count(b'"') + _text_size(body)


def series_size(series: "Sequence[Series]", body: bytes) -> int:
    """Upper estimate of the bytes that a response's series take."""
    labels = sum(len(labels) for labels, _ in series)
    samples = sum(len(samples) for _, samples in series)
    return (
        (_SERIES_BYTES + _DICT_BYTES) * len(series)
        + (_LABEL_BYTES + 2 * _STRING_BYTES) * labels
        + _SAMPLE_BYTES * samples
        + _text_size(body)
    )


def exact_series_size(series: "Sequence[Series]", body: bytes) -> int:
    """The bytes that a response's series take. Equal labels share their strings."""
    size, samples = 0, 0
    strings: set[int] = set()
    for labels, values in series:
        size += getsizeof(labels)
        samples += len(values)
        strings.update(map(id, labels), map(id, labels.values()))
    return (
        _SERIES_BYTES * len(series) + size + _STRING_BYTES * len(strings) + _SAMPLE_BYTES * samples + _text_size(body)
    )


def derived_size(name: str, series: "Sequence[Series]") -> int:
    """The bytes of all objects that are later built from a query's series, up to the lines of the hour."""
    per_sample = _DERIVED_BYTES.get(name.split(" ", maxsplit=1)[0], _DERIVED_BYTES_BY_DEFAULT)
    return per_sample * sum(len(samples) for _, samples in series)


def raw_samples_size(series: "Sequence[Series]") -> int:
    """The bytes of all objects that are later built from raw samples."""
    return _KEPT_BYTES_PER_RAW_SAMPLE * sum(len(samples) for _, samples in series)


def device_samples_size(series: "Sequence[Series]") -> int:
    """The bytes of all objects that are later built from raw samples of devices."""
    return _KEPT_BYTES_PER_DEVICE_SAMPLE * sum(len(samples) for _, samples in series)


def pod_samples_size(series: "Sequence[Series]") -> int:
    """The bytes of all objects that are later built from raw samples of pods, of which few times are kept."""
    return _KEPT_BYTES_PER_POD_SERIES * len(series)


def _text_size(body: bytes) -> int:
    """One character outside the basic multilingual plane makes each character of its string take four bytes."""
    return len(body) if body.isascii() and rb"\u" not in body else 4 * len(body)
