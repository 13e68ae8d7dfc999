"""Lines of the ledger: single pods in single hours, each with how its figures were found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.core.errors import ParameterError
from gpucost.core.ledger import Manifest
from gpucost.core.model import Line
from gpucost.core.query.cost_query import HOURS_OF_LINES, CostQuery
from gpucost.core.query.filters import Filter, matching
from gpucost.core.query.paging import fingerprint, read_cursor
from gpucost.storage.ports import ReportedHours

DEFAULT_LINES, MAX_LINES_PER_PAGE = 500, 2_000
"""Rows of a page."""
LINE_FILTERS = ("business_unit", "namespace", "workload", "pod", "node", "node_pool")
_LINE_POSITIONS_PER_HOUR = 1_000_000
"""More than an hour ever has: places in the list are hour × this + line."""


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line and the hour that it is of."""

    cluster: str
    hour: datetime
    currency: str
    line: Line
    position: int
    """In the list of all lines of the question's hours, filtered or not."""


@dataclass(frozen=True, slots=True)
class LinePage:
    """A page of lines."""

    query: CostQuery
    rows: list[LineRow]
    next_position: int | None
    """Of the row that would follow; None after the last."""
    etag: str


class LineReports:
    """Reads lines hour by hour, so that a page costs what it shows.

    Args:
        ledger: hours, as the caller may see them.
    """

    def __init__(self, ledger: ReportedHours) -> None:
        self._ledger = ledger

    def page(self, question: CostQuery, clusters: Sequence[str], whose: object, cursor: str | None) -> LinePage:
        """Lines in order of hour, cluster, and the hour's own order.

        Args:
            question: period, filters of `LINE_FILTERS`, limit.
            clusters: of the answer, in order of name.
            whose: what the caller may see, so that a cursor fits nobody else's answer.
            cursor: of the page before.

        Raises:
            AccessDeniedError: a business unit that the caller may not see is asked for.
            ParameterError: a period longer than 48 hours, or a cursor of another question.
        """
        period = question.period
        if period.hours() > HOURS_OF_LINES:
            raise ParameterError(period.given_by, f"lines are answered for at most {HOURS_OF_LINES} hours at once")
        hours = sorted(
            (
                one
                for name in clusters
                for one in self._ledger.manifests(name, period.start, period.end)
                if one.status != "incomplete"
            ),
            key=lambda one: (one.hour, one.cluster),
        )
        versions = (f"{one.cluster} {one.hour:%FT%H} {one.version}" for one in hours)
        seal = fingerprint(f"lines {question.text()} {list(clusters)} {whose}", versions)
        at, skip = divmod(read_cursor(cursor, seal), _LINE_POSITIONS_PER_HOUR)
        rows: list[LineRow] = []
        for number, manifest in enumerate(hours[at:], at):
            if len(rows) > question.limit:
                break
            for place, line in enumerate(self._lines(manifest, question)):
                if (number > at or place >= skip) and _passes(question.filters, line):
                    where = number * _LINE_POSITIONS_PER_HOUR + place
                    rows.append(LineRow(manifest.cluster, manifest.hour, manifest.currency, line, where))
        more = rows[question.limit :]
        return LinePage(question, rows[: question.limit], more[0].position if more else None, seal)

    def _lines(self, manifest: Manifest, question: CostQuery) -> list[Line]:
        units = question.only_units()
        if units is None:
            return self._ledger.lines_of(manifest)
        return [line for unit in sorted(units) for line in self._ledger.lines_of(manifest, unit)]


def _passes(filters: Sequence[Filter], line: Line) -> bool:
    return matching(filters, LINE_FILTERS, [getattr(line, name) for name in LINE_FILTERS])
