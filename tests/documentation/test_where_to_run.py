"""The pages that compare: where gpucost runs, and the steps to the first figure."""

import re

import pytest

from gpucost_devstack.template import REPOSITORY

COMPARISON = (REPOSITORY / "docs/explanation/comparison.md").read_text()
WHERE = (REPOSITORY / "docs/how-to/where-to-run.md").read_text()
STEPS = COMPARISON.partition("## Steps to the first figure")[2].partition("\n## ")[0]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a table's rows, by the first cell."""
    table = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return {
        name: cells for name, *cells in ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in table)
    }


@pytest.mark.parametrize("column", range(3))
def test_number_of_steps_is_that_of_the_rows(column: int) -> None:
    table = rows(STEPS)
    count = 0
    for name in ("install", "connect", "look"):
        cell = table[name][column]
        count += len(cell.split(", ")) if cell != "finds Prometheus through the kubectl context [14]" else 0
    assert int(table["steps"][column]) == count


def test_every_cited_source_is_listed() -> None:
    cited = {int(number) for number in re.findall(r"\[(\d+)\](?!\()", COMPARISON)}
    listed = {int(number) for number in re.findall(r"^(\d+)\. ", COMPARISON, re.MULTILINE)}
    assert cited == listed


def test_every_row_says_something_of_each_place() -> None:
    header, *others = [line.count(" | ") for line in WHERE.splitlines() if line.startswith("| ")]
    assert len(others) > 12
    assert {count for count in others if count} == {header}


def test_price_is_that_of_the_page_on_cost() -> None:
    lowest, highest = re.findall(r"\$(\d+) to \$(\d+) a month", WHERE)[0]
    page = (REPOSITORY / "docs/explanation/cost-to-run.md").read_text()
    assert f"about ${lowest} a month for 100 GPUs" in page
    assert f"${highest} for 10,000 GPUs" in page
