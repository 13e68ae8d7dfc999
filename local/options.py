"""What commands of the command line share: types of options, and the deployment that they name."""

import getpass
from datetime import UTC, datetime
from typing import Any

import click

from gpucost.domain.hours import parse_hour


class HourType(click.ParamType[datetime]):
    """The start of a UTC hour."""

    name = "hour"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it, or say what is allowed."""
        if isinstance(value, datetime):
            return value
        try:
            return parse_hour(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


stack_option = click.option("--stack", required=True, help="CloudFormation stack; local is the running demo")


def settings_store(stack: str) -> Any:
    """The settings of a deployment."""
    from gpucost.adapters import aws
    from gpucost.adapters.dynamodb.settings_store import DynamoSettingsStore
    from local import deployment

    table = deployment.find(stack).table
    return DynamoSettingsStore(aws.client("dynamodb"), table, clock=lambda: datetime.now(UTC))


def author() -> str:
    """Who gives the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
