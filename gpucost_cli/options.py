"""Options and helpers that several commands share."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.errors import InvalidInputError, SettingsError
from gpucost.core.hours import format_timestamp, parse_date_or_timestamp, parse_hour
from gpucost_cli.aws_session import Command, aws_options

if TYPE_CHECKING:
    from gpucost.container import Container
    from gpucost.settings_document import SettingsDocument, SettingsDocumentStore


class TimeOption(click.ParamType[datetime]):
    """A UTC time as the API takes it; a day stands for its first moment."""

    name = "time"
    parse = staticmethod(parse_date_or_timestamp)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse the text of an option, or fail with a usage error that names the allowed forms."""
        if isinstance(value, datetime):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HourOption(TimeOption):
    """The start of a UTC hour; a day stands for its first hour."""

    name = "hour"
    parse = staticmethod(parse_hour)


STACK_HELP = "CloudFormation stack; local is the running demo, local:8081 the demo on that port."


def stack_option(command: Command) -> Command:
    """Add the option `--stack` to a command, with `--region` and `--profile`."""
    return click.option("--stack", required=True, help=STACK_HELP)(aws_options(command))


def settings_option(command: Command) -> Command:
    """Add the required option `--settings` to a command, as its parameter `path`."""
    file = click.Path(path_type=Path)
    return click.option("--settings", "path", required=True, type=file, help="Settings file, YAML or JSON.")(command)


def format_option(*formats: str) -> Callable[[Command], Command]:
    """Add the option `--format` to a command, as its parameter `output_format`; the first format is the default."""
    return click.option(
        "--format",
        "output_format",
        default=formats[0],
        show_default=True,
        type=click.Choice(formats),
        help="Format of the output.",
    )


def container_of(stack: str) -> "Container":
    """Find a deployment by the name of its stack and compose its parts, unless the caller of `main` composed them.

    Raises:
        As `deployment.find_deployment`.
    """
    from gpucost_cli import deployment

    return click.get_current_context().obj or deployment.find_deployment(stack).container()


def current_time() -> datetime:
    """Return the time by the clock of the composed parts, or by the system's before they are composed."""
    composed = click.get_current_context().obj
    return composed.clock() if composed else datetime.now(UTC)


def settings_store(stack: str) -> "SettingsDocumentStore":
    """Return the store of a deployment's settings documents."""
    return container_of(stack).settings_store


def read_settings_file(path: Path) -> str:
    """Read the text of a settings file.

    Raises:
        SettingsError: the file cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"settings file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {str(path)!r} is not UTF-8 text") from error


@contextmanager
def naming_file(path: Path | None) -> Iterator[None]:
    """Let errors of settings name the file that has them."""
    try:
        yield
    except SettingsError as error:
        if path is None or str(path) in str(error):
            raise
        raise SettingsError(*(f"{path}: {fault.removeprefix('settings: ')}" for fault in error.faults)) from error


def parse_settings_file(path: Path) -> "SettingsDocument":
    """Read a settings file.

    Raises:
        SettingsError: it cannot be read, or is invalid; the sentence names the file.
    """
    from gpucost.settings_document import parse_settings

    with naming_file(path):
        return parse_settings(read_settings_file(path))


def check_period(start: datetime, end: datetime) -> None:
    """Refuse a period of `--from` and `--to` that has no hours."""
    if start >= end:
        raise InvalidInputError(
            f"--to {format_timestamp(end)} is not after --from {format_timestamp(start)}. Pass a later --to"
        )


def current_user() -> str:
    """Return the name of the person who runs the command, for records of changes."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
