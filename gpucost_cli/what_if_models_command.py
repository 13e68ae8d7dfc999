"""`gpucost recommendations what-if-models`: the tokens of the last days at an API's price, or on another GPU."""

import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import InvalidInputError
from gpucost_cli.options import container_of, format_option, stack_option

if TYPE_CHECKING:
    from gpucost.features.recommendations.what_if import ModelsOutcome

_PRICE_DIGITS = 12


def _parse_price(ctx: click.Context, param: click.Parameter, text: str | None) -> Decimal | None:
    """Parse an amount that is 0 or more, or fail with a usage error."""
    if text is None:
        return None
    if len(text) > _PRICE_DIGITS or not text.replace(".", "", 1).isdecimal() or not text.isascii():
        raise click.BadParameter(f"{text!r} is not an amount. Pass a number such as 0.30", ctx, param)
    return parse_decimal(text)


@click.command("what-if-models")
@stack_option
@click.option(
    "--prompt-price", callback=_parse_price, metavar="PRICE", help="The API's price of a million prompt tokens."
)
@click.option(
    "--generated-price", callback=_parse_price, metavar="PRICE", help="The API's price of a million generated tokens."
)
@click.option(
    "--cached-price",
    callback=_parse_price,
    metavar="PRICE",
    help="The API's price of a million prompt tokens from a cache; default: as other prompt tokens.",
)
@click.option("--gpu-model", help="Another GPU model, such as H100, on which the same models ran, too.")
@click.option("--model", default="*", show_default=True, help="Shell pattern of the models' names.")
@click.option("--business-unit", help="Only models of this business unit.")
@click.option(
    "--days", default=30, show_default=True, type=click.IntRange(1, 100), help="Number of whole UTC days to look back."
)
@click.option("--cluster", help="Only this cluster; otherwise all clusters.")
@format_option("table", "json")
def compare_models(
    stack: str,
    prompt_price: Decimal | None,
    generated_price: Decimal | None,
    cached_price: Decimal | None,
    gpu_model: str | None,
    model: str,
    business_unit: str | None,
    days: int,
    cluster: str | None,
    output_format: str,
) -> None:
    """Estimate what the tokens of the last days would cost from an API, or on another GPU.

    Prices are in the currency of the settings. The throughput of the other GPU is what the same model reached on it in
    these days; without that it is unknown. Reads tokens that `inference` in the settings has counted.

    \b
    Example:
      gpucost recommendations what-if-models --stack gpucost-prod --prompt-price 3 --generated-price 15 --gpu-model H100
    """
    from gpucost.features.recommendations.what_if import ApiPrice, ModelWhatIfService
    from gpucost.runtime.json_text import dumps

    if (prompt_price is None) != (generated_price is None) or (cached_price is not None and prompt_price is None):
        raise InvalidInputError("--prompt-price and --generated-price are required together; --cached-price needs both")
    api_price = None
    if prompt_price is not None and generated_price is not None:
        api_price = ApiPrice(prompt_price, generated_price, prompt_price if cached_price is None else cached_price)
    container = container_of(stack)
    service = ModelWhatIfService(container.settings_store, container.ledger, clock=container.clock)
    outcome = service.compare(
        days=days, api_price=api_price, gpu_model=gpu_model, cluster=cluster, business_unit=business_unit, model=model
    )
    if output_format == "json":
        sys.stdout.write(dumps(models_document(outcome), indent=2) + "\n")
    else:
        _print_table(outcome, gpu_model, has_api_price=api_price is not None)


def models_document(outcome: "ModelsOutcome") -> dict[str, Any]:
    """Build the JSON document of an outcome, with all digits."""
    return {
        "start": outcome.start,
        "end": outcome.end,
        "currency": outcome.currency,
        "models": [compared.figures() for compared in outcome.models],
        "unknown_tokens_usd": outcome.unknown_tokens_usd,
    }


def _print_table(outcome: "ModelsOutcome", gpu_model: str | None, *, has_api_price: bool) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    def cell(amount: Decimal | None) -> str:
        return "unknown" if amount is None else money(amount, outcome.currency)

    days = (outcome.end - outcome.start).days
    table = Table(title=f"{days} days: what tokens cost, and estimates", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("model", overflow="fold")
    gpu_columns = (f"on other GPUs than {escape(gpu_model)}", f"on {escape(gpu_model)}") if gpu_model else ()
    for title in (
        "prompt tokens",
        "generated",
        "cost",
        "at full use",
        *(["API"] if has_api_price else []),
        *gpu_columns,
        *(["at full use"] if gpu_model else []),
    ):
        table.add_column(title, justify="right")
    for compared in outcome.models:
        counts = (compared.total.prompt_tokens, compared.total.generated_tokens)
        other = compared.other_gpu
        table.add_row(
            printable(compared.model),
            *("unknown" if count is None else f"{count:,}" for count in counts),
            cell(compared.cost.usd),
            cell(compared.cost.usd_at_full_use),
            *([cell(compared.api_usd)] if has_api_price else []),
            *(
                []
                if other is None
                else [cell(other.moved.usd), cell(other.estimate.usd), cell(other.estimate.usd_at_full_use)]
            ),
        )
    print_table(table)
    if has_api_price:
        click.echo("API: an estimate. An API may count tokens differently, and find others of them in its cache")
    if gpu_model:
        click.echo(
            f"{printable(gpu_model)}: an estimate from the throughput of the same model there; unknown if it did not "
            "run there"
        )
    if outcome.unknown_tokens_usd:
        click.echo(
            f"left out: {money(outcome.unknown_tokens_usd, outcome.currency)} of servers whose tokens are unknown"
        )
