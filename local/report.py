"""What the API of a deployment answers, in a terminal."""

import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import requests
import simplejson
from rich.console import Console

from gpucost.domain.hours import format_instant
from gpucost.errors import GpuCostError, InvalidInputError
from local import deployment, render
from local.aws import STACK


def show(*, stack: str | None, api: str | None, start: datetime, end: datetime, form: str) -> None:
    """Print the business units' sums of a period.

    Raises:
        InvalidInputError: the API refuses the period; says why.
        GpuCostError: the API could not be asked.
    """
    url = api or deployment.find(str(stack)).api_url
    answer = ask(url, start, end, signed=api is None and stack != STACK)
    if form == "json":
        sys.stdout.write(answer.text + "\n")
        return
    document = decode(answer.text)
    console = Console()
    for part in tables(document):
        console.print(part)


def ask(url: str, start: datetime, end: datetime, *, signed: bool) -> requests.Response:
    """GET the business units of a period."""
    period = {"start": format_instant(start), "end": format_instant(end)}
    try:
        answer = requests.get(
            f"{url.rstrip('/')}/v1/business-units", params=period, timeout=60, auth=_signer() if signed else None
        )
    except requests.RequestException as error:
        raise GpuCostError(f"the API at {url} could not be reached ({type(error).__name__})") from error
    if answer.ok:
        return answer
    try:
        told = answer.json()
        detail = str(told.get("detail") or told.get("message"))
    except ValueError:
        detail = answer.reason
    kind = InvalidInputError if answer.status_code in {400, 404} else GpuCostError
    raise kind(f"the API at {url} answered {answer.status_code}: {detail}")


def decode(text: str) -> dict[str, Any]:
    """An answer, numbers exact."""
    document: dict[str, Any] = simplejson.loads(text, parse_float=Decimal, parse_int=Decimal)
    return document


def tables(document: dict[str, Any]) -> list[Any]:
    """An answer of `/v1/business-units` as tables."""
    rows, totals, coverage = document["rows"], document["totals"], document["coverage"]
    hours = f"{coverage['hours_complete']} of {coverage['hours_expected']} hours complete"
    if totals.get("allocated_gpu_hours") is None:
        return [f"no figures from {document['start']} to {document['end']}: {hours}"]
    units = {row["business_unit"]: row for row in rows}
    unpriced = (totals.get("unpriced_gpu_hours") or 0) + (totals.get("unpriced_capacity_gpu_hours") or 0)
    parts: list[Any] = [
        render.costs_table(f"{document['start']} to {document['end']}, {hours}", units, totals, document["currency"])
    ]
    if unpriced:
        parts.append(
            f"note: {totals['unpriced_gpu_hours']:,.3f} of these GPU-hours, and "
            f"{totals['unpriced_capacity_gpu_hours'] or 0:,.3f} of the nodes', have no price and are in no amount; "
            "GET /v1/hours names the nodes"
        )
    if totals.get("node_cost_usd") is not None:
        parts.append(render.identity_table(totals, document["currency"]))
    return parts


def _signer() -> Any:
    import boto3
    from requests_aws4auth import AWS4Auth

    session = boto3.Session()
    own = session.get_credentials()
    if own is None:
        raise GpuCostError("no AWS credentials were found to sign the request with")
    return AWS4Auth(region=session.region_name or "us-east-1", service="execute-api", refreshable_credentials=own)
