"""The parameters that a deployment must have, and `samconfig.toml`, from which `sam deploy` reads them.

`gpucost init` writes the file. `make deploy` runs this module, which asks for what the file lacks.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.questions import PatternOption, SettingOption, answer, yes_option

FILE_NAME = "samconfig.toml"
DEVELOPMENT = "dev"
_OVERRIDES = {DEVELOPMENT: ("LogLevel=DEBUG", "LogRetentionDays=7"), "prod": ("LogRetentionDays=90",)}
"""Parameters by environment. They are written to the file, where they can be changed."""


@dataclass(frozen=True, slots=True)
class StackParameters:
    """What a stack needs to know before its first deployment."""

    stack_name: str
    region: str
    alert_email: str
    jwt_issuer: str
    jwt_audience: str
    fetches_prices: bool = True
    """Whether the stack fetches spot and on-demand prices."""

    def overrides(self, environment: str) -> list[str]:
        """Return the template's parameters that differ from their defaults, as `sam deploy` takes them."""
        optional = {"AlertEmail": self.alert_email, "JwtIssuer": self.jwt_issuer, "JwtAudience": self.jwt_audience}
        prices = ("SpotPrices=true", "OnDemandPrices=true") if self.fetches_prices else ()
        return [
            *(f"{name}={text}" for name, text in optional.items() if text),
            *prices,
            *_OVERRIDES.get(environment, ()),
        ]


def _region() -> Any:
    from gpucost.settings.section import Region

    return Region


STACK_NAME = PatternOption(
    "name", r"[A-Za-z][A-Za-z0-9-]{0,127}", "up to 128 letters, digits and hyphens, the first a letter"
)
EMAIL = PatternOption("address", r"|[^@\s]+@[^@\s]+\.[^@\s]+", "an email address, or empty")
JWT_ISSUER = PatternOption("url", r"|https://[^\s]+", "an https address, or empty for IAM")
JWT_AUDIENCE = PatternOption("text", r"[^\s\"']+", "a text without spaces and quotation marks")


def stack_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that answer the questions about the stack."""
    for option in (
        click.option("--jwt-audience", type=JWT_AUDIENCE, help="Audience of the tokens, with --jwt-issuer."),
        click.option(
            "--jwt-issuer",
            type=JWT_ISSUER,
            help="Issuer of the JSON web tokens that the API accepts; empty for IAM (SigV4).",
        ),
        click.option(
            "--alert-email",
            type=EMAIL,
            help="Address that gets the cost alerts; gpucost init also writes a first rule. Empty for none.",
        ),
        click.option("--stack-name", type=STACK_NAME, help="Name of the CloudFormation stack."),
    ):
        command = option(command)
    return command


region_option = click.option("--region", type=SettingOption("region", _region), help="AWS region.")


def ask_stack_parameters(environment: str, region: str, *, fetches_prices: bool = True) -> StackParameters:
    """Ask for the parameters that the options did not pass.

    Raises:
        InvalidInputError: a parameter is missing, and there is no terminal; or parameters contradict each other.
    """
    stack_name = answer("stack_name", "Name of the stack", f"gpucost-{environment}")
    alert_email = answer("alert_email", "Email address for cost alerts (Enter for none)", "")
    if click.get_current_context().params["jwt_audience"] and click.get_current_context().params["jwt_issuer"] is None:
        raise InvalidInputError("--jwt-audience needs --jwt-issuer. Pass the address of the issuer, too")
    issuer = answer("jwt_issuer", "API access: the address of a JWT issuer (Enter for IAM)", "")
    audience = answer("jwt_audience", "Audience of its tokens") if issuer else ""
    return StackParameters(stack_name, region, alert_email, issuer, audience, fetches_prices)


def section_of(environment: str, parameters: StackParameters) -> str:
    """Return the section of an environment in `samconfig.toml`."""
    overrides = ", ".join(_quote(override) for override in parameters.overrides(environment))
    return f"""\
[{environment}.deploy.parameters]
stack_name = {_quote(parameters.stack_name)}
region = {_quote(parameters.region)}
resolve_s3 = true
capabilities = "CAPABILITY_IAM"
confirm_changeset = {"false" if environment == DEVELOPMENT else "true"}
fail_on_empty_changeset = false
parameter_overrides = [{overrides}]
tags = ["app=gpucost", {_quote(f"env={environment}")}]
"""


HEADER = """\
# Parameters of sam deploy --config-env ENVIRONMENT. gpucost's template.yaml describes all parameter_overrides.
version = 0.1

"""


def has_environment(path: Path, environment: str) -> bool:
    """Return whether a `samconfig.toml` exists and names the stack of an environment.

    Raises:
        InvalidInputError: the file is not TOML.
    """
    if not path.exists():
        return False
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{FILE_NAME} is not TOML: {error}. Correct the file, or remove it") from error
    section: Any = document
    for key in (environment, "deploy", "parameters"):
        section = section.get(key, {}) if isinstance(section, dict) else {}
    return isinstance(section, dict) and "stack_name" in section


def with_environment(path: Path, environment: str, parameters: StackParameters) -> str:
    """Return the text of a `samconfig.toml`, which may not exist yet, with a section for an environment added."""
    text = path.read_text(encoding="utf-8").rstrip() + "\n\n" if path.exists() else HEADER
    return text + section_of(environment, parameters)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


ENVIRONMENT = PatternOption("environment", r"[A-Za-z0-9_-]+", "a name of letters, digits, hyphens and underscores")


@click.command()
@click.option("--environment", required=True, type=ENVIRONMENT, help="Section of the file, such as dev or prod.")
@click.option("--file", "path", default=FILE_NAME, show_default=True, type=click.Path(path_type=Path), help="The file.")
@region_option
@stack_options
@yes_option
def complete_samconfig(environment: str, path: Path, **_options: str | None) -> None:
    """Ask for the parameters of an environment that samconfig.toml lacks, and add them to the file."""
    if has_environment(path, environment):
        return
    region = answer("region", "AWS region of the stack")
    parameters = ask_stack_parameters(environment, region)
    new_path = path.with_name(f"{path.name}.new")
    new_path.write_text(with_environment(path, environment, parameters), encoding="utf-8")
    new_path.replace(path)
    click.echo(f"wrote [{environment}.deploy.parameters] to {path}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python -m gpucost_cli.samconfig`. An error prints one sentence."""
    try:
        complete_samconfig.main(args=arguments, standalone_mode=False)
    except click.ClickException as error:
        sys.exit(f"make deploy: {_with_make_form(error.format_message())}")
    except (GpuCostError, OSError) as error:
        sys.exit(f"make deploy: {_with_make_form(str(error))}")
    except (KeyboardInterrupt, click.exceptions.Abort):
        sys.exit("make deploy: interrupted")


def _with_make_form(message: str) -> str:
    """Append how make takes options, which it would read as its own, to a message that names some."""
    if "--" not in message:
        return message
    return f'{message.rstrip(".")}. make takes options as MORE, for example: make deploy MORE="--region REGION --yes"'


if __name__ == "__main__":
    main()
