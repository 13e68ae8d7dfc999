"""Benchmarks start functions in other processes by name, which no type checker follows."""

import re
from importlib import import_module

from gpucost_devstack.template import REPOSITORY


def test_functions_that_benchmarks_start_by_name_exist() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "benchmarks").glob("*.py"))
    started = set(re.findall(r'"(benchmarks\.\w+):(\w+)"', text))
    assert len(started) > 5
    assert not [name for name in started if not hasattr(import_module(name[0]), name[1])]
