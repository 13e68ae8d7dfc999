"""Writes the rows of `/v1/costs` as JSON text, directly from fixed-point amounts, because reports have thousands."""

from collections.abc import Iterator
from datetime import datetime

from gpucost.core.amounts import Costs
from gpucost.reports.records import CostReport
from gpucost.runtime.json_text import dumps_row, figures_template, fixed_point_text

_FIGURES_TEMPLATE = figures_template(Costs.names())


def cost_rows_json(report: CostReport) -> Iterator[str]:
    """Yield each row as `cost_schemas.CostRow`. All rows of a report have the same dimensions, in the same order."""
    periods: dict[datetime, str] = {}
    groups: dict[tuple[str, ...], str] = {}
    has_idle = report.query.idle != "hidden"
    for row in report.rows:
        period = periods.get(row.start)
        if period is None:
            period = periods[row.start] = dumps_row({"start": row.start, "end": row.end})[:-1]
        names = tuple(row.group.values())
        group = groups.get(names)
        if group is None:
            group = groups[names] = dumps_row(row.group)
        figures = _FIGURES_TEMPLATE % tuple(map(fixed_point_text, row.costs.published_amounts()))
        if has_idle:
            yield f'{period}, "group": {group}, "kind": "{row.kind}"{figures}, {dumps_row(row.idle_figures())[1:]}'
        else:
            yield f'{period}, "group": {group}{figures}}}'
