"""What dashboards on recorded rules share: a level's figures as queries, and their panels."""

from collections.abc import Sequence
from dataclasses import dataclass

from authoring.grafana.building import Panel, live_note, cost_parts_panel, time_series_panel, promql_query, with_size


@dataclass(frozen=True)
class Level:
    """Recorded figures of a level (docs/grafana.md), of what the dashboard's variables choose.

    Attributes:
        name: `cluster`, `node_pool`, `business_unit`, `namespace`.
        matchers: label matchers, without braces.
    """

    name: str
    matchers: str

    def series(self, record: str, matchers: str = "") -> str:
        """A recorded series: `allocated_gpus:sum`, `utilization:ratio`, …"""
        return f"{self.name}:gpucost_{record}{{{self.matchers}{',' if matchers else ''}{matchers}}}"

    def sum(self, record: str, by: str = "") -> str:
        """The sum of a recorded series, by labels."""
        return _sum(self.series(record), by)

    def part(self, name: str, by: str = "") -> str:
        """GPUs of one of the cost model's parts."""
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
    """One query over time, in a panel of a size."""
    panel = time_series_panel(title, unit, description, stacked=stacked)
    panel = panel if maximum is None else panel.max(maximum)
    return with_size(panel.with_target(promql_query(expression, legend)), width, height)


def cost_parts_panels(title: str, level: Level, description: str) -> Sequence[Panel]:
    """What became of a level's GPUs, beside what live figures are and are not."""
    return [with_size(cost_parts_panel(title, level.sum("gpus:sum", "part"), description), 16, 10), with_size(live_note(), 8, 10)]
