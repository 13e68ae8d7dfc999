"""What dashboards on recorded rules share: a level's figures as queries, and their panels."""

from collections.abc import Sequence
from dataclasses import dataclass

from authoring.grafana.building import Panel, live_note, of_parts, over_time, query, wide


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


def course(
    title: str,
    unit: str,
    expression: str,
    legend: str = "",
    description: str = "",
    *,
    width: int = 12,
    height: int = 8,
    most: float | None = None,
    stacked: bool = False,
) -> Panel:
    """One query over time, in a panel of a size."""
    panel = over_time(title, unit, description, stacked=stacked)
    panel = panel if most is None else panel.max(most)
    return wide(panel.with_target(query(expression, legend)), width, height)


def parts_over_time(title: str, level: Level, description: str) -> Sequence[Panel]:
    """What became of a level's GPUs, beside what live figures are and are not."""
    return [wide(of_parts(title, level.sum("gpus:sum", "part"), description), 16, 10), wide(live_note(), 8, 10)]
