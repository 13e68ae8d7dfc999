"""Printed tables: terminals wrap them, pipes get whole rows."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from gpucost_cli.rendering import _with_instance_types_together, print_table

LONG_NAME = "kube_pod_container_resource_requests_of_a_very_long_metric " * 4


def table() -> Table:
    names = Table()
    names.add_column("check", overflow="fold")
    names.add_column("status", no_wrap=True)
    names.add_row(LONG_NAME, "missing")
    return names


def printed(part: Table | str, *, is_terminal: bool) -> str:
    output = io.StringIO()
    print_table(part, Console(file=output, force_terminal=is_terminal, color_system=None, width=80))
    return output.getvalue()


def test_rows_in_pipes_are_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert LONG_NAME in printed(table(), is_terminal=False)


def test_columns_sets_the_width_of_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, printed(table(), is_terminal=False).splitlines())) == 80


def test_terminal_wraps_names() -> None:
    assert max(map(len, printed(table(), is_terminal=True).splitlines())) == 80


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_is_never_wrapped(is_terminal: bool) -> None:
    assert printed(LONG_NAME, is_terminal=is_terminal) == LONG_NAME + "\n"


def test_instance_types_with_the_same_price_source_share_a_note() -> None:
    notes = [
        "p5.48xlarge is priced at the list price of 2026-07-20, us-east-1",
        "1 of 60 scrapes is missing",
        "g5.xlarge is priced at the list price of 2026-07-20, us-gov-west-1",
        "g6.12xlarge is priced at the list price of 2026-07-20, us-east-1",
    ]
    assert _with_instance_types_together(notes) == [
        "p5.48xlarge, g6.12xlarge are priced at the list price of 2026-07-20, us-east-1",
        "g5.xlarge is priced at the list price of 2026-07-20, us-gov-west-1",
        "1 of 60 scrapes is missing",
    ]
