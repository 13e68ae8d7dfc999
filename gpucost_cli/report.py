"""What the API of a deployment answers, in a terminal."""

import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import requests
import simplejson
from rich import box
from rich.markup import escape
from rich.table import Table

from devstack.demo_records import is_demo
from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.http.pagination import NEXT_CURSOR
from gpucost.runtime.json_text import dumps
from gpucost_cli import deployment
from gpucost_cli import rendering as render
from gpucost_cli.aws_session import aws_credentials, aws_session
from gpucost_cli.signing_proxy import region_of


def show_units(*, stack: str | None, api: str | None, question: Mapping[str, str], form: str) -> None:
    """Print the business units' sums of a period.

    Raises:
        InvalidInputError: the API refuses the question; says why.
        GpuCostError: the API could not be asked.
    """
    url, signed = _address(stack, api)
    answer = ask(url, "/v1/business-units", question, signed=signed)
    if form == "json":
        sys.stdout.write(answer.text + "\n")
        return
    for part in tables(decode(answer.text)):
        render.print_table(part)


def show_costs(*, stack: str | None, api: str | None, question: Mapping[str, str], form: str) -> None:
    """Print what `/v1/costs` answers: all pages of it.

    Raises:
        As `show_units`.
    """
    (url, signed), cursor, rows = _address(stack, api), None, []
    while True:
        more = {"format": "csv"} if form == "csv" else {}
        more |= {"cursor": cursor} if cursor is not None else {}
        answer = ask(url, "/v1/costs", {**question, **more}, signed=signed)
        if form == "csv":
            # Every page has the header; one is enough.
            sys.stdout.write(answer.text if cursor is None else answer.text.partition("\r\n")[2])
            cursor = answer.headers.get(NEXT_CURSOR)
        else:
            document = decode(answer.text)
            rows += document["rows"]
            cursor = document["cursor"]
        if cursor is None:
            break
    if form == "json":
        sys.stdout.write(dumps({**document, "rows": rows}) + "\n")
    elif form == "table":
        for part in costs_tables({**document, "rows": rows}):
            render.print_table(part)


def _address(stack: str | None, api: str | None) -> tuple[str, bool]:
    """Where to ask, and whether to sign."""
    return api or deployment.find(str(stack)).api_url, api is None and not is_demo(str(stack))


def ask(url: str, path: str, question: Mapping[str, str], *, signed: bool) -> requests.Response:
    """GET an answer.

    Raises:
        InvalidInputError: the API refuses the question; says why.
        GpuCostError: the API could not be asked.
    """
    try:
        answer = requests.get(
            f"{url.rstrip('/')}{path}", params=question, timeout=60, auth=_signer(url) if signed else None
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
        return [*_default_window(document), f"no figures from {document['start']} to {document['end']}: {hours}"]
    units = {row["business_unit"]: row for row in rows}
    parts: list[Any] = [
        *_default_window(document),
        render.costs_table(f"{document['start']} to {document['end']}, {hours}", units, totals, document["currency"]),
    ]
    if (note := render.unpriced_note(totals)) is not None:
        parts.append(f"{note}; GET /v1/hours names the nodes")
    if totals.get("node_cost_usd") is not None:
        parts.append(render.identity_table(totals, document["currency"]))
    return parts


def costs_tables(document: Mapping[str, Any]) -> list[Any]:
    """An answer of `/v1/costs` as tables."""
    coverage, totals, currency = document["coverage"], document["totals"], document["currency"]
    hours = f"{coverage['hours_complete']} of {coverage['hours_expected']} hours complete"
    if totals.get("allocated_gpu_hours") is None:
        return [*_default_window(document), f"no figures from {document['start']} to {document['end']}: {hours}"]
    has_times, has_idle = document["granularity"] != "total", document["idle"] != "hidden"
    title = f"{document['start']} to {document['end']}, {hours}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name in (*(["from"] if has_times else []), *document["group_by"]):
        table.add_column(name.replace("_", " "), overflow="fold")
    figures = ("GPU-hours", "allocated", "effective", "waste", "unmeasured", "waste %")
    for name in (*figures, *(["idle", "cost"] if has_idle else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["rows"]:
        names = [*([row["start"]] if has_times else []), *map(render.printable, row["group"].values())]
        if row.get("kind") == "idle" and document["group_by"]:
            names[-1] = names[-1] or "(nobody)"
        table.add_row(*names, *_shown(row, currency, has_idle=has_idle))
    table.add_section()
    blank = [""] * (has_times + len(document["group_by"]) - 1)
    lead = 1 if has_times or document["group_by"] else 0
    if document["filtered_out"] is not None:
        left = _shown(document["filtered_out"], currency, has_idle=has_idle)
        table.add_row(*["filtered out"] * lead, *blank, *left)
    idle = {"idle_usd": None, "cost_usd": totals["node_cost_usd"]}
    if totals["node_cost_usd"] is not None:
        idle["idle_usd"] = totals["node_cost_usd"] - totals["allocated_usd"]
    every = _shown({**totals, **idle}, currency, has_idle=has_idle)
    table.add_row(*["all"] * lead, *blank, *every, style="bold")
    return [*_default_window(document), table]


def _default_window(document: Mapping[str, Any]) -> list[str]:
    """A sentence where no period was asked for."""
    if document["default_window"] is None:
        return []
    return ["the last 24 hours, as no period was given; others with --start and --end, --window or --days"]


def _shown(row: Mapping[str, Any], currency: str, *, has_idle: bool) -> list[str]:
    more = [render.money(row[name], currency) for name in ("idle_usd", "cost_usd")] if has_idle else []
    return [*render.cost_cells(row, currency), *more]


def _signer(url: str) -> Any:
    from requests_aws4auth import AWS4Auth

    session = aws_session()
    region = region_of(url, session.region_name)
    return AWS4Auth(region=region, service="execute-api", refreshable_credentials=aws_credentials(session))
