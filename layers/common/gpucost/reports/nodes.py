"""GPU nodes hour by hour: what each cost, who held what of it, and what nobody held."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.core.errors import ParameterError
from gpucost.core.hours import format_instant
from gpucost.core.ledger import Manifest
from gpucost.core.model import ClusterCharge, Costs, Line, NodeHour
from gpucost.core.query.cost_query import HOURS_OF_LINES
from gpucost.core.query.paging import fingerprint, read_cursor
from gpucost.core.query.periods import Period
from gpucost.storage.ports import ReportedHours

DEFAULT_NODES, MAX_NODES_PER_PAGE = 500, 2_000
"""Rows of a page."""
_NODE_POSITIONS_PER_HOUR = 1_000_000
"""More than an hour ever has: places in the list are hour × this + node."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node's hour, or what was paid for without a node."""

    cluster: str
    hour: datetime
    currency: str
    record: NodeHour | ClusterCharge
    holders: tuple[Line, ...] | None = ()
    """Lines on the node; None where they cannot be told from those of another node of the same name and hour."""
    position: int = 0
    """In the list of all rows of the question."""

    def held_costs(self) -> Costs | None:
        """What the holders cost together."""
        return None if self.holders is None else Costs.total(line.costs() for line in self.holders)


@dataclass(frozen=True, slots=True)
class NodePage:
    """A page of nodes."""

    period: Period
    rows: list[NodeRow]
    is_last: bool
    next_position: int
    """Of the row that would follow."""
    etag: str


class NodeReports:
    """Reads nodes hour by hour, so that a page costs what it shows.

    Args:
        ledger: hours, as the caller may see them.
    """

    def __init__(self, ledger: ReportedHours) -> None:
        self._ledger = ledger

    def page(self, period: Period, clusters: Sequence[str], *, limit: int, cursor: str | None) -> NodePage:
        """Rows in order of hour, cluster and node.

        Raises:
            ParameterError: a period longer than 48 hours, or a cursor of another question.
        """
        if period.hours() > HOURS_OF_LINES:
            raise ParameterError(period.given_by, f"nodes are answered for at most {HOURS_OF_LINES} hours at once")
        hours = sorted(
            (one for name in clusters for one in self._ledger.manifests(name, period.start, period.end)),
            key=lambda one: (one.hour, one.cluster),
        )
        question = f"nodes {format_instant(period.start)} {format_instant(period.end)} {list(clusters)} {limit}"
        seal = fingerprint(question, (f"{one.cluster} {format_instant(one.hour)} {one.version}" for one in hours))
        place = read_cursor(cursor, seal)
        at, skip = divmod(place, _NODE_POSITIONS_PER_HOUR)
        rows: list[NodeRow] = []
        for number, manifest in enumerate(hours[at:], at):
            if len(rows) > limit:
                break
            own = self._rows(manifest, number)
            rows += own[skip if number == at else 0 :]
        more = rows[limit:]
        return NodePage(period, rows[:limit], not more, more[0].position if more else 0, seal)

    def _rows(self, manifest: Manifest, number: int) -> list[NodeRow]:
        nodes, charges = self._ledger.nodes_of(manifest)
        if not nodes and not charges:
            return []
        held: dict[str, list[Line]] = {}
        for line in self._ledger.lines_of(manifest):
            held.setdefault(line.node, []).append(line)
        cluster, hour, currency = manifest.cluster, manifest.hour, manifest.currency
        names = Counter(node.node for node in nodes)
        rows = [
            NodeRow(
                cluster, hour, currency, node,
                None if names[node.node] > 1 and node.node in held else tuple(held.get(node.node, ())),
            )
            for node in nodes
        ]  # fmt: skip
        rows += [NodeRow(cluster, hour, currency, charge) for charge in charges]
        return [
            NodeRow(row.cluster, row.hour, row.currency, row.record, row.holders, number * _NODE_POSITIONS_PER_HOUR + place)
            for place, row in enumerate(rows)
        ]
