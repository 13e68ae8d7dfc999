"""Recommendations read the same lines as reports on costs."""

from gpucost.storage import compressed_documents
from gpucost.storage.hour_items import line_items, read_compact_lines, read_line_items
from tests.features.recommendations import simulated_fleet as sim
from tests.records import amount, compact_line_of

(RECORD,) = sim.simulate(sim.fleet(1, 24, 1), 1)
ODD = RECORD.lines[0]._replace(
    allocated_usd=None,
    effective_gpu_hours=None,
    utilization=None,
    shared_from="platform",
    unmeasured_gpu_hours=amount("0.333333333333"),
)
LINES = [*RECORD.lines, ODD]


def test_compact_lines_are_those_of_the_stored_lines() -> None:
    items = line_items("pk", "1-a#unit", LINES, 2**31)
    assert (
        read_compact_lines(items)
        == [compact_line_of(line) for line in read_line_items(items)]
        == [compact_line_of(written) for written in LINES]
    )


def test_single_line_is_stored_as_single_cells() -> None:
    for line in LINES:
        items = line_items("pk", "1-a#unit", [line], 2**31)
        assert read_line_items(items) == [line]
        assert read_compact_lines(items) == [compact_line_of(line)]


def test_claims_are_stored_only_where_there_are_any() -> None:
    plain, claiming = LINES[0], LINES[1]._replace(resource_claim="gpu", dra_driver="gpu.nvidia.com")
    assert "resource_claim" not in compressed_documents.unpack(line_items("pk", "1-a#unit", [plain], 2**31))["columns"]
    assert read_line_items(line_items("pk", "1-a#unit", [plain, claiming], 2**31)) == [plain, claiming]
