"""The demo goes on when functions fail with settings that somebody pushed while its history was loading."""

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from gpucost.core.errors import SettingsError
from gpucost_cli.demo import _serve
from gpucost_devstack.functions import FunctionError


def steps(*results: BaseException | None) -> Callable[[], None]:
    """Make a step that raises these exceptions, call by call; None: it succeeds."""
    remaining: Iterator[BaseException | None] = iter(results)

    def step() -> None:
        error = next(remaining)
        if error is not None:
            raise error

    return step


class LoadingHistory:
    """A history of three days, each of which needs one successful step."""

    period = "history of 3 days"
    day_count = 3

    def __init__(self, *results: Exception | None) -> None:
        self.days_done = 0
        self._step = steps(*results)

    @property
    def is_complete(self) -> bool:
        return self.days_done == self.day_count

    def advance(self) -> None:
        self._step()
        self.days_done += 1


def test_demo_survives_settings_pushed_while_its_history_loads() -> None:
    history = LoadingHistory(
        None, SettingsError("clusters: required"), None, FunctionError("attribute: KeyError"), None
    )
    deliver = steps(
        None, FunctionError("alert: unknown cluster"), None, None, None, FunctionError("x"), KeyboardInterrupt()
    )
    stack = SimpleNamespace(deliver_all=deliver, notice="")
    demo = SimpleNamespace(stack=stack, cache=None, scheduled_until=datetime.now(UTC) + timedelta(days=1))
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(KeyboardInterrupt):
        _serve(cast(Any, demo), cast(Any, history), console)
    printed = cast(io.StringIO, console.file).getvalue()
    assert history.is_complete
    assert "the history of 3 days is there" in printed
    for failure in ("clusters: required", "attribute: KeyError", "alert: unknown cluster", "x"):
        assert f"a function failed; the demo goes on: {failure}\n" in printed


def test_other_failures_end_the_demo() -> None:
    """A fault of the demo itself is not hidden."""
    demo = SimpleNamespace(stack=SimpleNamespace(deliver_all=steps(ZeroDivisionError()), notice=""), cache=None)
    with pytest.raises(ZeroDivisionError):
        _serve(cast(Any, demo), cast(Any, LoadingHistory()), Console(file=io.StringIO()))
