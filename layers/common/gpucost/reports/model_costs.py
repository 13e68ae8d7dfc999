"""Reports the costs and tokens of models, summed from hours."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from msgspec import Struct

from gpucost.core.costs_by_model import LOAD_PERCENTILES, ModelSum, TokenLoad, TokenWeights, condensed, load_percentiles
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import UNKNOWN_IF_EMPTY, ModelHour
from gpucost.core.query.cost_query import CostQuery, parse_sort, write_cursor
from gpucost.core.query.dimensions import MODEL_DIMENSIONS, GroupKey, matches_all, parse_filter, parse_group_by
from gpucost.core.query.periods import Period, check_period_length, parse_period
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import PeriodCosts, PeriodCoverage
from gpucost.storage.ports import PublishedHours

MAX_MODEL_ROWS = 1_000_000
"""Most stored rows that one report is summed from: what can be read in half of 29 seconds."""
_MAX_ROWS_OF_CELL = 256
"""Stored rows that a cell holds before it adds them up."""
MODEL_FIGURES = tuple(ModelSum.of([]).figures(TokenWeights()))
"""The names of the figures of a row and of the totals."""
ROW_FIGURES = (*MODEL_FIGURES, *LOAD_PERCENTILES)
"""The names of the figures of a row."""


class ModelRow(NamedTuple):
    """One group's costs and tokens in one period."""

    start: datetime
    end: datetime
    group: Mapping[str, str | None]
    """By dimension; None for an unknown model, server or consumer."""
    figures: Mapping[str, Decimal | int | None]


class InferenceReport(Struct, frozen=True):
    """A page of a report on models. Totals, filtered-out costs and coverage are those of the whole report."""

    query: CostQuery
    rows: list[ModelRow]
    row_count: int
    totals: Mapping[str, Decimal | int | None] | None
    """None if no hour has inference servers."""
    filtered_out: Mapping[str, Decimal | int | None] | None
    coverage: PeriodCoverage
    hours_with_servers: int
    currency: str
    offset: int
    etag: str

    def cursor_after(self, count: int) -> str | None:
        """Return the cursor of the page that begins after this many rows of the page; None after the last row."""
        position = self.offset + count
        return write_cursor(position, self.etag) if position < self.row_count else None

    @property
    def period(self) -> Period:
        """The query's period."""
        return self.query.period


class ModelCells(NamedTuple):
    """The stored rows that match a query, by the start of the report's row and the values of the query's dimensions."""

    cells: Mapping[tuple[datetime, GroupKey], Sequence[ModelHour]]
    loads: Mapping[tuple[datetime, GroupKey], Mapping[datetime, TokenLoad]]
    """Of rows whose tokens are known, by hour, with the keys of the cells."""
    excluded: Sequence[ModelHour]
    """The sums of rows that the filters exclude."""
    hours_with_servers: int

    def rows(self, query: CostQuery, weights: TokenWeights) -> tuple[list[ModelRow], list[ModelHour], list[ModelHour]]:
        """Return the sorted rows, everything that was read, and what the filters exclude."""
        count = len(query.group_by)
        groups: dict[tuple[datetime, GroupKey], list[ModelHour]] = {}
        loads: dict[tuple[datetime, GroupKey], dict[datetime, TokenLoad]] = {}
        everything = [*self.excluded]
        for (begin, key), hours in self.cells.items():
            everything += hours
            groups.setdefault((begin, key[:count]), []).extend(hours)
            of_group = loads.setdefault((begin, key[:count]), {})
            for hour, load in self.loads.get((begin, key), {}).items():
                of_group[hour] = _sum(of_group.get(hour, TokenLoad()), load)
        rows = [
            ModelRow(
                begin,
                query.row_end(begin),
                {
                    name: text if text or name not in UNKNOWN_IF_EMPTY else None
                    for name, text in zip(query.group_by, key, strict=True)
                },
                ModelSum.of(groups[begin, key]).figures(weights) | load_percentiles(loads[begin, key].values()),
            )
            for begin, key in sorted(groups)
        ]
        return _sort_rows(rows, query.sort), everything, [*self.excluded]


def parse_inference_query(
    parameters: QueryParameters, now: datetime, published_until: Callable[[], datetime] | None = None
) -> CostQuery:
    """Parse and check the parameters.

    Raises:
        ParameterError: names the wrong parameter and what is allowed.
    """
    period = parse_period(parameters.start, parameters.end, parameters.window, now, published_until=published_until)
    check_period_length(period, parameters.granularity)
    group_by = parse_group_by(parameters.group_by, (), MODEL_DIMENSIONS)
    return CostQuery(
        period=period,
        granularity=parameters.granularity,
        group_by=group_by,
        filters=tuple(parse_filter(name, text) for name, text in parameters.filters.items() if text is not None),
        sort=parse_sort(parameters.sort, group_by, "hidden", ROW_FIGURES),
        limit=parameters.limit,
    )


def read_models(
    query: CostQuery,
    clusters: Sequence[str],
    ledger: PublishedHours,
    totals: PeriodCosts,
    max_rows: int = MAX_MODEL_ROWS,
) -> ModelCells:
    """Read the costs by model of a query's hours.

    Args:
        query: the query.
        clusters: cluster names, sorted.
        ledger: the hours that the caller may see.
        totals: receives the versions and coverage of the hours.
        max_rows: the most stored rows that match the query's filters.

    Raises:
        InvalidInputError: the report would be summed from too many rows.
    """
    dimensions = query.dimensions()
    cells: dict[tuple[datetime, GroupKey], list[ModelHour]] = {}
    loads: dict[tuple[datetime, GroupKey], dict[datetime, TokenLoad]] = {}
    excluded: list[ModelHour] = []
    row_count = hours_with_servers = 0
    for name in clusters:
        manifests = ledger.manifests(name, query.period.start, query.period.end)
        totals.add_manifests(manifests)
        totals.currencies |= {manifest.currency for manifest in manifests if manifest.status != "incomplete"}
        for hour, models in ledger.models_of(manifests).items():
            begin = query.row_start(hour)
            hours_with_servers += 1
            others: list[ModelHour] = []
            for model in models:
                key = tuple(
                    name if dimension == "cluster" else getattr(model.key, dimension) for dimension in dimensions
                )
                if not matches_all(query.filters, dimensions, key):
                    others.append(model)
                    continue
                row_count += 1
                of_key = cells.setdefault((begin, key), [])
                of_key.append(model)
                if len(of_key) > _MAX_ROWS_OF_CELL:
                    of_key[:] = condensed(of_key)
                if model.prompt_tokens is not None:
                    tokens = model.prompt_tokens + (model.generated_tokens or 0)
                    of_cell = loads.setdefault((begin, key), {})
                    load = TokenLoad(tokens, model.costs.allocated_gpu_hours)
                    of_cell[hour] = _sum(of_cell.get(hour, TokenLoad()), load)
            excluded = condensed([*excluded, *others])
            if row_count > max_rows:
                raise InvalidInputError(
                    f"the report would be summed from more than {max_rows:,} rows. Shorten the period, select "
                    "one cluster, or filter by business unit, namespace or model."
                )
    return ModelCells(cells, loads, excluded, hours_with_servers)


def _sum(first: TokenLoad, second: TokenLoad) -> TokenLoad:
    return TokenLoad(first.tokens + second.tokens, first.gpu_hours + second.gpu_hours)


def _sort_rows(rows: list[ModelRow], order: Sequence[tuple[str, bool]]) -> list[ModelRow]:
    """Sort rows by several keys, the last key first because sorting is stable; unknown names and figures come last."""
    for name, is_descending in reversed(order):
        keyed = [
            (row.start if name == "start" else row.group[name] if name in row.group else row.figures[name], row)
            for row in rows
        ]
        sortable = sorted(
            (pair for pair in keyed if pair[0] is not None),
            key=lambda pair: pair[0],  # type: ignore[arg-type, return-value]
            reverse=is_descending,
        )
        rows = [row for _, row in sortable] + [row for key, row in keyed if key is None]
    return rows
