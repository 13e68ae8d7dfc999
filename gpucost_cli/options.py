"""What commands of the command line share: types of options, and the deployment that they name."""

import getpass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gpucost.core.errors import SettingsError
from gpucost.core.hours import parse_hour, parse_moment
from gpucost_cli.aws_session import Command, aws_options


class TimeType(click.ParamType[datetime]):
    """A UTC time, or a day for its first moment: what the API takes."""

    name = "time"
    parse = staticmethod(parse_moment)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it, or say what is allowed."""
        if isinstance(value, datetime):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HourType(TimeType):
    """The start of a UTC hour, or a day for its first hour."""

    name = "hour"
    parse = staticmethod(parse_hour)


STACK_HELP = "CloudFormation stack; local is the running demo, local:8081 the one on that port"


def stack_option(command: Command) -> Command:
    """Give a command the option `--stack`, and those that say how AWS is reached."""
    return click.option("--stack", required=True, help=STACK_HELP)(aws_options(command))


def settings_store(stack: str) -> Any:
    """The settings of a deployment."""
    from gpucost.runtime import aws
    from gpucost.settings_document import DocumentStore
    from gpucost_cli import deployment

    table = deployment.find(stack).table
    return DocumentStore(aws.client("dynamodb"), table, clock=lambda: datetime.now(UTC))


def read_settings_file(path: Path) -> str:
    """The text of a settings file.

    Raises:
        SettingsError: the file cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"settings file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {str(path)!r} is not UTF-8 text") from error


def author() -> str:
    """Who gives the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
