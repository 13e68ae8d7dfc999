"""Printed tables: terminals wrap them, pipes get whole rows; and hours as JSON."""

import io
from functools import partial

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.core import instructions
from gpucost.runtime.json_text import dumps
from gpucost_cli.rendering import hours_document, hours_json, print_table
from gpucost_cli.usage_tables import _with_prices_joined
from tests.records import amount, line, record

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
    assert _with_prices_joined(notes) == [
        "p5.48xlarge, g6.12xlarge are priced at the list price of 2026-07-20, us-east-1",
        "g5.xlarge is priced at the list price of 2026-07-20, us-gov-west-1",
        "1 of 60 scrapes is missing",
    ]


def test_json_of_lines_has_their_figures() -> None:
    lines = [
        line()._replace(labels={"team": 'a, "b"', "app": "%s"}),
        line()._replace(labels={}, resource_claim="gpu", dra_driver="gpu.nvidia.com"),
        line()._replace(utilization=None, gpu_hourly_usd=None, effective_usd=amount(-1), energy_kwh=amount("0.25")),
    ]
    document = hours_document([record(lines)])
    document["hours"][0]["lines"] = [each_line.figures() for each_line in lines]
    assert hours_json([record(lines)]) == dumps(document, indent=2)


def test_json_of_lines_takes_few_instructions() -> None:
    """A document of dictionaries and decimals took 2,120 for each line."""
    of_10, of_110 = (instructions(partial(hours_json, [record([line()] * count)])) for count in (10, 110))
    assert (of_110 - of_10) / 100 <= 1.25 * 580
