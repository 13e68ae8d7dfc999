"""Queries and panels that the dashboards on recorded rules share."""

from collections.abc import Sequence
from dataclasses import dataclass

from authoring.grafana.building import Panel, cost_parts_panel, live_note, promql_query, time_series_panel, with_size


@dataclass(frozen=True)
class Level:
    """Queries of the recorded series of a level (docs/how-to/grafana.md).

    Attributes:
        name: `cluster`, `node_pool`, `business_unit`, `namespace`.
        matchers: label matchers, without braces.
    """

    name: str
    matchers: str

    def series(self, record: str, matchers: str = "") -> str:
        """Select a recorded series, for example `allocated_gpus:sum` or `utilization:ratio`."""
        return f"{self.name}:gpucost_{record}{{{self.matchers}{',' if matchers else ''}{matchers}}}"

    def sum(self, record: str, by: str = "") -> str:
        """Sum a recorded series by labels."""
        return _sum(self.series(record), by)

    def part(self, name: str, by: str = "") -> str:
        """Sum the GPUs of one part of the cost by labels."""
        return _sum(self.series("gpus:sum", f'part="{name}"'), by)


def _sum(series: str, by: str) -> str:
    return f"sum by ({by}) ({series})" if by else f"sum({series})"


def query_panel(
    title: str,
    unit: str,
    expression: str,
    legend: str = "",
    description: str = "",
    *,
    width: int = 12,
    height: int = 8,
    maximum: float | None = None,
    stacked: bool = False,
) -> Panel:
    """Build a panel with one query over time."""
    panel = time_series_panel(title, unit, description, stacked=stacked)
    panel = panel if maximum is None else panel.max(maximum)
    return with_size(panel.with_target(promql_query(expression, legend)), width, height)


def cost_parts_panels(title: str, level: Level, description: str) -> Sequence[Panel]:
    """Build the panel of a level's GPUs by part of the cost, with the explanation of live figures."""
    return [
        with_size(cost_parts_panel(title, level.sum("gpus:sum", "part"), description), 16, 10),
        with_size(live_note(), 8, 10),
    ]
