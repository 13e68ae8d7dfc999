"""The route of costs and tokens by model."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from pydantic import Field

from gpucost.api.cost_schemas import Currency, RowCount
from gpucost.core.amounts import Costs
from gpucost.core.hour_record import ModelKey
from gpucost.core.query.cost_query import MAX_PAGE_SIZE
from gpucost.core.query.periods import Granularity
from gpucost.http import report_parameters as parameters
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import csv_page, json_lines_page, json_page
from gpucost.http.responses import describe_responses
from gpucost.http.schemas import (
    Amount,
    CostFigures,
    Instant,
    NextCursor,
    PeriodCoverageModel,
    PeriodResponse,
    coverage_fields,
    period_fields,
)
from gpucost.reports.model_costs import MODEL_FIGURES, ROW_FIGURES, InferenceReport
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.report_service import ReportService
from gpucost.runtime.json_text import dumps_row

TOKEN_COUNTS = ("prompt_tokens", "generated_tokens", "cached_tokens", "requests")
UNIT_COSTS = tuple(name for name in MODEL_FIGURES if name not in (*Costs.names(), *TOKEN_COUNTS))
_DESCRIPTIONS = {
    "unknown_tokens_usd": "The part of allocated_usd of pods whose tokens are unknown. Unit costs leave it out",
    "usd_per_million_tokens": "Allocated cost of 1,000,000 prompt and generated tokens, as it was",
    "usd_per_million_prompt_tokens": "Of prompt tokens that are not from a cache, by the weights of the settings",
    "usd_per_million_generated_tokens": "Of generated tokens, by the weights of the settings; null without any",
    "usd_per_million_cached_tokens": "Of prompt tokens from a cache; null without any, or if they are not counted",
    "usd_per_request": "Allocated cost of a request, as it was",
    "usd_per_million_tokens_at_full_use": "Without the cost of GPUs that waited: what it would be at full use",
    "tokens_per_gpu_second": "Prompt and generated tokens ÷ allocated GPU-seconds",
    "tokens_per_kwh": "Prompt and generated tokens ÷ energy of the GPUs; null if it was not measured",
}


class ModelFigures(CostFigures, amounts=UNIT_COSTS, nullable=UNIT_COSTS, descriptions=_DESCRIPTIONS, examples={}):
    """Costs and tokens. effective_usd is the cost of serving, waste_usd the cost of waiting.

    Unit costs are null without tokens, requests or a price.
    """

    prompt_tokens: int | None = Field(description="Including those from a cache; null if unknown", examples=[360000])
    generated_tokens: int | None = Field(description="Null if unknown", examples=[72000])
    cached_tokens: int | None = Field(description="Prompt tokens from a cache; null if unknown", examples=[108000])
    requests: int | None = Field(description="Null if unknown", examples=[720])


class ModelRowModel(ModelFigures):
    """One group's figures in one period."""

    tokens_per_gpu_second_p50: Amount | None = Field(
        description="Median of the hours' tokens per GPU-second, by nearest rank, each hour once. Only hours whose "
        "tokens are known; hours without tokens have the load 0",
        examples=[812.5],
    )
    tokens_per_gpu_second_p95: Amount | None = Field(description="The 95th percentile of the hours", examples=[2140])
    start: Instant
    end: Instant
    group: dict[str, str | None] = Field(
        description="Dimension → name, for the dimensions of group_by; null for pods without an inference server, and "
        "for the model of pods whose tokens are unknown. The consumer is null where it is unknown, or no requests came",
        examples=[{"model": "meta-llama/Llama-3.1-8B-Instruct"}],
    )


class InferenceResponse(PeriodResponse):
    """GET /v1/inference. Hours in which no inference server was seen add nothing."""

    granularity: Granularity
    group_by: list[str]
    currency: Currency
    rows: list[ModelRowModel]
    row_count: RowCount
    totals: ModelFigures | None = Field(description="Sums over the period; null if no hour has inference servers")
    filtered_out: ModelFigures | None = Field(
        description="What the filters exclude. The rows of all pages and this add up to the totals"
    )
    coverage: PeriodCoverageModel
    hours_with_servers: int = Field(description="Cluster-hours in which inference servers were seen")
    cursor: NextCursor


def add_inference_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the route. The service is made on its first use."""

    @app.get(
        "/v1/inference",
        summary="Costs and tokens by model",
        tags=["reports"],
        responses=describe_responses(
            InferenceResponse,
            extra_content={name: {"schema": {"type": "string"}} for name in ("text/csv", "application/jsonl")},
        ),
    )
    @open_to("bu")
    @parameters.with_filters(*ModelKey._fields)
    def inference(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "hour",
        group_by: parameters.ModelGroupBy = "",
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        sort: parameters.ModelSort = "",
        limit: parameters.Limit = MAX_PAGE_SIZE,
        cursor: parameters.Cursor = None,
        format: parameters.Format = "json",  # noqa: A002 - the parameter's public name
    ) -> Response[str]:
        """What models cost: the cost of the GPUs of inference servers, by model, with tokens and unit costs.

        Each hour's costs add up to those of `/v1/costs` in hours in which inference servers were seen. The period has
        at most 2,520 cluster-hours. The role `bu` sees the pods that its business units own; with the filter
        `consumer`, it sees instead what its business units used, whoever owns the pods.
        """
        query_parameters = QueryParameters(
            start=start,
            end=end,
            window=window,
            granularity=granularity,
            group_by=group_by,
            filters=filters,
            cluster=cluster,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        report = service().inference(query_parameters, scope=scope_of_caller(app))
        if format == "csv":
            return csv_page(*_table(report), report.cursor_after, "inference.csv", report.period)
        rows = (
            dumps_row({"start": row.start, "end": row.end, "group": row.group, **row.figures}) for row in report.rows
        )
        before = {
            **period_fields(report.period),
            "granularity": report.query.granularity,
            "group_by": report.query.group_by,
            "currency": report.currency,
        }
        after = {
            "row_count": report.row_count,
            "totals": report.totals,
            "filtered_out": report.filtered_out,
            "coverage": coverage_fields(report.coverage),
            "hours_with_servers": report.hours_with_servers,
        }
        if format == "json":
            return json_page(before, rows, report.cursor_after, after)
        return json_lines_page(before, rows, report.cursor_after, after, "inference.jsonl")


def _table(report: InferenceReport) -> tuple[list[str], list[list[Any]]]:
    header = ["start", "end", *report.query.group_by, *ROW_FIGURES]
    return header, [[row.start, row.end, *row.group.values(), *row.figures.values()] for row in report.rows]
