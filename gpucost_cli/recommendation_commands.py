"""`gpucost advise`: what to change, what it saves, and what people do with that, under their own IAM."""

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import format_timestamp
from gpucost.features.recommendations.model import RecommendationKind, RecommendationState
from gpucost_cli.options import current_user, settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.features.recommendations.model import Recommendation
    from gpucost.features.recommendations.queries import RecommendationList, RecommendationQueries

INVOCATION_SECONDS = 910
"""A little longer than the function may take."""


@click.group()
def advise() -> None:
    """Advice: what to change, what it saves, how sure that is."""


@advise.command("list")
@stack_option
@click.option("--cluster", help="only this cluster; all where not given")
@click.option("--business-unit", "unit", help="only workloads of this business unit")
@click.option("--kind", type=click.Choice(get_args(RecommendationKind)), help="only advice of this kind")
@click.option("--state", default="open", show_default=True, type=click.Choice([*get_args(RecommendationState), "all"]))
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json"]))
def list_(stack: str, cluster: str | None, unit: str | None, kind: str | None, state: str, form: str) -> None:
    """List recommendations, what saves most first, and how all workloads stand."""
    from gpucost.features.recommendations.routes import build_response
    from gpucost.runtime.json_text import dumps

    found = _desk(stack).recommendations(cluster=cluster)
    rows = [
        one
        for one in found.rows
        if state in {"all", one.state}
        and kind in {None, one.content.kind}
        and unit in {None, one.content.subject.business_unit}
    ]
    if form == "json":
        sys.stdout.write(dumps(build_response(rows, found, lambda own: unit in {None, own}), indent=2) + "\n")
        return
    _table(rows)
    _standings(found, unit)


@advise.command()
@click.argument("advice_id", metavar="ID")
@stack_option
@click.option("--patch", "only_patch", is_flag=True, help="print the manifest or commands alone")
def show(advice_id: str, stack: str, *, only_patch: bool) -> None:
    """All of one recommendation on one screen."""
    from gpucost_cli.recommendation_screen import screen

    one = _desk(stack).find(advice_id)
    if only_patch and not one.content.patch:
        raise InvalidInputError(f"{one.id} has no manifest: what it needs is not known here")
    click.echo(one.content.patch.rstrip() if only_patch else "\n".join(screen(one)))


@advise.command()
@stack_option
@click.option("--cluster", help="only this cluster; all where not given")
def run(stack: str, cluster: str | None) -> None:
    """Review clusters now, by the deployment's own function; it runs every night anyway."""
    from devstack.demo_records import is_demo
    from gpucost_cli import deployment
    from gpucost_cli.invocation import invoke, run_locally

    found = deployment.find(stack)
    event = {"version": 1, "scheduled_time": format_timestamp(datetime.now(UTC)), "cluster": cluster}
    if is_demo(stack):
        answer = run_locally(stack, "RecommendFunction", "advise", {"GPUCOST_TABLE": found.table}, event)
    else:
        answer = invoke(found.recommend_function, event, seconds=INVOCATION_SECONDS)
    for one in answer["reviewed"]:
        click.echo(f"{one['cluster']}\t{one['workloads']} workloads\t{one['advice']} recommendations")
    if answer["clusters_left"]:
        click.echo(f"{answer['clusters_left']} clusters are left for want of time; run it again", err=True)


@advise.command()
@click.argument("advice_id", metavar="ID")
@stack_option
@click.option("--reason", required=True, help="why it is not wanted")
def dismiss(advice_id: str, stack: str, reason: str) -> None:
    """Do not advise something again, with the reason that the next one wants to know."""
    one = _desk(stack).dismiss(advice_id, author=current_user(), reason=reason)
    click.echo(f"{one.id} is dismissed")


@advise.command()
@click.argument("advice_id", metavar="ID")
@stack_option
def reopen(advice_id: str, stack: str) -> None:
    """Advise something again that was dismissed."""
    click.echo(f"{_desk(stack).reopen(advice_id).id} is open")


def _table(rows: list["Recommendation"]) -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("saves a month", justify="right", no_wrap=True)
    table.add_column("cash", justify="right", no_wrap=True)
    for name in ("sure", "what to do", "id"):
        table.add_column(name, overflow="fold", no_wrap=name != "what to do")
    for one in rows:
        saving, currency = one.content.saving, one.content.currency
        more = "" if one.state == "open" else f" ({one.state})"
        table.add_row(
            money(saving.usd, currency), money(saving.cash_usd, currency), one.content.confidence,
            printable(one.content.summary) + more, one.id,
        )  # fmt: skip
    if not rows:
        click.echo("nothing is advised")
        return
    print_table(table)
    if any(one.state == "open" for one in rows):
        click.echo(_together(rows))


def _together(rows: list["Recommendation"]) -> str:
    """What all open ones save, and what those that add GPUs cost: the one is not for the other."""
    from gpucost.features.recommendations.routes import recommendation_totals
    from gpucost_cli.rendering import money

    totals, currency = recommendation_totals(rows), rows[0].content.currency
    said = [
        f"{words} {money(totals[name]['usd'], currency)} a month (cash {money(totals[name]['cash_usd'], currency)})"
        for name, words in (("savings", "open ones save"), ("costs", "more GPUs cost"))
        if totals[name]["usd"] != 0
    ]
    return f"{'; '.join([*said, 'not counted are commitments, and what another one counts'])}"


def _standings(found: "RecommendationList", unit: str | None) -> None:
    for review in found.reviews:
        counts = Counter(one.finding for one in review.assessments if unit in {None, one.subject.business_unit})
        said = ", ".join(f"{counts[name]} {name}" for name in sorted(counts)) or "no workloads"
        click.echo(
            f"{review.cluster}: {said} (healthy is 30 to 70% used), {review.hours_known} hours to "
            f"{format_timestamp(review.end)}"
        )


def _desk(stack: str) -> "RecommendationQueries":
    from gpucost.features.recommendations.queries import RecommendationQueries
    from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations
    from gpucost.runtime import aws
    from gpucost_cli import deployment

    store = settings_store(stack)
    table = deployment.find(stack).table
    return RecommendationQueries(store, DynamoRecommendations(aws.client("dynamodb"), table), clock=lambda: datetime.now(UTC))
