"""`gpucost recommendations`: list, show, dismiss and reopen recommendations under your own IAM permissions."""

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import format_timestamp
from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.model import RecommendationState
from gpucost.runtime.json_text import dumps
from gpucost_cli.options import container_of, current_user, format_option, stack_option
from gpucost_cli.what_if_command import what_if
from gpucost_cli.what_if_models_command import compare_models

if TYPE_CHECKING:
    from gpucost.features.recommendations.model import Recommendation, Review
    from gpucost.features.recommendations.queries import RecommendationQueries

INVOCATION_TIMEOUT_SECONDS = 910
"""A little longer than the time limit of the function."""


@click.group()
def recommendations() -> None:
    """List, show and dismiss recommendations, and analyze moves to MIG slices, APIs or other GPUs."""


recommendations.add_command(what_if)
recommendations.add_command(compare_models)


@recommendations.command("list")
@stack_option
@click.option("--cluster", help="Only this cluster; otherwise all clusters.")
@click.option("--business-unit", help="Only workloads of this business unit.")
@click.option("--kind", type=click.Choice(list(KINDS_BY_NAME)), help="Only recommendations of this kind.")
@click.option(
    "--state",
    default="open",
    show_default=True,
    type=click.Choice([*get_args(RecommendationState), "all"]),
    help="Only recommendations in this state.",
)
@format_option("table", "json")
def list_recommendations(
    stack: str, cluster: str | None, business_unit: str | None, kind: str | None, state: str, output_format: str
) -> None:
    """List recommendations, largest saving first, and count the workloads by finding.

    \b
    Example:
      gpucost recommendations list --stack gpucost-prod --business-unit data-science
    """
    from gpucost.features.recommendations.routes import build_response

    all_rows, reviews = _recommendation_queries(stack).recommendations(cluster=cluster)
    rows = [
        recommendation
        for recommendation in all_rows
        if state in {"all", recommendation.state}
        and kind in {None, recommendation.content.kind}
        and business_unit in {None, recommendation.content.subject.business_unit}
    ]
    if output_format == "json":
        response = build_response(rows, reviews, lambda name: business_unit in {None, name})
        sys.stdout.write(dumps(response, indent=2) + "\n")
        return
    _print_table(rows)
    _print_findings(reviews, business_unit)


@recommendations.command()
@click.argument("recommendation_id", metavar="ID")
@stack_option
@click.option("--patch", "only_patch", is_flag=True, help="Print only the manifest or the commands to apply.")
@format_option("table", "json")
def show(recommendation_id: str, stack: str, output_format: str, *, only_patch: bool) -> None:
    """Show one recommendation with its evidence, its risk and its manifest.

    \b
    Example:
      gpucost recommendations show idle-3f9a1c0d2b4e --stack gpucost-prod
    """
    from gpucost.features.recommendations.routes import build_row
    from gpucost_cli.recommendation_screen import render_recommendation

    recommendation = _recommendation_queries(stack).find(recommendation_id)
    if only_patch and not recommendation.content.patch:
        raise InvalidInputError(f"{recommendation.id} has no manifest; show it without --patch to see what to do")
    if only_patch:
        click.echo(recommendation.content.patch.rstrip())
    elif output_format == "json":
        click.echo(dumps(build_row(recommendation), indent=2))
    else:
        click.echo("\n".join(render_recommendation(recommendation)))


@recommendations.command()
@stack_option
@click.option("--cluster", help="Only this cluster; otherwise all clusters.")
def run(stack: str, cluster: str | None) -> None:
    """Review clusters now, with the deployed function, which also runs every night.

    \b
    Example:
      gpucost recommendations run --stack gpucost-prod --cluster research-us-east-1
    """
    from gpucost_cli import deployment
    from gpucost_cli.invocation import invoke, run_locally
    from gpucost_devstack.demo_records import is_demo

    deployed = deployment.find_deployment(stack)
    event = {"version": 1, "scheduled_time": format_timestamp(datetime.now(UTC)), "cluster": cluster}
    if is_demo(stack):
        answer = run_locally(stack, "RecommendFunction", "recommend", {"GPUCOST_TABLE": deployed.table}, event)
    else:
        answer = invoke(deployed.recommend_function, event, seconds=INVOCATION_TIMEOUT_SECONDS)
    for review in answer["reviewed"]:
        click.echo(f"{review['cluster']}\t{review['workloads']} workloads\t{review['recommendations']} recommendations")
    if answer["clusters_left"]:
        click.echo(
            f"{answer['clusters_left']} clusters were not reviewed, because time ran out. Run the command again",
            err=True,
        )


@recommendations.command()
@click.argument("recommendation_id", metavar="ID")
@stack_option
@click.option("--reason", required=True, help="Why it is dismissed; stored with the recommendation.")
def dismiss(recommendation_id: str, stack: str, reason: str) -> None:
    """Dismiss a recommendation, so that it is not recommended again until it is reopened.

    \b
    Example:
      gpucost recommendations dismiss idle-3f9a1c0d2b4e --stack gpucost-prod --reason "needed for the launch"
    """
    dismissed = _recommendation_queries(stack).dismiss(recommendation_id, author=current_user(), reason=reason)
    click.echo(f"{dismissed.id} is dismissed")


@recommendations.command()
@click.argument("recommendation_id", metavar="ID")
@stack_option
def reopen(recommendation_id: str, stack: str) -> None:
    """Reopen a dismissed recommendation.

    \b
    Example:
      gpucost recommendations reopen idle-3f9a1c0d2b4e --stack gpucost-prod
    """
    click.echo(f"{_recommendation_queries(stack).reopen(recommendation_id).id} is open")


def _print_table(rows: list["Recommendation"]) -> None:
    from rich import box
    from rich.table import Table

    from gpucost_cli.rendering import money, print_table, printable

    if not rows:
        click.echo("no recommendations")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("monthly saving", "cash"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("confidence", "recommendation", "id"):
        table.add_column(name, overflow="fold", no_wrap=name != "recommendation")
    for row in rows:
        saving, currency = row.content.saving, row.content.currency
        state = {"alternative": " (not offered)"}.get(row.offer or "", "") if row.state == "open" else f" ({row.state})"
        table.add_row(
            money(saving.usd, currency),
            money(saving.cash_usd, currency),
            row.content.confidence,
            printable(row.content.summary) + state,
            row.id,
        )
    print_table(table)
    if any(row.state == "open" for row in rows):
        click.echo(_totals_sentence(rows))


def _totals_sentence(rows: list["Recommendation"]) -> str:
    """A sentence with the savings of the plan, and separately the costs of rows that add GPUs."""
    from gpucost.features.recommendations.routes import recommendation_totals
    from gpucost_cli.rendering import money

    totals, currency = recommendation_totals(rows), rows[0].content.currency
    sums = [
        f"{label} {money(totals[name]['usd'], currency)} a month (cash {money(totals[name]['cash_usd'], currency)})"
        for name, label in (("savings", "open recommendations save"), ("costs", "added GPUs cost"))
        if totals[name]["usd"] != 0
    ]
    left_out = "without commitments, alternatives, and savings that another recommendation includes"
    return "; ".join([*sums, left_out])


def _print_findings(reviews: list["Review"], business_unit: str | None) -> None:
    for review in reviews:
        counts = Counter(
            assessment.finding
            for assessment in review.assessments
            if business_unit in {None, assessment.subject.business_unit}
        )
        findings = ", ".join(f"{counts[name]} {name}" for name in sorted(counts)) or "no workloads"
        click.echo(
            f"{review.cluster}: {findings} (healthy is 30 to 70% utilization), {review.hours_known} hours to "
            f"{format_timestamp(review.end)}"
        )


def _recommendation_queries(stack: str) -> "RecommendationQueries":
    return container_of(stack).recommendation_queries
