"""Prints reports of a deployment's API in a terminal."""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import requests
import simplejson
from rich import box
from rich.markup import escape
from rich.table import Table

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import GpuCostError, InvalidInputError, did_you_mean
from gpucost.core.hours import HOUR
from gpucost.core.query.dimensions import DIMENSIONS
from gpucost.http.responses import NEXT_CURSOR_HEADER
from gpucost.runtime.bounded_http import connection_problem
from gpucost.runtime.json_text import dumps
from gpucost_cli import deployment
from gpucost_cli import rendering as render
from gpucost_cli.aws_session import aws_credentials, aws_session
from gpucost_cli.report_parts import add_up_csv, add_up_parts
from gpucost_cli.signing_proxy import region_of
from gpucost_cli.usage_tables import parts_table
from gpucost_devstack.demo_records import is_demo


def show_units(*, stack: str | None, api: str | None, parameters: Mapping[str, str], output_format: str) -> None:
    """Print the costs of all business units in a period.

    Raises:
        InvalidInputError: the API rejects the parameters. The message says why.
        GpuCostError: the API is not reachable or fails.
    """
    url, signed = _api_address(stack, api)
    response = get_from_api(url, "/v1/business-units", parameters, signed=signed)
    if output_format == "json":
        sys.stdout.write(response.text + "\n")
        return
    for part in business_unit_tables(parse_json_exactly(response.text)):
        render.print_table(part)


def show_costs(*, stack: str | None, api: str | None, parameters: Mapping[str, str], output_format: str) -> None:
    """Print all pages of `/v1/costs`.

    Raises:
        As `show_units`.
    """
    document = _print_or_read_pages("/v1/costs", stack, api, parameters, output_format)
    if output_format == "table":
        if document["totals"].get("allocated_gpu_hours") and not any(
            row["allocated_gpu_hours"] for row in document["rows"]
        ):
            _check_filters(stack, api, parameters)
        for part in costs_tables(document):
            render.print_table(part)


def _check_filters(stack: str | None, api: str | None, parameters: Mapping[str, str]) -> None:
    """Compare filters that leave nothing with the names that there are.

    Raises:
        InvalidInputError: a name of a filter has no GPU-hours in the period.
    """
    url, signed = _api_address(stack, api)
    period = {name: parameters[name] for name in ("start", "end", "window", "cluster") if name in parameters}
    for dimension in sorted(set(DIMENSIONS) & parameters.keys() - period.keys()):
        if any(character in parameters[dimension] for character in "*?[!\\"):
            continue  # a pattern, or what is left out
        query = {**period, "granularity": "total", "group_by": dimension}
        rows = parse_json_exactly(get_from_api(url, "/v1/costs", query, signed=signed).text)["rows"]
        present = {str(row["group"][dimension]) for row in rows if row["allocated_gpu_hours"]}
        for name in parameters[dimension].split(","):
            if name not in present:
                meant = (
                    did_you_mean(name, sorted(present)) or f"Those with GPU-hours: {', '.join(sorted(present)[:10])}"
                )
                raise InvalidInputError(f"--filter {dimension}={name} has no GPU-hours in this period. {meant}")


def show_models(*, stack: str | None, api: str | None, parameters: Mapping[str, str], output_format: str) -> None:
    """Print all pages of `/v1/inference`.

    Raises:
        As `show_units`.
    """
    document = _print_or_read_pages("/v1/inference", stack, api, parameters, output_format)
    if output_format == "table":
        for part in models_tables(document):
            render.print_table(part)


def _print_or_read_pages(
    path: str, stack: str | None, api: str | None, parameters: Mapping[str, str], output_format: str
) -> dict[str, Any]:
    """Print all pages of a report as CSV or JSON, or return them as one document. Parts of a report are added up."""
    (url, signed), cursor, rows = _api_address(stack, api), None, []
    document: dict[str, Any] = {}
    pages: list[str] = []
    while True:
        page_parameters = {"format": "csv"} if output_format == "csv" else {}
        page_parameters |= {"cursor": cursor} if cursor is not None else {}
        response = get_from_api(url, path, {**parameters, **page_parameters}, signed=signed)
        if output_format == "csv":
            # Every page has the CSV header, which is printed once.
            pages.append(response.text if cursor is None else response.text.partition("\r\n")[2])
            cursor = response.headers.get(NEXT_CURSOR_HEADER)
        else:
            document = parse_json_exactly(response.text)
            rows += document["rows"]
            cursor = document["cursor"]
        if cursor is None:
            break
    if document.get("row_count", 0) is None:
        rows = add_up_parts(rows, parameters.get("sort", ""))
        document["row_count"] = len(rows)
    document = {**document, "rows": rows}
    if output_format == "csv":
        sys.stdout.write(pages[0] if len(pages) == 1 else add_up_csv("".join(pages)))
    if output_format == "json":
        sys.stdout.write(dumps(document) + "\n")
    return document


def _api_address(stack: str | None, api: str | None) -> tuple[str, bool]:
    """Return the API's URL, and whether requests must be signed."""
    return api or deployment.find_deployment(str(stack)).api_url, api is None and not is_demo(str(stack))


def get_from_api(url: str, path: str, parameters: Mapping[str, str], *, signed: bool) -> requests.Response:
    """Send a GET request and return the response.

    Raises:
        InvalidInputError: the API rejects the parameters. The message says why.
        GpuCostError: the API is not reachable or fails.
    """
    try:
        response = requests.get(
            f"{url.rstrip('/')}{path}", params=parameters, timeout=60, auth=_signer(url) if signed else None
        )
    except requests.RequestException as error:
        raise GpuCostError(f"the API at {url} is not reachable: {connection_problem(error)}") from error
    if response.ok:
        return response
    try:
        problem = response.json()
        faults = [f"{_option_of(error['parameter'])}: {error['detail']}" for error in problem.get("errors", ())]
        detail = str(problem.get("detail") or problem.get("message"))
    except ValueError:
        faults, detail = [], response.reason
    if faults and response.status_code == requests.codes.bad_request:
        raise InvalidInputError("; ".join(faults))
    error_class = InvalidInputError if response.status_code in {400, 404} else GpuCostError
    raise error_class(f"the API at {url} returned {response.status_code}: {detail}")


def _option_of(parameter: str) -> str:
    """The option of `gpucost report` that sets a parameter of the API."""
    if parameter in {"start", "end", "window", "cluster", "group_by", "granularity", "idle", "sort"}:
        return "--" + parameter.replace("_", "-")
    return f"--filter {parameter}"


def parse_json_exactly(text: str) -> dict[str, Any]:
    """Parse a JSON response with exact numbers."""
    document: dict[str, Any] = simplejson.loads(text, parse_float=parse_decimal, parse_int=parse_decimal)
    return document


def complete_hours(document: Mapping[str, Any]) -> str:
    """How many hours of a response's period and clusters are complete. Each cluster has its own hours."""
    coverage = document["coverage"]
    period = datetime.fromisoformat(document["end"]) - datetime.fromisoformat(document["start"])
    clusters = int(coverage["hours_expected"]) // max(period // HOUR, 1)
    unit = "cluster-hours" if clusters > 1 else "hours"
    return f"{coverage['hours_complete']} of {coverage['hours_expected']} {unit} complete"


def unit_page(api: str, unit: str, period: Mapping[str, str]) -> str:
    """Return the address of a business unit's view of the page, for the period of a response."""
    times = urlencode({"start": period["start"], "end": period["end"]}, safe=":")
    return f"{api}/#/unit/{quote(unit, safe='')}?{times}"


def _incomplete_note(document: Mapping[str, Any]) -> list[str]:
    """Return a note on where the reasons are if some hours are not complete."""
    coverage = document["coverage"]
    if coverage["hours_complete"] == coverage["hours_expected"]:
        return []
    return ["Why hours are not complete: GET /v1/hours, or Data health in the dashboard."]


def business_unit_tables(document: dict[str, Any]) -> list[Any]:
    """Render a response of `/v1/business-units` as tables and notes."""
    rows, totals = document["rows"], document["totals"]
    hours = complete_hours(document)
    if totals.get("allocated_gpu_hours") is None:
        no_figures = f"no figures from {document['start']} to {document['end']}: {hours}"
        return [*_default_window_note(document), no_figures, *_incomplete_note(document)]
    units = {row["business_unit"]: row for row in rows}
    parts: list[Any] = [
        *_default_window_note(document),
        render.costs_table(f"{document['start']} to {document['end']}, {hours}", units, totals, document["currency"]),
    ]
    if (note := render.unpriced_note(totals)) is not None:
        parts.append(f"{note}. GET /v1/hours names the nodes.")
    if (note := render.energy_note(totals)) is not None:
        parts.append(note)
    if totals.get("node_cost_usd") is not None:
        parts.append(parts_table(totals, document["currency"]))
    return parts + _incomplete_note(document)


def costs_tables(document: Mapping[str, Any]) -> list[Any]:
    """Render a response of `/v1/costs` as tables and notes."""
    totals, currency = document["totals"], document["currency"]
    hours = complete_hours(document)
    if totals.get("allocated_gpu_hours") is None:
        no_figures = f"no figures from {document['start']} to {document['end']}: {hours}"
        return [*_default_window_note(document), no_figures, *_incomplete_note(document)]
    has_times, has_idle = document["granularity"] != "total", document["idle"] != "hidden"
    title = f"{document['start']} to {document['end']}, {hours}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name in (*(["from"] if has_times else []), *document["group_by"]):
        table.add_column(name.replace("_", " "), overflow="fold")
    measured = render.measured_columns(totals)
    figures = (*render.COST_COLUMNS, *(["idle", "cost"] if has_idle else []))
    for name in (*figures, *measured.values()):
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["rows"]:
        names = [*([row["start"]] if has_times else []), *map(render.printable, row["group"].values())]
        if row.get("kind") == "idle" and document["group_by"]:
            names[-1] = names[-1] or "(idle)"
        table.add_row(*names, *_cost_cells(row, currency, measured, has_idle=has_idle))
    table.add_section()
    blank = [""] * (has_times + len(document["group_by"]) - 1)
    label_columns = 1 if has_times or document["group_by"] else 0
    if document["filtered_out"] is not None:
        filtered_out = _cost_cells(document["filtered_out"], currency, measured, has_idle=has_idle)
        table.add_row(*["filtered out"] * label_columns, *blank, *filtered_out)
    idle = {"idle_usd": None, "cost_usd": totals["node_cost_usd"]}
    if totals["node_cost_usd"] is not None:
        idle["idle_usd"] = totals["node_cost_usd"] - totals["allocated_usd"]
    fleet = _cost_cells({**totals, **idle}, currency, measured, has_idle=has_idle)
    table.add_row(*["all"] * label_columns, *blank, *fleet, style="bold")
    energy = render.energy_note(totals)
    energy_notes = [] if energy is None else [energy]
    return [*_default_window_note(document), table, *energy_notes, *_incomplete_note(document)]


def models_tables(document: Mapping[str, Any]) -> list[Any]:
    """Render a response of `/v1/inference` as tables and notes."""
    totals, currency, hours = document["totals"], document["currency"], complete_hours(document)
    period = f"{document['start']} to {document['end']}"
    if totals is None:
        no_servers = (
            f"no inference servers from {period}: {hours}. Set inference: {{enabled: true}} in the settings; gpucost "
            "doctor says which servers count tokens"
        )
        return [*_default_window_note(document), no_servers, *_incomplete_note(document)]
    has_times = document["granularity"] != "total"
    title = f"{period}, {hours}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name in (*(["from"] if has_times else []), *document["group_by"]):
        table.add_column(name.replace("_", " "), overflow="fold")
    for name in MODEL_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["rows"]:
        names = [
            render.printable(name or ("(none)" if dimension == "consumer" else "(unknown)"))
            for dimension, name in row["group"].items()
        ]
        table.add_row(*([row["start"]] if has_times else []), *names, *_model_cells(row, currency))
    table.add_section()
    labels = [""] * (has_times + len(document["group_by"]))
    table.add_row(*["all", *labels[1:]][: len(labels)], *_model_cells(totals, currency), style="bold")
    return [*_default_window_note(document), table, *_incomplete_note(document)]


MODEL_COLUMNS = (
    "cost",
    "serving",
    "waiting",
    "prompt tokens",
    "generated",
    "per million",
    "generated, per million",
    "at full use",
)
"""Of a million tokens, the last three: prompt and generated; generated; generated, without the cost of waiting."""


def _model_cells(row: Mapping[str, Any], currency: str) -> list[str]:
    costs = ("allocated_usd", "effective_usd", "waste_usd")
    unit_costs = (
        "usd_per_million_tokens",
        "usd_per_million_generated_tokens",
        "usd_per_million_generated_tokens_at_full_use",
    )
    tokens = (row["prompt_tokens"], row["generated_tokens"])
    return [
        *(render.money(row[name], currency) for name in costs),
        *("unknown" if count is None else f"{int(count):,}" for count in tokens),
        *(render.money(row[name], currency) for name in unit_costs),
    ]


def _default_window_note(document: Mapping[str, Any]) -> list[str]:
    """Return a note if the default window was used."""
    if document["default_window"] is None:
        return []
    return ["last 24 hours (default); select another period with --start and --end, --window or --days"]


def _cost_cells(row: Mapping[str, Any], currency: str, measured: Iterable[str], *, has_idle: bool) -> list[str]:
    idle_cells = [render.money(row[name], currency) for name in ("idle_usd", "cost_usd")] if has_idle else []
    return [*render.cost_cells(row, currency), *idle_cells, *render.measured_cells(row, measured)]


def _signer(url: str) -> Any:
    from requests_aws4auth import AWS4Auth

    session = aws_session()
    region = region_of(url, session.region_name)
    return AWS4Auth(region=region, service="execute-api", refreshable_credentials=aws_credentials(session))
