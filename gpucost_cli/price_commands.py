"""`gpucost prices`: lists, refreshes and corrects the price book of a deployment, under the caller's own IAM."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

import click

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost.core.pricing.prices import NODE_ATTRIBUTES, PRICE_SOURCES, Price, PriceUnit
from gpucost.runtime.json_text import csv_text, decimal_text, dumps
from gpucost_cli.options import TimeOption, check_period, container_of, current_user, format_option, stack_option

if TYPE_CHECKING:
    from gpucost.storage.price_book import PriceStore

INVOCATION_TIMEOUT_SECONDS = 310
"""A little longer than the function's timeout."""
MAX_AMOUNT = Decimal(10) ** 9
MAX_TEXT_LENGTH = 500
PRICE_COLUMNS = (
    "id",
    "source",
    "applies_to",
    "unit",
    "amount",
    "currency",
    "from",
    "to",
    "fetched_at",
    "author",
    "reason",
)
CHANGE_COLUMNS = ("at", "event", "id", "source", "applies_to", "price", "from", "to", "author", "why", "settled_at")


@click.group()
def prices() -> None:
    """List, set and refresh the prices of a deployment."""


@prices.command("list")
@stack_option
@click.option("--from", "--start", "start", type=TimeOption(), help="Start of the period.  [default: this hour]")
@click.option("--to", "--end", "end", type=TimeOption(), help="End of the period.  [default: an hour after the start]")
@click.option("--source", type=click.Choice(PRICE_SOURCES), help="Only prices of this source.")
@click.option("--instance-type", help="Only prices that can apply to this type.")
@format_option("table", "json", "csv")
def list_prices(
    stack: str, start: datetime | None, end: datetime | None, source: Any, instance_type: str | None, output_format: str
) -> None:
    """List the prices in force that were fetched from AWS or set by hand.

    Constant prices are in the settings document, not in this list.

    \b
    Example:
      gpucost prices list --stack gpucost --instance-type p5.48xlarge
    """
    from gpucost.api.report_schemas import price_row
    from gpucost.reports.pages import PriceBookListing

    first = start or floor_hour(datetime.now(UTC))
    listing = PriceBookListing(_price_book(stack))
    page = listing.page(first, end or first + HOUR, source=source, instance_type=instance_type, limit=0)
    _print_prices(output_format, "prices", PRICE_COLUMNS, [price_row(row) for row in page.rows])


@prices.command("set")
@stack_option
@click.option(
    "--match",
    "matches",
    multiple=True,
    metavar="ATTRIBUTE=PATTERN",
    help="Attribute of the nodes to which the price applies. May be repeated; all must match.",
)
@click.option("--amount", required=True, help="Amount per hour; with of-on-demand, the factor.")
@click.option("--unit", required=True, type=click.Choice(get_args(PriceUnit)), help="What the amount is for.")
@click.option("--currency", default="USD", show_default=True, help="Three-letter code, such as USD or CNY.")
@click.option("--from", "--start", "start", type=TimeOption(), help="Start of its validity.  [default: this hour]")
@click.option("--to", "--end", "end", type=TimeOption(), help="End of its validity.  [default: none]")
@click.option("--reason", required=True, help="Reason, kept in the history.")
def set_price(
    stack: str,
    matches: Sequence[str],
    amount: str,
    unit: Any,
    currency: str,
    start: datetime | None,
    end: datetime | None,
    reason: str,
) -> None:
    """Set a price by hand.

    Past hours within its validity are rated again with this price.

    \b
    Example:
      gpucost prices set --stack gpucost --match instance_type=p5.48xlarge \\
        --amount 55.04 --unit node-hour --reason "enterprise discount"
    """
    now = datetime.now(UTC).replace(microsecond=0)
    price = Price(
        source="override",
        unit=unit,
        amount=_parse_amount(amount),
        applies_to=_parse_node_attributes(matches),
        currency=_parse_currency(currency),
        valid_from=start or floor_hour(now),
        valid_to=end,
        fetched_at=now,
        author=current_user(),
        reason=_parse_text("--reason", reason),
    )
    if price.valid_to is not None and price.valid_from is not None:
        check_period(price.valid_from, price.valid_to)
    override = _price_book(stack).set_override(price, now=now)
    click.echo(f"override {override.id} is in force from {_end_text(price.valid_from)} to {_end_text(price.valid_to)}")
    _report_past_hours(price.valid_from, now)


@prices.command()
@click.argument("override_id", metavar="ID")
@stack_option
@click.option("--at", type=TimeOption(), help="End of its validity.  [default: now]")
@click.option("--reason", required=True, help="Reason, kept in the history.")
def drop(override_id: str, stack: str, at: datetime | None, reason: str) -> None:
    """End the validity of a price that was set by hand.

    If the end is at or before the start of its validity, the price is canceled completely.

    \b
    Example:
      gpucost prices drop ID --stack gpucost --reason "contract ended"
    """
    now = datetime.now(UTC).replace(microsecond=0)
    override = _price_book(stack).drop_override(
        override_id, at=at or now, author=current_user(), reason=_parse_text("--reason", reason), now=now
    )
    ends = override.price.valid_to
    click.echo(f"override {override.id} ends at {_end_text(ends)}")
    if ends is not None and ends <= now and at is None:
        click.echo("it had ended already. To cancel it for past hours, pass an earlier --at")
    elif ends is not None:
        _report_past_hours(ends, now)


def _report_past_hours(start: datetime | None, now: datetime) -> None:
    if start is None or start < floor_hour(now):
        click.echo("past hours are rated again with the next hourly run; to rate them now: gpucost hours restate")


@prices.command()
@stack_option
@click.option("--source", type=click.Choice(["spot", "on-demand", "shapes", "cur"]), help="Only this source.")
@click.option("--month", "months", multiple=True, metavar="YYYY-MM", help="Month of the bill. May be repeated.")
def refresh(stack: str, source: str | None, months: Sequence[str]) -> None:
    """Fetch prices from AWS now, with the deployment's own function.

    \b
    Example:
      gpucost prices refresh --stack gpucost --source spot
    """
    from gpucost_cli import deployment
    from gpucost_cli.invocation import invoke, run_locally
    from gpucost_devstack.demo_records import is_demo

    target = deployment.find_deployment(stack)
    if months and source not in (None, "cur"):
        raise InvalidInputError(
            f"--month is not allowed with --source {source}. Pass --source cur, or leave --source out"
        )
    event = {"version": 1, "source": "cur" if months else source, "months": list(months)}
    if is_demo(stack):
        variables = {"GPUCOST_TABLE": target.table, "GPUCOST_PRICE_SOURCES": ",".join(target.price_sources)}
        refreshed = run_locally(stack, "PricesFunction", "prices", variables, event)["refreshed"]
    else:
        refreshed = invoke(target.prices_function, event, seconds=INVOCATION_TIMEOUT_SECONDS)["refreshed"]
    if not refreshed:
        click.echo(
            "nothing was refreshed. The stack's parameters SpotPrices, OnDemandPrices, InstanceShapes and BillPrices "
            "choose what is fetched"
        )
    for name, count in refreshed.items():
        click.echo(f"{name}: {count} new or changed")


@prices.command()
@stack_option
@click.option("--from", "--start", "start", type=TimeOption(), help="Changes since then.  [default: 30 days ago]")
@click.option("--to", "--end", "end", type=TimeOption(), help="Changes before then.  [default: now]")
@format_option("table", "json", "csv")
def changes(stack: str, start: datetime | None, end: datetime | None, output_format: str) -> None:
    """List prices that were set or dropped by hand, and changes of past hours, newest first.

    \b
    Example:
      gpucost prices changes --stack gpucost --from 2026-11-01
    """
    last = end or datetime.now(UTC)
    first = start or last - timedelta(days=30)
    book = _price_book(stack)
    rows: list[dict[str, Any]] = []
    for override in book.overrides():
        price = override.price
        shown = {
            "id": override.id,
            "source": "override",
            "applies_to": dict(price.applies_to),
            "price": f"{decimal_text(parse_decimal(str(price.amount)))} {price.currency} {price.unit}",
            "from": price.valid_from,
            "settled_at": None,
        }
        rows.append(
            {
                **shown,
                "at": price.fetched_at,
                "event": "set",
                "to": override.original_valid_to,
                "author": price.author,
                "why": price.reason,
            }
        )
        if override.dropped_at is not None:
            rows.append(
                {
                    **shown,
                    "at": override.dropped_at,
                    "event": "dropped",
                    "to": price.valid_to,
                    "author": override.dropped_by,
                    "why": override.drop_reason,
                }
            )
    for change in book.changes(first, last):
        rows.append(
            {
                "at": change.changed_at,
                "event": "changed the past",
                "id": change.id,
                "source": change.source,
                "applies_to": {name: ", ".join(values) for name, values in change.applies_to.items()},
                "price": "",
                "from": change.start,
                "to": change.end,
                "author": change.author,
                "why": change.reason,
                "settled_at": change.settled_at,
            }
        )
    rows = [{name: row[name] for name in CHANGE_COLUMNS} for row in rows if first <= row["at"] < last]
    _print_prices(
        output_format, "changes", CHANGE_COLUMNS, sorted(rows, key=lambda row: (row["at"], row["event"]), reverse=True)
    )


def _print_prices(output_format: str, name: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    if output_format == "json":
        sys.stdout.write(dumps({name: rows}, indent=2) + "\n")
    elif output_format == "csv":
        cells = [
            [dumps(value) if isinstance(value, dict) else value for value in map(row.get, columns)] for row in rows
        ]
        sys.stdout.write(csv_text(columns, cells))
    else:
        from gpucost_cli.rendering import plain_table, print_table

        filled = [column for column in columns if any(row[column] not in (None, "") for row in rows)] or list(columns)
        print_table(plain_table(filled, [[_cell(row[column]) for column in filled] for row in rows], right=("amount",)))


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items()) or "every node"
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    return "" if value is None else str(value)


def _parse_node_attributes(matches: Sequence[str]) -> dict[str, str]:
    facts: dict[str, str] = {}
    for match in matches:
        name, separator, pattern = match.partition("=")
        if name not in NODE_ATTRIBUTES or not separator or not pattern:
            raise InvalidInputError(
                f"--match {match!r} is not ATTRIBUTE=PATTERN. Allowed: {', '.join(NODE_ATTRIBUTES)}"
            )
        if name in facts:
            raise InvalidInputError(f"--match names {name} twice. Pass it once, with a shell pattern")
        facts[name] = _parse_text("--match", pattern)
    if not facts:
        raise InvalidInputError(
            "--match is missing. Pass at least one --match ATTRIBUTE=PATTERN. To match every node, pass "
            "--match 'cluster=*'"
        )
    return facts


def _parse_amount(text: str) -> Decimal:
    try:
        amount = parse_decimal(text)
    except ValueError:
        amount = Decimal(-1)
    exponent = amount.as_tuple().exponent
    if not amount.is_finite() or not 0 < amount <= MAX_AMOUNT or not isinstance(exponent, int) or exponent < -12:
        raise InvalidInputError(
            f"--amount {text!r} is invalid. Pass a number above 0, of at most {MAX_AMOUNT}, with at most 12 digits "
            "after the decimal point"
        )
    return amount


def _parse_currency(text: str) -> str:
    if len(text) != 3 or not (text.isascii() and text.isalpha() and text.isupper()):
        raise InvalidInputError(f"--currency {text!r} is not a code of three capital letters such as USD")
    return text


def _parse_text(option: str, text: str) -> str:
    if not text.strip() or len(text) > MAX_TEXT_LENGTH:
        raise InvalidInputError(f"{option} has {len(text.strip())} characters. Pass 1 to {MAX_TEXT_LENGTH}")
    return text.strip()


def _end_text(moment: datetime | None) -> str:
    return "further notice" if moment is None else format_timestamp(moment)


def _price_book(stack: str) -> "PriceStore":
    return container_of(stack).price_book
