"""`gpucost settings`: pushes, shows and rolls back the settings document of a deployment."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import InvalidInputError, SettingsError, SettingsMissingError
from gpucost.core.hours import format_timestamp
from gpucost.runtime.json_text import dumps
from gpucost_cli.options import (
    current_user,
    format_option,
    naming_file,
    read_settings_file,
    settings_store,
    stack_option,
)
from gpucost_cli.placeholders import placeholder_faults, refuse_placeholders
from gpucost_cli.settings_notes import notes_on
from gpucost_devstack.demo_records import is_demo

if TYPE_CHECKING:
    from gpucost.settings_document import SettingsDocument, SettingsDocumentStore

HISTORY_COLUMNS = ("version", "pushed_at", "author")


yes_option = click.option(
    "--yes", "is_confirmed", is_flag=True, help="Put it in force even if it has none of the clusters in force."
)


@click.group()
def settings() -> None:
    """Check, push, show and roll back the settings document of a deployment."""


@settings.command()
@click.argument("path", type=click.Path(path_type=Path))
@stack_option
@yes_option
def push(path: Path, stack: str, *, is_confirmed: bool) -> None:
    """Validate a settings document and put it in force.

    Notes are those of gpucost settings check, and name clusters that are no longer in the settings. A document with
    none of the clusters that are in force is probably that of another deployment: it needs --yes, or a terminal.

    \b
    Example:
      gpucost settings push settings.yaml --stack gpucost
    """
    from gpucost.settings_document import read_settings

    with naming_file(path):
        document = read_settings(read_settings_file(path))
    settings = document.settings
    if not is_demo(stack):  # a demo's account and workspace do not exist anyway
        refuse_placeholders(settings, str(path))
    store = settings_store(stack)
    removed = _removed_clusters(store, settings, is_confirmed=is_confirmed)
    with naming_file(path):
        stored = store.push(document, author=current_user(), now=datetime.now(UTC))
    click.echo(f"version {stored.version} is in force")
    for note in notes_on(settings):
        click.echo(f"note: {note}", err=True)
    if removed:
        names = ", ".join(sorted(removed))
        click.echo(f"note: no longer in the settings, so new hours are not attributed: {names}", err=True)


def _removed_clusters(store: "SettingsDocumentStore", settings: "SettingsDocument", *, is_confirmed: bool) -> set[str]:
    """The clusters that a document would drop. Dropping all of them has to be confirmed.

    Raises:
        InvalidInputError: there is no terminal to ask.
        click.Abort: the answer is no.
    """
    in_force = _clusters_in_force(store)
    removed = in_force - {cluster.name for cluster in settings.clusters}
    if not removed or removed != in_force or is_confirmed:
        return removed
    effect = (
        f"none of the clusters in force ({', '.join(sorted(in_force))}) is in this document: their new hours would not "
        "be attributed"
    )
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{effect}. If that is meant, pass --yes")
    click.confirm(f"{effect}. Put it in force?", abort=True, err=True)
    return removed


def _clusters_in_force(store: "SettingsDocumentStore") -> set[str]:
    """The clusters of the stack's settings; none if it has no settings that can be read."""
    try:
        return {cluster.name for cluster in store.current().settings.clusters}
    except (SettingsMissingError, SettingsError):
        return set()


@settings.command()
@click.argument("path", type=click.Path(path_type=Path))
def check(path: Path) -> None:
    """Check a settings document without a network, and list what is wrong in it.

    Names, time zones and placeholders are checked after everything else is right. Notes name entries that are valid
    but probably not what is meant. The exit status is 2 if something is wrong.

    \b
    Example:
      gpucost settings check settings.yaml
    """
    from pydantic import ValidationError

    from gpucost.settings_document import parse_settings

    text = read_settings_file(path)
    try:
        with naming_file(path):
            settings = parse_settings(text)
    except SettingsError as error:
        _print_faults(error.faults)
        unnamed = error.__cause__ if isinstance(error.__cause__, SettingsError) else error
        if isinstance(unnamed.__cause__, ValidationError):
            in_alerts = [fault for fault in unnamed.faults if fault.startswith("settings: alerts")]
            are_receivers_checked = all("unknown receiver" in fault for fault in in_alerts)
            unchecked = "time zones" if are_receivers_checked else "receivers, time zones"
            note = f"note: {unchecked} and placeholders are checked once the rest is valid. Correct it and check again"
            click.echo(note, err=True)
        sys.exit(2)
    if faults := [*settings.new_document_faults(), *placeholder_faults(settings, "settings")]:
        _print_faults(f"{path}: {fault.removeprefix('settings: ')}" for fault in faults)
        sys.exit(2)
    click.echo(f"{path} is valid. clusters: {len(settings.clusters)}, business units: {len(settings.business_units)}")
    for note in notes_on(settings):
        click.echo(f"note: {note}")


def _print_faults(faults: Iterable[str]) -> None:
    for fault in faults:
        click.echo(f"gpucost: {fault}", err=True)


@settings.command()
@stack_option
@click.option("--version", type=click.IntRange(1), help="An older version.  [default: the version in force]")
def show(stack: str, version: int | None) -> None:
    """Print the settings document that is in force.

    \b
    Example:
      gpucost settings show --stack gpucost > settings.yaml
    """
    store = settings_store(stack)
    text = (store.version(version) if version else store.current()).text
    click.echo(text, nl=not text.endswith("\n"))


@settings.command()
@stack_option
@format_option("table", "json")
def history(stack: str, output_format: str) -> None:
    """List the versions of the settings document, newest first.

    \b
    Example:
      gpucost settings history --stack gpucost
    """
    versions = settings_store(stack).history()
    if output_format == "json":
        rows = [{name: getattr(stored, name) for name in HISTORY_COLUMNS} for stored in versions]
        sys.stdout.write(dumps({"versions": rows}, indent=2) + "\n")
        return
    from gpucost_cli.rendering import plain_table, print_table

    cells = [(str(stored.version), format_timestamp(stored.pushed_at), stored.author) for stored in versions]
    print_table(plain_table(HISTORY_COLUMNS, cells))


@settings.command()
@stack_option
@click.option("--to", "version", required=True, type=click.IntRange(1), help="The version to go back to.")
@yes_option
def rollback(stack: str, version: int, *, is_confirmed: bool) -> None:
    """Put an older settings document in force again, as a new version.

    \b
    Example:
      gpucost settings rollback --stack gpucost --to 3
    """
    store = settings_store(stack)
    older = store.version(version)
    _removed_clusters(store, older.settings, is_confirmed=is_confirmed)
    stored = store.push(older.text, author=current_user(), now=datetime.now(UTC))
    click.echo(f"version {stored.version} is in force, with the text of version {version}")


@settings.command()
def schema() -> None:
    """Print the JSON Schema of the settings, with which editors complete and check them.

    \b
    Example:
      gpucost settings schema > settings.schema.json

    The first line of the settings file names it: # yaml-language-server: $schema=settings.schema.json
    """
    from gpucost_cli.settings_schema import settings_schema_text

    sys.stdout.write(settings_schema_text())
