"""`gpucost migrate`: a table moved on to the newest forms of its items while it serves."""

import click

from gpucost_cli.options import stack_option


@click.command()
@stack_option
def migrate(stack: str) -> None:
    """Move the ledger's items on to the forms that this version writes; interrupted, run it again.

    Functions go on reading and writing meanwhile. First deploy this version: an older one reads no newer forms.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gpucost.runtime import aws
    from gpucost.storage.migration import Migration
    from gpucost_cli import deployment

    work = Migration(aws.client("dynamodb"), deployment.find(stack).table)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("items"),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("moving on", total=None)
        done = work.run(lambda now: bar.update(task, total=now.items, completed=now.seen))
    click.echo(f"{done.seen} items looked at, {done.moved} groups of lines moved on")
