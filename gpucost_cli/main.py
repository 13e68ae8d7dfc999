"""`gpucost`: the command line. Results go to stdout, progress and errors to stderr."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, InvalidInputError

if TYPE_CHECKING:
    from gpucost.container import Container

FAILURE, BAD_INPUT = 1, 2
COMMAND_GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start here": {
        "serve": ("serve_command", "Serve the page and the API of a Prometheus on this machine, without AWS."),
        "attribute": (
            "attribute_command",
            "Compute and print the cost of hours from any Prometheus, without a deployment.",
        ),
        "doctor": (
            "doctor_command",
            "Check each cluster's Prometheus for the metrics and labels that attribution needs.",
        ),
        "init": ("init_command", "Ask what a deployment needs, and write settings.yaml and samconfig.toml."),
        "demo": ("demo_command", "Run the whole system on this machine, on simulated clusters."),
    },
    "Reports and alerts": {
        "report": ("report_command", "Report costs by business unit, or by other dimensions."),
        "dashboard": (
            "dashboard_command",
            "Serve a deployment's page and API on this machine, and sign each request with your credentials.",
        ),
        "recommendations": (
            "recommendation_commands",
            "List, show and dismiss recommendations, and analyze moves to MIG slices, APIs or other GPUs.",
        ),
        "alerts": ("alert_commands", "List, acknowledge and silence alerts, and try rules and receivers."),
        "export": (
            "export_command",
            "Export days as FOCUS rows to the deployment's bucket, whether or not they are due.",
        ),
    },
    "Settings, prices and manifests": {
        "settings": ("settings_commands", "Check, push, show and roll back the settings document of a deployment."),
        "prices": ("price_commands", "List, set and refresh the prices of a deployment."),
        "manifests": ("manifests.command", "Write the manifests and the Prometheus rules that a cluster needs."),
    },
    "Ledger": {
        "hours": ("hours_commands", "Restate past hours, compare split policies, and redrive dead letters."),
        "backfill": ("backfill_command", "Attribute past hours through the deployment's queue. No alerts are sent."),
        "months": ("month_commands", "Close months for chargeback, and reopen them."),
        "ledger": ("ledger_command", "Copy the ledger of gpucost serve into a deployment."),
    },
    "Shell": {"completion": ("completion_command", "Print the completion script of a shell.")},
}
"""The module and the summary of every command. A module is imported when its command is used, because imports are most
of a short command's time."""
COMMANDS = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}


class LazyGroup(click.Group):
    """The top-level commands, whose modules are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, summary = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"gpucost_cli.{module}"), cmd_name)
        command.short_help = summary
        if isinstance(command, click.Group):
            _list_commands_with_whole_sentences(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. The error for an unknown name suggests similar ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups of commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, group in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, summary) in group.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gpucost", message="%(prog)s %(version)s")
def cli() -> None:
    """GPU cost attribution for Amazon EKS: what each business unit requested, used, paid for and wasted.

    Commands that take --stack work on a deployment under your own IAM permissions. The running demo is --stack local.
    """


def _list_commands_with_whole_sentences(group: click.Group) -> None:
    """Make the lists of commands show the first sentence of each command's help, which click would cut short."""
    for command in group.commands.values():
        if command.help and not command.short_help:
            command.short_help = " ".join(command.help.partition("\n\n")[0].split())
        if isinstance(command, click.Group):
            _list_commands_with_whole_sentences(command)


def main(arguments: Sequence[str] | None = None, container: "Container | None" = None) -> None:
    """Run the console script.

    The exit status is 0, 2 for bad input or 1 for a failure; each failure prints one sentence on stderr.

    Args:
        arguments: the command's; None: those of the process.
        container: the composed parts of a deployment, for commands that take `--stack`; None: they look the stack up.
    """
    try:
        cli.main(args=arguments, prog_name="gpucost", standalone_mode=False, obj=container)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.MissingParameter as error:
        _exit_with_error(_all_missing(error, sys.argv[1:] if arguments is None else arguments), BAD_INPUT)
    except click.ClickException as error:
        _exit_with_error(error.format_message(), BAD_INPUT)
    except InvalidInputError as error:
        _exit_with_error(str(error), BAD_INPUT)
    except GpuCostError as error:
        _exit_with_error(str(error), FAILURE)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _exit_with_error("interrupted", FAILURE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILURE)
    except Exception as error:
        if os.environ.get("GPUCOST_DEBUG"):
            raise
        _exit_with_error(
            f"unexpected {type(error).__name__}: {error} (set GPUCOST_DEBUG=1 to see the traceback)", FAILURE
        )


def _all_missing(error: click.MissingParameter, arguments: Sequence[str]) -> str:
    """Name all required options and arguments that are missing, where click names the first."""
    context = error.ctx
    if context is None or isinstance(context.command, click.Group):
        return error.format_message()
    words = list(arguments)
    for name in context.command_path.split()[1:]:
        words = words[words.index(name) + 1 :]
    parsed, _, _ = context.command.make_parser(context).parse_args(words)
    missing = [
        parameter
        for parameter in context.command.get_params(context)
        if parameter.required and parameter.value_is_missing(parameter.consume_value(context, parsed)[0])
    ]
    names = [
        parameter.make_metavar(context)
        if isinstance(parameter, click.Argument)
        else f"{parameter.opts[0]} {parameter.make_metavar(context)}"
        for parameter in missing
    ]
    if len(names) < 2:
        return error.format_message()
    return f"missing: {', '.join(names)}. {context.command_path} --help has an example"


def _exit_with_error(sentence: str, status: int) -> None:
    click.echo("gpucost: " + " ".join(sentence.split()), err=True)
    sys.exit(status)
