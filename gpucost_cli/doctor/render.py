"""The reports as tables and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gpucost.runtime.json_text import decimal_text, dumps
from gpucost_cli.doctor import Attribution, Report
from gpucost_cli.doctor.checks import Check
from gpucost_cli.rendering import printable

_SEVERITIES = ("required", "recommended", "optional")
_STYLES = {"missing": "red", "faulty": "red", "found": "green", "not needed": "dim"}


_SUMMARIES: Mapping[Attribution, str] = {
    "possible": "attribution is possible",
    "wrong": "attribution would give wrong figures",
    "impossible": "attribution is impossible",
}


def document(reports: Iterable[Report]) -> dict[str, Any]:
    """`{"clusters": [{cluster, possible, verdict, checks, utilization}]}`."""
    return {
        "clusters": [
            {
                "cluster": report.cluster,
                "possible": report.possible,
                "verdict": report.attribution,
                "checks": list(report.checks),
                "utilization": list(report.utilization),
            }
            for report in reports
        ]
    }


def as_json(reports: Iterable[Report]) -> str:
    """The document as text."""
    return dumps(document(reports), indent=2)


def as_tables(reports: Iterable[Report]) -> Iterable[Table | str]:
    """Per cluster: every check, which rung would be used for how many GPUs, then findings with the line to change.

    Clusters of one Prometheus that does not answer are named together, without tables.
    """
    unanswered: dict[tuple[str | None, str | None], list[Report]] = {}
    for report in reports:
        if report.is_unreachable:
            (check,) = report.checks
            unanswered.setdefault((check.finding, check.change), []).append(report)
    for same in unanswered.values():
        yield printable(f"{', '.join(report.cluster for report in same)}: {_SUMMARIES['impossible']}")
        yield from _findings(same[0])
    for report in reports:
        if report.is_unreachable:
            continue
        yield _checks_table(report)
        if report.utilization:
            yield _utilization_table(report)
        yield from _findings(report)


def _checks_table(report: Report) -> Table:
    table = Table(
        title=escape(f"{report.cluster}: {_SUMMARIES[report.attribution]}"), box=box.SIMPLE_HEAD, title_justify="left"
    )
    table.add_column("check", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("series", justify="right", no_wrap=True)
    table.add_column("scraped every", justify="right", no_wrap=True)
    for check in report.checks:
        style = (
            "yellow"
            if check.status in {"missing", "faulty"} and check.severity == "optional"
            else _STYLES[check.status]
        )
        table.add_row(
            printable(_check_title(check)), f"[{style}]{check.status}[/]", check.severity,
            "" if check.series is None else str(check.series), _seconds(check.scrape_interval_seconds),
        )  # fmt: skip
    return table


def _utilization_table(report: Report) -> Table:
    table = Table(title="how use would be told", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("signal", overflow="fold")
    table.add_column("rung")
    table.add_column("GPUs held", justify="right")
    for one in report.utilization:
        table.add_row(printable(one.signal or "—"), one.source, f"{one.gpus:,.3f}")
    return table


def _findings(report: Report) -> Iterable[str]:
    """Worst first; what one line changes stands together."""
    told = [check for check in report.checks if check.finding]
    if not any(check.change for check in told):
        yield "nothing to change"
    by_change: dict[str | None, list[Check]] = {}
    for check in sorted(told, key=_urgency):
        by_change.setdefault(check.change, []).append(check)
    for change, checks in by_change.items():
        yield "\n".join(
            [
                *(f"{_mark(check)}: {printable(check.finding or '')}" for check in checks),
                *([f"    → {printable(change)}"] if change else []),
            ]
        )


def _urgency(check: Check) -> tuple[bool, int]:
    return check.change is None, _SEVERITIES.index(check.severity)


def _mark(check: Check) -> str:
    return check.severity if check.status in {"missing", "faulty"} else "note"


def _check_title(check: Check) -> str:
    return check.name if check.metric in {"", check.name} else f"{check.name} ({check.metric})"


def _seconds(interval: Decimal | None) -> str:
    return "" if interval is None else f"{decimal_text(interval)} s"


def problem_summary(reports: Sequence[Report], *, with_reasons: bool) -> str:
    """One sentence about the clusters that cannot be attributed rightly; blank where there are none.

    Args:
        reports: of all clusters.
        with_reasons: whether to give the reason of each; tables give it already.
    """
    parts = []
    for verdict in ("impossible", "wrong"):
        affected = [report for report in reports if report.attribution == verdict]
        if affected and with_reasons:
            reasons: dict[str, list[str]] = {}
            for report in affected:
                reasons.setdefault(report.first_problem, []).append(report.cluster)
            named = "; ".join(f"cluster {', '.join(clusters)}: {reason}" for reason, clusters in reasons.items())
            parts.append(f"{_SUMMARIES[verdict]}: {named}")
        elif affected:
            parts.append(f"{_SUMMARIES[verdict]} for cluster {', '.join(report.cluster for report in affected)}")
    return "; ".join(parts)
