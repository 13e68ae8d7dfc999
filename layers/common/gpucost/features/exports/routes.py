"""Routes of the exports."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.core.query.periods import parse_moment_parameter
from gpucost.features.exports.listing import ExportListing, ListedExport
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.routes import open_to
from gpucost.http.schemas import Instant, ResponseModel

Start = Annotated[str, Query(description="First UTC day of the period", examples=["2026-11-01T00:00:00Z"])]
End = Annotated[
    str,
    Query(description="End of the period, exclusive; at most 100 days after start", examples=["2026-12-01T00:00:00Z"]),
]

Cluster = Annotated[str | None, Query(description="Only this cluster. Default: all clusters", examples=["demo"])]


class ExportRow(ResponseModel):
    """One cluster's exported UTC day: FOCUS 1.3 rows, hour by hour."""

    day: Instant
    cluster: str
    version: int = Field(description="Number of exports of this day so far")
    status: Literal["complete", "provisional", "incomplete"] = Field(
        description="Status of the day's hours at the time of the export"
    )
    is_current: bool = Field(
        description="Whether the figures are current. False after a restatement; the day is exported again within a day"
    )
    rows: int
    parquet_bytes: int
    csv_bytes: int = Field(description="Size of the gzip file")
    inference_rows: int | None = Field(
        description="Rows of costs by model; 0 if no inference server was seen, null if exported before that table was "
        "added"
    )
    inference_bytes: int | None = Field(description="Size of the Parquet file of costs by model")
    currency: str = Field(description="Currency of every amount", examples=["USD"])
    exported_at: Instant
    parquet_url: str = Field(description="Presigned URL of the Parquet file")
    csv_url: str = Field(description="Presigned URL of the same rows as gzipped CSV, with formulas escaped")
    inference_url: str | None = Field(description="Presigned URL of the Parquet file of costs by model")
    urls_expire_at: Instant = Field(description="When the URLs expire. A new request returns new ones")


class ExportsResponse(ResponseModel):
    """GET /v1/exports."""

    start: Instant
    end: Instant
    rows: list[ExportRow]
    cursor: None


def add_export_routes(app: APIGatewayHttpResolver, listing: Callable[[], ExportListing]) -> None:
    """Register the routes. The listing is made on its first use."""

    @app.get(
        "/v1/exports",
        summary="Exported days with download URLs",
        tags=["exports"],
        responses=describe_responses(ExportsResponse),
    )
    @open_to("viewer")
    def exports(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Days exported as FOCUS 1.3 rows, each with short-lived URLs of its files.

        Days that are not listed have not been exported yet. Exports contain the rows of all business units.
        """
        first, last = parse_moment_parameter("start", start), parse_moment_parameter("end", end)
        return json_response(exports_response(first, last, listing().exports(first, last, cluster)))


def exports_response(start: datetime, end: datetime, rows: list[ListedExport]) -> dict[str, Any]:
    """Return the fields of `ExportsResponse`."""
    return {"start": start, "end": end, "rows": [_export_row(row) for row in rows], "cursor": None}


def _export_row(row: ListedExport) -> dict[str, Any]:
    exported = row.exported_day
    return {
        "day": exported.day,
        "cluster": exported.cluster,
        "version": exported.export_version,
        "status": exported.status,
        "is_current": row.is_current,
        "rows": exported.row_count,
        "parquet_bytes": exported.parquet_bytes,
        "csv_bytes": exported.csv_bytes,
        "inference_rows": exported.inference_row_count,
        "inference_bytes": exported.inference_bytes,
        "currency": exported.currency,
        "exported_at": exported.exported_at,
        "parquet_url": row.parquet_url,
        "csv_url": row.csv_url,
        "inference_url": row.inference_url,
        "urls_expire_at": row.urls_expire_at,
    }
