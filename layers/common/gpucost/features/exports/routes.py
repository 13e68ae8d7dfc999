"""Routes of the exports."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.core.query.periods import parse_moment_parameter
from gpucost.features.exports.listing import ExportListing, ListedExport
from gpucost.http.access import open_to
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import Instant, ResponseModel

Start = Annotated[str, Query(description="First UTC day of the period", examples=["2026-11-01T00:00:00Z"])]
End = Annotated[
    str,
    Query(description="End of the period, itself not in it; at most 100 days later", examples=["2026-12-01T00:00:00Z"]),
]

Cluster = Annotated[
    str | None, Query(description="Only this cluster; all of the settings where not given", examples=["demo"])
]


class ExportRow(ResponseModel):
    """One cluster's exported UTC day: FOCUS 1.3 rows, hour by hour."""

    day: Instant
    cluster: str
    version: int = Field(description="Counts the exports of this day, from 1")
    status: Literal["complete", "provisional", "incomplete"] = Field(
        description="Of the day's hours when it was exported"
    )
    is_current: bool = Field(
        description="Whether the figures are those in force; false: restated since, and exported again within a day"
    )
    rows: int
    parquet_bytes: int
    csv_bytes: int = Field(description="Compressed with gzip")
    currency: str = Field(description="Of every amount in it", examples=["USD"])
    exported_at: Instant
    parquet_url: str = Field(description="Address to download the Parquet file from; asks for no signature")
    csv_url: str = Field(description="The same rows as gzipped CSV, whose cells start no formula")
    urls_expire_at: Instant = Field(description="When both addresses stop working; ask again for new ones")


class ExportsResponse(ResponseModel):
    """What `/v1/exports` answers."""

    start: Instant
    end: Instant
    rows: list[ExportRow]
    cursor: None


def add_export_routes(app: APIGatewayHttpResolver, listing: Callable[[], ExportListing]) -> None:
    """Put the routes on an app; the listing is made when it is first asked."""

    @app.get("/v1/exports", summary="Exported days, to download", tags=["exports"], responses=responses(ExportsResponse))
    @open_to("viewer")
    def exports(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Days that are exported as FOCUS 1.3 rows, each with short-lived addresses of its files.

        A day that is not listed was not exported yet. Exports hold the rows of all business units.
        """
        first, last = parse_moment_parameter("start", start), parse_moment_parameter("end", end)
        return json_response(exports_response(first, last, listing().exports(first, last, cluster)))


def exports_response(start: datetime, end: datetime, rows: list[ListedExport]) -> dict[str, Any]:
    """As `ExportsAnswer`."""
    return {"start": start, "end": end, "rows": [_export_row(row) for row in rows], "cursor": None}


def _export_row(row: ListedExport) -> dict[str, Any]:
    exported = row.exported
    return {
        "day": exported.day,
        "cluster": exported.cluster,
        "version": exported.version,
        "status": exported.status,
        "is_current": row.is_current,
        "rows": exported.rows,
        "parquet_bytes": exported.parquet_bytes,
        "csv_bytes": exported.csv_bytes,
        "currency": exported.currency,
        "exported_at": exported.exported_at,
        "parquet_url": row.parquet_url,
        "csv_url": row.csv_url,
        "urls_expire_at": row.urls_expire_at,
    }
