"""Lines as advice reads them: the same as those that reports read, in every form that was ever stored."""

from decimal import Decimal
from typing import Any

from gpucost.core.line_use import use_of
from gpucost.core.model import Line
from gpucost.storage import compressed_documents as blobs
from gpucost.storage.line_items import line_items, read_line_items, read_line_uses
from tests.features.recommendations import advice_fleet as sim

(RECORD,) = sim.simulate(sim.fleet(1, 24, 1), 1)
ODD = RECORD.lines[0]._replace(allocated_usd=None, effective_gpu_hours=None, utilization=None, shared_from="platform",
    unmeasured_gpu_hours=Decimal("0.333333333333"),
)  # fmt: skip
LINES = [*RECORD.lines, ODD]


def form_1(lines: list[Line]) -> dict[str, Any]:
    rows = [list(line[:-1]) for line in lines]
    (piece,) = blobs.pack(rows)
    return {"pk": {"S": "pk"}, "sk": {"S": "1-a#unit#0000"}, "v": {"N": "1"}, "b": {"B": piece}}


def test_lines_are_what_reports_read() -> None:
    items = line_items("pk", "1-a#unit", LINES, 2**31)
    assert read_line_uses(items) == [use_of(line) for line in read_line_items(items)] == [use_of(one) for one in LINES]


def test_one_line_alone_is_stored_as_single_values() -> None:
    for line in LINES:
        assert read_line_uses(line_items("pk", "1-a#unit", [line], 2**31)) == [use_of(line)]


def test_the_older_form_is_read() -> None:
    plain = [line for line in LINES if not line.shared_from]
    assert read_line_uses([form_1(plain)]) == [use_of(line) for line in plain]
