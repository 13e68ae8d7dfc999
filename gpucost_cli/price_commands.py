"""`gpucost prices`: the price book of a deployment, listed, refreshed and corrected under the caller's own IAM."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, get_args

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_hour, format_instant
from gpucost.core.pricing.prices import FACTS, PRICE_SOURCES, Price, PriceUnit
from gpucost.runtime.json_text import csv_text, decimal_text, dumps
from gpucost_cli.options import TimeType, author, stack_option

INVOCATION_SECONDS = 310
"""A little longer than the function may take."""
LARGEST = Decimal(10) ** 9
LONGEST_TEXT = 500
COLUMNS = ("id", "source", "applies_to", "unit", "amount", "currency", "from", "to", "fetched_at", "author", "reason")
EVENTS = ("at", "event", "id", "source", "applies_to", "price", "from", "to", "author", "why", "settled_at")


@click.group()
def prices() -> None:
    """The price book of a deployment."""


_format = click.option(
    "--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"])
)


@prices.command("list")
@stack_option
@click.option("--from", "--start", "start", type=TimeType(), help="start of the period; this hour where not given")
@click.option("--to", "--end", "end", type=TimeType(), help="end of the period; an hour later where not given")
@click.option("--source", type=click.Choice(PRICE_SOURCES), help="only this one")
@click.option("--instance-type", help="only prices that can apply to it")
@_format
def list_(
    stack: str, start: datetime | None, end: datetime | None, source: Any, instance_type: str | None, form: str
) -> None:
    """Prices in force: fetched from AWS, or set by hand. Those of the settings are in the settings."""
    from gpucost.api.price_schemas import price_row
    from gpucost.reports.prices import PriceListing

    first = start or floor_hour(datetime.now(UTC))
    listing = PriceListing(_book(stack))
    page = listing.page(first, end or first + HOUR, source=source, instance_type=instance_type, limit=0)
    _show(form, "prices", COLUMNS, [price_row(row) for row in page.rows])


@prices.command("set")
@stack_option
@click.option("--match", "matches", multiple=True, metavar="FACT=PATTERN", help="which nodes; may be repeated")
@click.option("--amount", required=True, help="money per hour, or the factor")
@click.option("--unit", required=True, type=click.Choice(get_args(PriceUnit)), help="what the amount is for")
@click.option("--currency", default="USD", show_default=True)
@click.option("--from", "--start", "start", type=TimeType(), help="from when on; this hour where not given")
@click.option("--to", "--end", "end", type=TimeType(), help="until when; until further notice where not given")
@click.option("--reason", required=True, help="why, kept in the history")
def set_(
    stack: str, matches: Sequence[str], amount: str, unit: Any, currency: str, start: datetime | None,
    end: datetime | None, reason: str,
) -> None:  # fmt: skip
    """Set a price by hand; hours of the past are rated again with it."""

    now = datetime.now(UTC).replace(microsecond=0)
    price = Price(
        source="override",
        unit=unit,
        amount=_amount(amount),
        applies_to=_facts(matches),
        currency=_currency(currency),
        valid_from=start or floor_hour(now),
        valid_to=end,
        fetched_at=now,
        author=author(),
        reason=_text("--reason", reason),
    )
    if price.valid_to is not None and price.valid_from is not None and price.valid_to <= price.valid_from:
        raise InvalidInputError("--to must be after --from")
    override = _book(stack).set_override(price, now=now)
    click.echo(f"override {override.id} is in force from {_when(price.valid_from)} to {_when(price.valid_to)}")
    _say_when(price.valid_from, now)


@prices.command()
@click.argument("override_id", metavar="ID")
@stack_option
@click.option("--at", type=TimeType(), help="when its validity ends; now where not given")
@click.option("--reason", required=True, help="why, kept in the history")
def drop(override_id: str, stack: str, at: datetime | None, reason: str) -> None:
    """End the validity of a price set by hand; at or before its beginning it was never in force."""

    now = datetime.now(UTC).replace(microsecond=0)
    override = _book(stack).drop_override(
        override_id, at=at or now, author=author(), reason=_text("--reason", reason), now=now
    )
    ends = override.price.valid_to
    click.echo(f"override {override.id} ends at {_when(ends)}")
    if ends is not None and ends <= now and at is None:
        click.echo("it had ended before; --at with an earlier time takes back what it has priced")
    elif ends is not None:
        _say_when(ends, now)


def _say_when(start: datetime | None, now: datetime) -> None:
    if start is None or start < floor_hour(now):
        click.echo("hours of the past are rated again with the next hour's tick; `gpucost restate` does it at once")


@prices.command()
@stack_option
@click.option("--source", type=click.Choice(["spot", "on-demand", "shapes", "cur"]), help="only this one")
@click.option("--month", "months", multiple=True, metavar="YYYY-MM", help="of the bill, closed or not; may be repeated")
def refresh(stack: str, source: str | None, months: Sequence[str]) -> None:
    """Fetch prices from AWS now, by the deployment's own function."""
    from devstack.demo_records import is_demo
    from gpucost_cli import deployment
    from gpucost_cli.invocation import invoke, run_here

    found = deployment.find(stack)
    if months and source not in (None, "cur"):
        raise InvalidInputError("--month goes with --source cur")
    event = {"version": 1, "source": "cur" if months else source, "months": list(months)}
    if is_demo(stack):
        variables = {"GPUCOST_TABLE": found.table, "GPUCOST_PRICE_SOURCES": ",".join(found.price_sources)}
        refreshed = run_here(stack, "PricesFunction", "prices", variables, event)["refreshed"]
    else:
        refreshed = invoke(found.prices_function, event, seconds=INVOCATION_SECONDS)["refreshed"]
    if not refreshed:
        click.echo(
            "nothing was refreshed; the stack's parameters SpotPrices, OnDemandPrices, InstanceShapes and BillPrices "
            "say what is fetched"
        )
    for name, count in refreshed.items():
        click.echo(f"{name}: {count} new or changed")


@prices.command()
@stack_option
@click.option("--from", "--start", "start", type=TimeType(), help="changes made since; 30 days where not given")
@click.option("--to", "--end", "end", type=TimeType(), help="changes made before; now where not given")
@_format
def history(stack: str, start: datetime | None, end: datetime | None, form: str) -> None:
    """Every price set or dropped by hand, and every change of past hours, newest first."""
    last = end or datetime.now(UTC)
    first = start or last - timedelta(days=30)
    book = _book(stack)
    rows: list[dict[str, Any]] = []
    for one in book.overrides():
        price = one.price
        shown = {
            "id": one.id,
            "source": "override",
            "applies_to": dict(price.applies_to),
            "price": f"{decimal_text(Decimal(str(price.amount)))} {price.currency} {price.unit}",
            "from": price.valid_from,
            "settled_at": None,
        }
        rows.append({**shown, "at": price.fetched_at, "event": "set", "to": one.set_to, "author": price.author,
                     "why": price.reason})  # fmt: skip
        if one.dropped_at is not None:
            rows.append({**shown, "at": one.dropped_at, "event": "dropped", "to": price.valid_to,
                         "author": one.dropped_by, "why": one.drop_reason})  # fmt: skip
    for change in book.changes(first, last):
        rows.append({"at": change.at, "event": "changed the past", "id": change.id, "source": change.source,
                     "applies_to": {name: ", ".join(values) for name, values in change.applies_to.items()},
                     "price": "", "from": change.start, "to": change.end, "author": change.author, "why": change.why,
                     "settled_at": change.settled_at})  # fmt: skip
    rows = [{name: row[name] for name in EVENTS} for row in rows if first <= row["at"] < last]
    _show(form, "history", EVENTS, sorted(rows, key=lambda row: (row["at"], row["event"]), reverse=True))


def _show(form: str, name: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    if form == "json":
        sys.stdout.write(dumps({name: rows}, indent=2) + "\n")
    elif form == "csv":
        cells = [
            [dumps(value) if isinstance(value, dict) else value for value in map(row.get, columns)] for row in rows
        ]
        sys.stdout.write(csv_text(columns, cells))
    else:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        from gpucost_cli.rendering import printable

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        used = [column for column in columns if any(row[column] not in (None, "") for row in rows)] or list(columns)
        for column in used:
            table.add_column(
                column.replace("_", " "),
                justify="right" if column == "amount" else "left",
                no_wrap=column == "id",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(printable(_cell(row[column])) for column in used))
        Console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items()) or "every node"
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    return "" if value is None else str(value)


def _facts(matches: Sequence[str]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for match in matches:
        name, is_given, pattern = match.partition("=")
        if name not in FACTS or not is_given or not pattern:
            raise InvalidInputError(f"--match {match!r} is not FACT=PATTERN; facts are {', '.join(FACTS)}")
        if name in facts:
            raise InvalidInputError(f"--match names {name} twice")
        facts[name] = _text("--match", pattern)
    if not facts:
        raise InvalidInputError("at least one --match is needed; --match 'cluster=*' is every node")
    return facts


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    exponent = amount.as_tuple().exponent
    if not amount.is_finite() or not 0 < amount <= LARGEST or not isinstance(exponent, int) or exponent < -12:
        raise InvalidInputError(
            f"--amount {text!r} is not a positive number of at most {LARGEST} with at most 12 digits after the point"
        )
    return amount


def _currency(text: str) -> str:
    if len(text) != 3 or not (text.isascii() and text.isalpha() and text.isupper()):
        raise InvalidInputError(f"--currency {text!r} is not a code of three capitals like USD")
    return text


def _text(option: str, text: str) -> str:
    if not text.strip() or len(text) > LONGEST_TEXT:
        raise InvalidInputError(f"{option} needs 1 to {LONGEST_TEXT} characters")
    return text.strip()


def _when(moment: datetime | None) -> str:
    return "further notice" if moment is None else format_instant(moment)


def _book(stack: str) -> Any:
    from gpucost.runtime import aws
    from gpucost.storage.price_book import DynamoPriceBook
    from gpucost_cli import deployment

    table = deployment.find(stack).table
    return DynamoPriceBook(aws.client("dynamodb"), table)
