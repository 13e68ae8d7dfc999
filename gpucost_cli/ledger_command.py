"""`gpucost ledger`: copy the ledger of `gpucost serve` into a deployment."""

from pathlib import Path

import click

from gpucost.core.errors import InvalidInputError
from gpucost_cli.options import container_of, stack_option


@click.group()
def ledger() -> None:
    """Copy the ledger of gpucost serve into a deployment."""


@ledger.command()
@stack_option
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the ledger.  [default: the only one in ~/.local/share/gpucost]",
)
@click.option("--replace", is_flag=True, help="Replace other figures that the deployment has for these clusters.")
def copy(stack: str, folder: Path | None, *, replace: bool) -> None:
    """Copy the ledger of gpucost serve into a deployment: hours, prices, alerts, recommendations and settings.

    Copy before the first gpucost settings push: until then, the deployment attributes nothing. A copy that was
    interrupted continues when the command is run again. gpucost serve must not be running on the folder.

    \b
    Example:
      gpucost ledger copy --data ledger --stack gpucost
    """
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    from gpucost.storage.sqlite_table import SqliteTable
    from gpucost_cli.ledger_copy import copy_ledger

    path = folder_of(folder)
    target = container_of(stack).table
    console = Console(stderr=True)
    columns = TextColumn("{task.description}")
    with (
        SqliteTable(path) as source,
        Progress(columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("comparing")
        result = copy_ledger(
            source,
            target,
            replace=replace,
            progress=lambda items: bar.update(task, description=f"copying: {items} items"),
        )
    deleted = f", {result.deleted} deleted" if result.deleted else ""
    click.echo(
        f"{result.hours} hours of {', '.join(result.clusters) or 'no cluster'} are in the deployment: "
        f"{result.written} of {result.items} items written{deleted}, the others were there"
    )
    click.echo(
        "next: push settings with an address of Prometheus that the functions reach, and the same names of clusters: "
        f"gpucost settings push settings.yaml --stack {stack}"
    )


def folder_of(folder: Path | None) -> Path:
    """Return the folder of a ledger that exists; None stands for the only one of `gpucost serve`.

    Raises:
        InvalidInputError: there is none, or there are several.
    """
    from gpucost.storage.sqlite_table import FILE
    from gpucost_cli.serve_command import ledgers_folder

    if folder is not None:
        if not (folder / FILE).is_file():
            raise InvalidInputError(f"--data: {folder} has no ledger. Pass the folder of gpucost serve --data")
        return folder
    folders = sorted(path.parent for path in ledgers_folder().glob(f"*/{FILE}"))
    if len(folders) != 1:
        listed = ", ".join(map(str, folders))
        raise InvalidInputError(
            f"{ledgers_folder()} has {len(folders)} ledgers{f': {listed}' if folders else ''}. Pass --data FOLDER"
        )
    return folders[0]
