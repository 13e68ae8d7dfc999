"""Prints the reports as tables and as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from textwrap import wrap
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gpucost.core.metering.instance_types import CATALOG_DAY
from gpucost.runtime.json_text import decimal_text, dumps
from gpucost_cli.doctor import Attribution, ClusterReport
from gpucost_cli.doctor.checks import Check
from gpucost_cli.doctor.findings import group_by_cause
from gpucost_cli.doctor.setup import CollectionSetup
from gpucost_cli.doctor.summary import Summary
from gpucost_cli.documentation import page_path
from gpucost_cli.rendering import printable

WIDTH = 100
"""Columns of sentences. What is to be pasted is never wrapped."""
_STYLES = {"missing": "red", "faulty": "red", "found": "green", "not needed": "dim", "unknown": "dim"}


_SUMMARIES: Mapping[Attribution, str] = {
    "possible": "attribution is possible",
    "wrong": "attribution would give wrong or incomplete figures",
    "impossible": "attribution is impossible",
}


def reports_document(reports: Iterable[ClusterReport]) -> dict[str, Any]:
    """The reports as `{"clusters": [{cluster, possible, attribution, conclusion, summary, findings, setup, …}]}`."""
    return {
        "clusters": [
            {
                "cluster": report.cluster,
                "possible": report.possible,
                "attribution": report.attribution,
                "conclusion": _SUMMARIES[report.attribution],
                "summary": _summary_sentences(report),
                "findings": _finding_texts(report),
                "setup": report.setup,
                "checks": list(report.checks),
                "utilization": list(report.utilization),
            }
            for report in reports
        ]
    }


def as_json(reports: Iterable[ClusterReport]) -> str:
    """The reports as JSON text."""
    return dumps(reports_document(reports), indent=2)


def as_tables(reports: Iterable[ClusterReport], *, verbose: bool = False) -> Iterable[Table | str]:
    """For each cluster, what can be attributed now, the utilization sources of held GPUs, and what to change.

    Clusters whose Prometheus does not answer are listed together. The last line is the day of the catalog of instance
    types.

    Args:
        reports: of all clusters.
        verbose: whether to list all checks, too.
    """
    unreachable: dict[tuple[str | None, str | None], list[ClusterReport]] = {}
    for report in reports:
        if report.is_unreachable:
            (check,) = report.checks
            unreachable.setdefault((check.finding, check.change), []).append(report)
    reachable = [report for report in reports if not report.is_unreachable]
    for same_check in unreachable.values():
        yield printable(f"{', '.join(report.cluster for report in same_check)}: {_SUMMARIES['impossible']}")
        yield from _findings(same_check[0])
    for report in reachable:
        yield printable(f"{report.cluster}: {_SUMMARIES[report.attribution]}")
        if summary := _summary_sentences(report):
            yield from _summary_lines(summary)
        if report.setup:
            yield printable(_describe_setup(report.setup))
        if report.utilization:
            yield _utilization_table(report)
        yield from _findings(report)
        if verbose:
            yield _checks_table(report)
    if reachable and not verbose:
        yield "gpucost doctor --verbose lists all checks"
    yield f"hardware catalog of {CATALOG_DAY}"


def _summary_sentences(report: ClusterReport) -> Summary | None:
    if report.summary and report.attribution == "impossible":
        return replace(report.summary, holding="unknown, see below")
    return report.summary


def _summary_lines(summary: Summary) -> Iterable[str]:
    for name, sentence in (("GPUs held", summary.holding), ("use", summary.use), ("price", summary.price)):
        yield _wrapped(f"  {name + ':':<10} {sentence}", " " * 13)


def _wrapped(text: str, indent: str) -> str:
    lines = wrap(printable(text), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _checks_table(report: ClusterReport) -> Table:
    table = Table(title=escape(f"checks of {report.cluster}"), box=box.SIMPLE_HEAD, title_justify="left")
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
            printable(_check_title(check)),
            f"[{style}]{check.status}[/]",
            check.severity,
            "" if check.series is None else str(check.series),
            _seconds(check.scrape_interval_seconds),
        )
    return table


def _describe_setup(setup: CollectionSetup) -> str:
    collectors = ", ".join(setup.collectors) or "unknown"
    return f"collector: {collectors}; server: {setup.server or 'unknown'} ({', '.join(map(page_path, setup.pages))})"


def _utilization_table(report: ClusterReport) -> Table:
    title = escape(f"utilization of held GPUs of {report.cluster}")
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("signal", overflow="fold")
    table.add_column("utilization source")
    table.add_column("GPUs held", justify="right")
    for held in report.utilization:
        table.add_row(printable(held.signal or "—"), held.source, f"{held.gpus:,.3f}")
    return table


def _findings(report: ClusterReport) -> Iterable[str]:
    """The findings, most severe first: each cause with what follows from it, and the line to change."""
    findings = _finding_texts(report)
    if not any(finding["change"] for finding in findings):
        yield "nothing to change"
    for finding in findings:
        lines = [_wrapped(f"{finding['severity']}: {finding['finding']}", "    ")]
        for title, key in (("the same change fixes", "same_change"), ("what follows", "consequences")):
            if finding[key]:
                lines.append(f"    {title}:")
                lines += [_wrapped(f"      - {sentence}", "        ") for sentence in finding[key]]
        if finding["change"]:
            lines.append(f"    → {printable(finding['change'])}")
        yield "\n".join(lines)


def _finding_texts(report: ClusterReport) -> list[dict[str, Any]]:
    """The sentences of the findings, for the terminal, for JSON and for the page of `gpucost serve`."""
    return [
        {
            "severity": finding.severity if finding.cause.status in {"missing", "faulty"} else "note",
            "finding": finding.cause.finding or "",
            "same_change": [_effect(check) for check in finding.same_change],
            "consequences": [_effect(check) for check in finding.consequences],
            "change": finding.cause.change,
        }
        for finding in group_by_cause(report.checks)
    ]


def _effect(check: Check) -> str:
    return check.effect or check.finding or ""


def _check_title(check: Check) -> str:
    return check.name if check.metric in {"", check.name} else f"{check.name} ({check.metric})"


def _seconds(interval: Decimal | None) -> str:
    return "" if interval is None else f"{decimal_text(interval)} s"


def problem_summary(reports: Sequence[ClusterReport], *, with_reasons: bool) -> str:
    """One sentence about the clusters that cannot be attributed correctly; blank if there are none.

    Args:
        reports: the reports of all clusters.
        with_reasons: whether to include the reasons, which tables show already.
    """
    parts = []
    attributions: tuple[Attribution, ...] = ("impossible", "wrong")
    for attribution in attributions:
        affected = [report for report in reports if report.attribution == attribution]
        if affected and with_reasons:
            reasons: dict[str, list[str]] = {}
            for report in affected:
                reasons.setdefault(report.first_problem, []).append(report.cluster)
            by_cluster = "; ".join(f"{_clusters(names)}: {reason}" for reason, names in reasons.items())
            parts.append(f"{_SUMMARIES[attribution]}: {by_cluster}")
        elif affected:
            parts.append(f"{_SUMMARIES[attribution]} for {_clusters([report.cluster for report in affected])}")
    return "; ".join(parts)


def _clusters(names: Sequence[str]) -> str:
    return f"{'cluster' if len(names) == 1 else 'clusters'} {', '.join(names)}"
