"""Tests of the golden answers' tools: comparison, recorded files."""

from decimal import Decimal
from pathlib import Path

import pytest

from tests.golden import fixtures, recording, scenarios
from tests.golden.compare import OF_THE_RUN, differences, split
from tests.golden.metrics import Metrics
from tests.golden.scenarios import NAMES


@pytest.mark.parametrize(
    ("expected", "actual", "count"),
    [
        ({"a": Decimal("1.50")}, {"a": Decimal("1.5")}, 0),
        ({"a": Decimal("1.5")}, {"a": Decimal("1.500000000001")}, 1),
        ({"a": True}, {"a": Decimal(1)}, 1),
        ({"a": None}, {"a": Decimal(0)}, 1),
        ({"a": None}, {}, 1),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, 1),
        ({"a": "1"}, {"a": Decimal(1)}, 1),
    ],
)
def test_numbers_are_compared_exactly(expected: object, actual: object, count: int) -> None:
    assert len(list(differences(expected, actual))) == count


def test_texts_are_separate_and_run_specific_values_are_excluded() -> None:
    problem = {"status": 400, "detail": "window: required", "cursor": "abc", "errors": [{"detail": "no"}]}
    answer, texts = split({"body": problem, "about": {"detail": "2026-11 spent 50%"}, "active": [{"b": 2}, {"a": 1}]})
    assert answer == {
        "body": {"status": 400, "detail": "(text)", "cursor": OF_THE_RUN, "errors": [{"detail": "(text)"}]},
        "about": {"detail": "2026-11 spent 50%"},
        "active": [{"a": 1}, {"b": 2}],
    }
    assert texts == {".body.detail": "window: required", ".body.errors[0].detail": "no"}


def test_queries_match_despite_spaces_and_order_of_alternatives() -> None:
    key = '["query", "up{job=~\\"a|b\\"}", "time=1.000"]'
    metrics = Metrics({key: {"type": "vector", "samples": 1, "rows": []}})
    assert metrics.answer("query", "query=up{job%3D~%22b|a%22}&time=1.000&stats=true")[0] == 200
    assert metrics.answer("query", "query=up{job%3D~%22b|c%22}&time=1.000")[0] == 400
    assert len(metrics.missing) == 1


def test_files_are_the_same_bytes_each_time_and_within_the_limit(tmp_path: Path) -> None:
    document = {f"step {number}": {"amount": Decimal(number) / 7, "at": number} for number in range(2000)}
    first = [path.read_bytes() for path in fixtures.write("x", document, tmp_path)]
    assert first == [path.read_bytes() for path in fixtures.write("x", dict(reversed(document.items())), tmp_path)]
    assert fixtures.read("x", tmp_path) == document
    assert sum(path.stat().st_size for path in fixtures.FOLDER.iterdir()) < 6_000_000
    assert max(path.stat().st_size for path in fixtures.FOLDER.iterdir()) < 500_000


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in {"fleet", "months"} else name for name in NAMES]
)
def test_scenarios_still_write_the_recorded_metrics(name: str, tmp_path: Path) -> None:
    """Otherwise nothing could be recorded again."""
    scenarios.module(name).write_metrics(tmp_path)
    assert fixtures.read(f"{name}.inputs", exact=False)["metrics"] == recording.metrics_digest(tmp_path)
