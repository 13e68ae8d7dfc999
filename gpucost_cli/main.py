"""`gpucost`: the command line. Results go to stdout, progress and errors to stderr."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.alert_commands import alerts
from gpucost_cli.attribute_command import attribute
from gpucost_cli.backfill_command import backfill
from gpucost_cli.completion_command import completion
from gpucost_cli.dashboard_command import dashboard
from gpucost_cli.doctor_command import doctor
from gpucost_cli.export_command import export
from gpucost_cli.hours_commands import hours
from gpucost_cli.init_command import init
from gpucost_cli.manifests.command import manifests
from gpucost_cli.month_commands import months
from gpucost_cli.price_commands import prices
from gpucost_cli.recommendation_commands import recommendations
from gpucost_cli.report_command import report
from gpucost_cli.rules.command import rules
from gpucost_cli.settings_commands import settings

if TYPE_CHECKING:
    from gpucost.container import Container

FAILURE, BAD_INPUT = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gpucost", message="%(prog)s %(version)s")
def cli() -> None:
    """GPU cost attribution for Amazon EKS: what each business unit requested, used, paid for and wasted.

    Commands that take --stack work on a deployment under your own IAM permissions. The running demo is --stack local.
    """


@cli.command()
@click.option("--once", is_flag=True, help="Print the results and end, without serving the API.")
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the API; 0 takes a free one.",
)
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Another template.yaml, for example to test changes to its IAM policies.",
)
def demo(*, once: bool, port: int, template: Path | None) -> None:
    """Run the whole system on this machine, on three days of a simulated cluster.

    \b
    Example:
      gpucost demo
    """
    from gpucost_cli import demo_command
    from gpucost_devstack.template import TEMPLATE

    demo_command.run_demo(once=once, port=port, template=template or TEMPLATE)


cli.add_command(completion)
cli.add_command(doctor)
cli.add_command(prices)
cli.add_command(settings)
cli.add_command(recommendations)
cli.add_command(alerts)
cli.add_command(attribute)
cli.add_command(backfill)
cli.add_command(export)
cli.add_command(dashboard)
cli.add_command(manifests)
cli.add_command(hours)
cli.add_command(init)
cli.add_command(report)
cli.add_command(months)
manifests.add_command(rules)


def _list_commands_with_whole_sentences(group: click.Group) -> None:
    """Make the lists of commands show the first sentence of each command's help, which click would cut short."""
    for command in group.commands.values():
        if command.help and not command.short_help:
            command.short_help = " ".join(command.help.partition("\n\n")[0].split())
        if isinstance(command, click.Group):
            _list_commands_with_whole_sentences(command)


_list_commands_with_whole_sentences(cli)


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


def _exit_with_error(sentence: str, status: int) -> None:
    click.echo("gpucost: " + " ".join(sentence.split()), err=True)
    sys.exit(status)
