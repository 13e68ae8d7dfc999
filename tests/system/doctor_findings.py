"""Helpers to read the reports of `gpucost doctor` in tests."""

from collections.abc import Callable
from decimal import Decimal

from gpucost_cli.doctor import ClusterReport
from gpucost_cli.doctor.checks import Check

Examine = Callable[..., ClusterReport]
GR = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def document(url: str, *, more: str = "", clusters: str = "") -> str:
    clusters = clusters or f'[{{name: demo, prometheus: {{url: "{url}"}}}}]'
    return f"clusters: {clusters}\npricing: {{source: constant, gpu_hourly_usd: 12}}\n{more}"


def named(report: ClusterReport, name: str, metric: str = "") -> Check:
    checks = [check for check in report.checks if check.name == name and metric in {"", check.metric}]
    assert len(checks) == 1, [check.name for check in report.checks]
    return checks[0]


def faults(report: ClusterReport) -> dict[str, Check]:
    """Checks with a problem that no other one explains, by name."""
    return {check.name: check for check in report.checks if check.change and not check.explained_by}


def only(report: ClusterReport, name: str, *, says: str, change: str, status: str = "faulty") -> Check:
    """The only fault of a cluster, with its line to change."""
    by_name = faults(report)
    assert set(by_name) == {name}
    check = by_name[name]
    assert check.status == status
    assert says in (check.finding or "")
    assert change in (check.change or "")
    return check


def sources(report: ClusterReport) -> list[tuple[str | None, str, Decimal]]:
    return [(held.signal, held.source, held.gpus) for held in report.utilization]
