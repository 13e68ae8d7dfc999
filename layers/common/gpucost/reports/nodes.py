"""Reports GPU nodes by hour, page by page: each node's cost, its lines, and what was not allocated."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import ClusterCharge, Line, NodeHour
from gpucost.core.hours import format_timestamp
from gpucost.core.ledger import Manifest
from gpucost.core.query.cost_query import MAX_LINE_HOURS
from gpucost.core.query.paging import etag_of_query
from gpucost.core.query.periods import Period
from gpucost.reports.pages import ReportPage, read_page
from gpucost.storage.ports import PublishedHours

DEFAULT_NODES, MAX_NODES_PER_PAGE = 500, 2_000
"""Rows per page."""


class NodeRow(Struct, frozen=True):
    """One hour of a node, or a charge that belongs to no node, such as unused reserved capacity."""

    manifest: Manifest
    """Its hour."""
    node_or_charge: NodeHour | ClusterCharge
    holders: Sequence[Line] | None = ()
    """Lines on the node; None if another node had the same name in that hour, because lines name only the node."""


class NodeReports:
    """Reads nodes hour by hour, so that a page reads only the hours it shows.

    Args:
        ledger: the hours that the caller may see.
    """

    def __init__(self, ledger: PublishedHours) -> None:
        self._ledger = ledger

    def page(self, period: Period, clusters: Sequence[str], *, limit: int, cursor: str | None) -> ReportPage[NodeRow]:
        """Return rows in order of hour, cluster and node.

        Raises:
            ParameterError: a period longer than 48 hours, or the cursor of another query.
        """
        if period.hours() > MAX_LINE_HOURS:
            raise ParameterError(
                period.parameter,
                f"the period has more than {MAX_LINE_HOURS} hours, the maximum for nodes. Shorten the period.",
            )
        manifests = sorted(
            (manifest for name in clusters for manifest in self._ledger.manifests(name, period.start, period.end)),
            key=lambda manifest: (manifest.hour, manifest.cluster),
        )
        query = f"nodes {format_timestamp(period.start)} {format_timestamp(period.end)} {list(clusters)} {limit}"
        etag = etag_of_query(
            query, (f"{hour.cluster} {format_timestamp(hour.hour)} {hour.version}" for hour in manifests)
        )
        return read_page(manifests, self._rows, lambda _: True, limit=limit, cursor=cursor, etag=etag)

    def _rows(self, manifest: Manifest) -> list[NodeRow]:
        nodes, charges = self._ledger.nodes_and_charges_of(manifest)
        if not nodes and not charges:
            return []
        holders: dict[str, list[Line]] = {}
        for line in self._ledger.lines_of(manifest):
            holders.setdefault(line.node, []).append(line)
        name_counts = Counter(node.node for node in nodes)
        rows: list[NodeRow] = []
        for node in nodes:
            is_ambiguous = name_counts[node.node] > 1 and node.node in holders
            rows.append(NodeRow(manifest, node, None if is_ambiguous else holders.get(node.node, ())))
        return rows + [NodeRow(manifest, charge) for charge in charges]
