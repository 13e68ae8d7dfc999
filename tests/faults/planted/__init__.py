"""Planted faults: mistakes of similar products and of prototypes of this one, in files by what they concern.

A file has the faults and, by name, the tests of which one must fail with them, in the order in which most are caught
soon: the rest is not run after a failure. With `-k`, `tests/system/test_fleet.py` attributes only the clusters whose
names have one of the words.
"""

from pathlib import Path
from typing import NamedTuple

import yaml


class Fault(NamedTuple):
    """A mistake: the original text in a file, and the faulty text that replaces it."""

    mistake: str
    file: str
    original: str
    faulty: str
    tests: tuple[str, ...]
    """The tests of which one must fail: arguments of pytest."""


def _read_faults(path: Path) -> list[Fault]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    named: dict[str, list[str]] = document.get("tests", {})

    def tests_of(tests: str | list[str]) -> tuple[str, ...]:
        return tuple(named[tests] if isinstance(tests, str) else tests)

    return [Fault(**{**fault, "tests": tests_of(fault["tests"])}) for fault in document["faults"]]


FAULTS = tuple(fault for path in sorted(Path(__file__).parent.glob("*.yaml")) for fault in _read_faults(path))
