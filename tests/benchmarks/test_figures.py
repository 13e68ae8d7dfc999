"""The report's arithmetic, and a report on a small part."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.figures import Figure, against, called, exponent, run_process


def test_aim_applies_to_the_ratio_if_there_is_a_floor() -> None:
    assert Figure("f", 3, "s", floor=2, aim=1.5).is_met() is True
    assert Figure("f", 3.1, "s", floor=2, aim=1.5).is_met() is False
    assert Figure("f", 3, "s", aim=1.5).is_met() is False
    assert Figure("f", 3, "s", floor=2).is_met() is None


def test_ratio_is_the_median_of_the_turns() -> None:
    """A slow turn of the machine affects both: 4 ÷ 2, 40 ÷ 20 and 5 ÷ 1."""
    figure = against("f", [4, 40, 5], [2, 20, 1], None)
    assert (figure.value, figure.ratio) == (5, 2)


def test_exponent_of_a_power_law_is_fitted() -> None:
    assert exponent((size, 7 * size**1.5) for size in (1, 10, 200)) == pytest.approx(1.5)
    assert exponent([(100, 2), (1_000, 2)]) == pytest.approx(0)


def test_processor_time_excludes_waiting() -> None:
    asleep = run_process([sys.executable, "-S", "-c", "import time; time.sleep(0.5)"])
    assert asleep.seconds > 0.5 > asleep.processor_seconds


def large() -> None:
    """Runs in a separate process."""
    sys.stdout.write(f"{len(bytes(range(256)) * 4096 * 80)}\n")


def test_memory_excludes_the_parent_process() -> None:
    ours = b"x" * (200 * 2**20)
    usage = called("tests.benchmarks.test_figures:large")
    assert len(ours) == 200 * 2**20
    assert usage.output.strip() == str(80 * 2**20)
    assert 80 < usage.peak_mib < 160


def test_report_runs_a_part_in_a_separate_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    assert main(["--quick", "--only", "recommendations", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    (part,) = report["parts"].values()
    assert (report["quick"], part["failed"]) == (True, False)
    aimed = [figure for figure in part["figures"] if figure["aim"]]
    assert [figure["name"].rpartition(": ")[2] for figure in aimed] == ["processor time", "peak memory"]
    assert f"{sum(figure['is_met'] for figure in aimed)} of 2 aims met" in capsys.readouterr().out
