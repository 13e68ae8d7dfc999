"""What is generated from the amounts: a reference page, the dashboard's names, and the columns of Athena's tables."""

import re

import pytest

from authoring import amounts
from gpucost.core.amounts import CapacityCosts, Costs, Idle
from gpucost.core.hour_record import LINE_AMOUNTS
from gpucost_devstack.template import TEMPLATE

TEXT = TEMPLATE.read_text()


def test_committed_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert amounts.main(["--check"]) == 0, capsys.readouterr().err
    assert amounts.main(["--write"]) == 2


def test_reference_has_every_amount_and_each_column_once() -> None:
    page = amounts.amounts_page()
    for name in {*Costs.names(), *CapacityCosts.names(), *Idle.names(), *LINE_AMOUNTS}:
        assert page.count(f"\n| `{name}` |") == 1
    columns = re.findall(r"`(\w+)` \|$", page, re.MULTILINE)
    assert "x_EnergyKwh" in columns
    assert len(columns) == len({*columns})


def test_columns_of_both_tables_are_written_again() -> None:
    column = '            - {Name: x_energykwh, Type: "decimal(38,12)"}\n'
    assert TEXT.count(column) == 2
    assert amounts.with_columns(TEXT.replace(column, "")) == TEXT
    with pytest.raises(ValueError, match="no table ExportGlueTable"):
        amounts.with_columns("Resources: {}\n")
