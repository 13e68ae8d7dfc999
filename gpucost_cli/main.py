"""`gpucost`: the command line of design §6. Results go to stdout, progress and errors to stderr."""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from devstack.demo_records import is_demo
from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost.core.hours import format_instant
from gpucost_cli.alert_commands import ack, alerts, silence
from gpucost_cli.attribute_command import attribute
from gpucost_cli.aws_session import aws_options
from gpucost_cli.backfill_command import backfill
from gpucost_cli.dashboard_command import dashboard
from gpucost_cli.export_command import export
from gpucost_cli.manifests.command import kit
from gpucost_cli.month_commands import adjustments, freeze, unfreeze
from gpucost_cli.options import author, read_settings_file, settings_store, stack_option
from gpucost_cli.placeholders import refuse_placeholders
from gpucost_cli.price_commands import prices
from gpucost_cli.recommendation_commands import advise
from gpucost_cli.redrive_command import redrive
from gpucost_cli.report_command import report
from gpucost_cli.restate_command import compare_splits, restate
from gpucost_cli.rules.command import rules
from gpucost_cli.what_if_command import what_if

FAILURE, BAD_INPUT = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """GPU cost attribution for Amazon EKS."""


@cli.command()
@click.option("--settings", "path", required=True, type=click.Path(path_type=Path), help="settings file, YAML or JSON")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json"]))
@aws_options
def doctor(path: Path, form: str) -> None:
    """Which metrics and labels each cluster's Prometheus has, which are missing, and what to change."""
    from gpucost.settings_document import parse_settings
    from gpucost_cli.doctor import examine_all, render

    settings = parse_settings(read_settings_file(path))
    reports = examine_all(settings, datetime.now(UTC))
    if form == "json":
        sys.stdout.write(render.as_json(reports) + "\n")
    else:
        from rich.console import Console

        console = Console()
        for part in render.as_tables(reports):
            console.print(part, soft_wrap=isinstance(part, str))  # a line to change is copied in one piece
    if sentence := render.obstacles(reports, with_reasons=form == "json"):
        raise GpuCostError(sentence)


cli.add_command(prices)


@cli.group()
def settings() -> None:
    """The settings document of a deployment."""


@settings.command()
@click.argument("path", type=click.Path(path_type=Path))
@stack_option
def push(path: Path, stack: str) -> None:
    """Validate a document and put it in force."""
    from gpucost.settings_document import parse_settings

    text = read_settings_file(path)
    settings = parse_settings(text)
    if not is_demo(stack):  # a demo's AWS is made up anyway
        refuse_placeholders(settings, "settings")
    stored = settings_store(stack).push(text, author=author(), now=datetime.now(UTC))
    click.echo(f"version {stored.version} is in force")


@settings.command()
@stack_option
@click.option("--version", type=click.IntRange(1), help="an older version")
def show(stack: str, version: int | None) -> None:
    """Print the document in force."""
    store = settings_store(stack)
    click.echo((store.version(version) if version else store.current()).text, nl=False)


@settings.command()
@stack_option
def history(stack: str) -> None:
    """List the versions, newest first."""
    for stored in settings_store(stack).history():
        click.echo(f"{stored.version}\t{format_instant(stored.pushed_at)}\t{stored.author}")


@settings.command()
@stack_option
@click.option("--to", "version", required=True, type=click.IntRange(1), help="the version to go back to")
def rollback(stack: str, version: int) -> None:
    """Put an older document in force again, as a new version."""
    store = settings_store(stack)
    stored = store.push(store.version(version).text, author=author(), now=datetime.now(UTC))
    click.echo(f"version {stored.version} is in force, with the text of version {version}")


@cli.command()
@click.option("--once", is_flag=True, help="end after printing, without serving the API; needs no port")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="of the API; 0 for any")
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="another template than template.yaml, to try a change of policies",
)
def demo(*, once: bool, port: int, template: Path | None) -> None:
    """The whole system on this machine, on three days of a simulated cluster."""
    from devstack.template import TEMPLATE
    from gpucost_cli import demo_command as demonstration

    demonstration.run(once=once, port=port, template=template or TEMPLATE)


cli.add_command(advise)
cli.add_command(ack)
cli.add_command(alerts)
cli.add_command(attribute)
cli.add_command(silence)
cli.add_command(backfill)
cli.add_command(export)
cli.add_command(dashboard)
cli.add_command(kit)
cli.add_command(redrive)
cli.add_command(report)
cli.add_command(freeze)
cli.add_command(unfreeze)
cli.add_command(adjustments)
cli.add_command(restate)
cli.add_command(compare_splits)
cli.add_command(rules)
cli.add_command(what_if)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: 0, or 2 for bad input, 1 for a failure, each with one clear sentence on stderr."""
    try:
        cli.main(args=arguments, prog_name="gpucost", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        _fail(error.format_message(), BAD_INPUT)
    except InvalidInputError as error:
        _fail(str(error), BAD_INPUT)
    except GpuCostError as error:
        _fail(str(error), FAILURE)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _fail("interrupted", FAILURE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILURE)
    except Exception as error:
        if os.environ.get("GPUCOST_DEBUG"):
            raise
        _fail(f"unexpected {type(error).__name__}: {error} (GPUCOST_DEBUG=1 shows where)", FAILURE)


def _fail(sentence: str, status: int) -> None:
    click.echo("gpucost: " + " ".join(sentence.split()), err=True)
    sys.exit(status)
