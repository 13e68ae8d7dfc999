"""`gpucost serve --simulated`: the demo's clusters, through a real Prometheus and a folder, without AWS."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from gpucost.core.hours import HOUR, floor_hour
from gpucost.storage.ledger import Ledger
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_cli.simulated_fleet import running_fleet
from gpucost_devstack.fleet import demo, truth
from gpucost_devstack.installation import find_program
from tests.gpucost_command import in_this_process

NOW = floor_hour(datetime.now(UTC)) + timedelta(minutes=10)


def assert_figures_are_true(service: LocalService, table: SqliteTable, hour: datetime) -> None:
    """The oracle is the truth of the scenario, which knows nothing of metrics."""
    compared = 0
    for scenario in demo.scenarios(hour - HOUR, hour + HOUR):
        manifest = service.manifest(scenario.name, hour)
        assert manifest is not None
        if manifest.status == "incomplete":  # the weekly outage of a cluster
            continue
        (summary,) = Ledger(table).summaries_of([manifest])
        assert summary.totals is not None
        held = sum((line.allocated_gpu_hours.value for line in truth.true_hour(scenario, 1).lines), Fraction(0))
        figures = summary.totals.costs.figures()
        assert float(figures["allocated_gpu_hours"] or 0) == pytest.approx(float(held), rel=1e-9)
        assert manifest.status == "complete", "every node has a price"
        compared += 1
    assert compared >= 2


@pytest.mark.tools
def test_figures_are_those_of_the_scenario(tmp_path: Path) -> None:
    with running_fleet(NOW, 2 * HOUR) as fleet, SqliteTable(tmp_path) as table:
        service = LocalService(table, fleet.settings_text(), author="me", clock=lambda: NOW, secret_value=str)
        fleet.add_spot_prices(table, NOW)
        assert len(list(service.attribute_newest(1))) == len(demo.CLUSTERS)
        assert_figures_are_true(service, table, floor_hour(NOW) - HOUR)


@pytest.mark.nightly
def test_hour_that_ends_later_has_figures_of_the_scenario(tmp_path: Path) -> None:
    """Prometheus looks for new samples once a minute. The last whole hour is the one that ends."""
    times = [NOW - HOUR]
    with running_fleet(times[-1], 2 * HOUR) as fleet, SqliteTable(tmp_path) as table:
        service = LocalService(table, fleet.settings_text(), author="me", clock=lambda: times[-1], secret_value=str)
        fleet.add_spot_prices(table, times[-1])
        assert len(list(service.attribute_newest(1))) == len(demo.CLUSTERS)
        assert service.manifest(next(iter(demo.CLUSTERS)), floor_hour(NOW) - HOUR) is None
        times.append(NOW)
        fleet.simulate(NOW)
        fleet.add_spot_prices(table, NOW)
        service.run_schedule()
        assert_figures_are_true(service, table, floor_hour(NOW) - HOUR)


def test_simulated_excludes_a_prometheus() -> None:
    result = in_this_process("serve", "--simulated", "--prometheus", "http://127.0.0.1:9090")
    assert (result.returncode, result.stderr) == (
        2,
        "gpucost: --simulated has its own Prometheus. Pass it without --prometheus, --settings and their options\n",
    )


@pytest.mark.parametrize(("installed", "missing"), [((), "prometheus"), (("prometheus",), "promtool")])
def test_missing_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Sequence[str], missing: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in installed:
        (programs / name).symlink_to(find_program(name))
    monkeypatch.setenv("PATH", str(programs))
    result = in_this_process("serve", "--simulated", "--data", str(tmp_path / "ledger"))
    assert (result.returncode, result.stderr) == (
        1,
        f"gpucost: {missing} is not on the PATH. Install it. Debian and Ubuntu: apt-get install prometheus; "
        "macOS: brew install prometheus; Fedora: download it from https://prometheus.io/download/\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["programs"]
