"""`gpucost alerts`: lists, acknowledges and silences alerts, replays rules, and tests receivers."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost_cli.options import (
    HourOption,
    container_of,
    current_user,
    format_option,
    read_settings_file,
    settings_store,
    stack_option,
)
from gpucost_cli.settings_notes import notes_on
from gpucost_devstack.demo_records import is_demo

if TYPE_CHECKING:
    from gpucost.features.alerting.model import Notification
    from gpucost.features.alerting.muting import Silence
    from gpucost.features.alerting.ports import RuleInputs
    from gpucost.features.alerting.queries import AlertQueries
    from gpucost.features.alerting.rule_kinds.base import Subject
    from gpucost.settings_document import SettingsDocument

MAX_COLUMN_LENGTH = 1000


@click.group()
def alerts() -> None:
    """List, acknowledge and silence alerts, and try rules and receivers."""


@alerts.command("list")
@stack_option
@format_option("table", "json")
def list_alerts(stack: str, output_format: str) -> None:
    """List pending and firing alerts with their ids: firing ones first, then the oldest first.

    \b
    Example:
      gpucost alerts list --stack gpucost-prod
    """
    from gpucost.features.alerting.schemas import active_alert

    active = _alert_queries(stack).active_alerts()
    if output_format == "json":
        _print_json([active_alert(listed) for listed in active])
        return
    for listed in active:
        alert = listed.alert
        remarks = [f"acknowledged by {alert.acknowledged_by}"] if alert.acknowledged_by else []
        remarks += [f"silenced by {silence_id}" for silence_id in listed.silenced_by]
        since = format_timestamp(alert.since)
        _print_row(listed.id, alert.phase, since, alert.rule, _describe_subject(alert.subject), ", ".join(remarks))


@alerts.command()
@stack_option
@click.argument("alert_id", metavar="ID")
def acknowledge(stack: str, alert_id: str) -> None:
    """Acknowledge a firing alert, so that it is not repeated. A notification is still sent when it resolves.

    \b
    Example:
      gpucost alerts acknowledge 1f2e3d4c5b6a --stack gpucost-prod
    """
    acknowledged = _alert_queries(stack).acknowledge(alert_id, author=current_user()).alert
    subject = _describe_subject(acknowledged.subject)
    _print_row(f"{acknowledged.rule} {subject} is acknowledged by {acknowledged.acknowledged_by}")


@alerts.group()
def silence() -> None:
    """Silence alerts for a period, and list or expire silences."""


@silence.command("add")
@stack_option
@click.argument("matchers", nargs=-1, metavar="FIELD=PATTERN...")
@click.option("--hours", required=True, type=click.FloatRange(min=0, min_open=True), help="Duration, from now.")
@click.option("--comment", required=True, help="Why the alerts are silenced.")
def add_silence(stack: str, matchers: tuple[str, ...], hours: float, comment: str) -> None:
    """Silence the alerts that match all of the shell patterns. Alerts that still fire are sent when the silence ends.

    \b
    Example:
      gpucost alerts silence add rule=waste 'business_unit=res*' --hours 8 --comment "load test" --stack gpucost-prod
    """
    patterns = _parse_matchers(matchers)
    _print_silence(_alert_queries(stack).add_silence(patterns, author=current_user(), comment=comment, hours=hours))


@silence.command("list")
@stack_option
@format_option("table", "json")
def list_silences(stack: str, output_format: str) -> None:
    """List active and future silences, and those of the last three months.

    \b
    Example:
      gpucost alerts silence list --stack gpucost-prod
    """
    from gpucost.features.alerting.schemas import silence_row

    queries = _alert_queries(stack)
    silences = queries.silences()
    if output_format == "json":
        _print_json([silence_row(silence, queries.now()) for silence in silences])
        return
    for listed in silences:
        _print_silence(listed)


@silence.command("expire")
@stack_option
@click.argument("silence_id", metavar="ID")
def expire_silence(stack: str, silence_id: str) -> None:
    """End a silence now.

    \b
    Example:
      gpucost alerts silence expire 1f2e3d4c5b6a --stack gpucost-prod
    """
    _print_silence(_alert_queries(stack).expire_silence(silence_id))


@alerts.command("test")
@stack_option
@click.option("--receiver", required=True, help="Name of a receiver in the settings; its type if it has no name.")
def test_receiver(stack: str, receiver: str) -> None:
    """Send a test notification to one receiver.

    \b
    Example:
      gpucost alerts test --receiver email --stack gpucost-prod
    """
    from gpucost_cli import deployment

    settings = settings_store(stack).current().settings
    receivers = {configured.name or configured.type: configured for configured in settings.alerts.receivers}
    if receiver not in receivers:
        allowed = ", ".join(receivers) or "none; add receivers to the settings"
        raise InvalidInputError(f"--receiver: unknown receiver {receiver!r}; allowed: {allowed}")
    key = receivers[receiver].key
    notification = _test_notification(settings.clusters[0].name)
    deployment.find_deployment(stack).container().notifiers(settings)[key].send([notification])
    simulated = "; the demo's stand-in received it, and nothing left this machine" if is_demo(stack) else ""
    click.echo(f"sent to {receiver} ({key}){simulated}")


@alerts.command()
@stack_option
@click.option(
    "--from", "--start", "start", required=True, type=HourOption(), help="First hour, for example 2026-11-19T10:00:00Z."
)
@click.option("--to", "--end", "end", required=True, type=HourOption(), help="End of the period, exclusive.")
@click.option(
    "--settings",
    "path",
    type=click.Path(path_type=Path),
    help="Settings file with the rules.  [default: the deployed rules]",
)
@format_option("table", "json")
def replay(stack: str, start: datetime, end: datetime, path: Path | None, output_format: str) -> None:
    """Show the notifications that rules would have sent for stored hours. Nothing is sent or stored.

    \b
    Example:
      gpucost alerts replay --from 2026-11-01 --to 2026-11-15 --settings new.yaml --stack gpucost-prod
    """
    from gpucost.features.alerting.replay import count_firings
    from gpucost.features.alerting.replay import replay as replay_rules
    from gpucost.features.alerting.schemas import alert_event
    from gpucost.settings_document import parse_settings
    from gpucost.storage.ports import StoredSettings

    stored = deployed = settings_store(stack).current()
    if path is not None:
        text = read_settings_file(path)
        settings = parse_settings(text)
        settings.check_new_document()
        stored = StoredSettings(stored.version, text, settings, current_user(), datetime.now(UTC))
    inputs = _rule_inputs(stack)
    notifications = list(replay_rules(inputs, stored, start, end))
    _check_replayed_clusters(inputs, stored.settings, deployed.settings, start, end)
    if output_format == "json":
        _print_json([alert_event(notification) for notification in notifications])
    else:
        for notification in notifications:
            note = f"({notification.note})" if notification.note else ""
            subject = _describe_subject(notification.subject)
            _print_row(format_timestamp(notification.hour), notification.event, notification.rule, subject, note)
    counts = sorted(count_firings(notifications).items())
    fired = ", ".join(f"{rule} {count}" for rule, count in counts) or "none"
    click.echo(f"would have fired: {fired}", err=True)


@alerts.command("amp-definition")
@stack_option
def amp_definition(stack: str) -> None:
    """Print the alert manager definition with which an AMP workspace sends its alerts to a deployment.

    \b
    Example:
      gpucost alerts amp-definition --stack gpucost-prod > definition.yaml
    """
    from gpucost_cli import deployment
    from gpucost_devstack.template import REPOSITORY

    text = (REPOSITORY / "cluster" / "amp-alertmanager.yaml").read_text()
    topic = deployment.find_deployment(stack).alerts_topic_arn
    region = topic.split(":")[3]
    sys.stdout.write(text.replace("EVENTS_TOPIC_ARN", topic).replace("REGION", region))


def _check_replayed_clusters(
    inputs: "RuleInputs", settings: "SettingsDocument", deployed: "SettingsDocument", start: datetime, end: datetime
) -> None:
    """Note clusters without hours in a period, and patterns in rules that match nothing.

    Raises:
        InvalidInputError: no cluster has hours, so that no rule could fire.
    """
    names = [cluster.name for cluster in settings.clusters]
    deployed_names = [cluster.name for cluster in deployed.clusters]
    without_hours = [name for name in names if not inputs.ledger.manifests(name, start, end)]
    faults = []
    if unknown := [name for name in without_hours if name not in deployed_names]:
        faults.append(
            f"{', '.join(unknown)}: not in the settings of the stack, whose clusters are {', '.join(deployed_names)}. "
            "Correct clusters[].name"
        )
    if unpublished := [name for name in without_hours if name in deployed_names]:
        period = f"from {format_timestamp(start)} to {format_timestamp(end)}"
        faults.append(f"{', '.join(unpublished)}: the ledger has no hours {period}. Pass another period")
    if len(without_hours) == len(names):
        raise InvalidInputError(f"no rule was tried. {'; '.join(faults)}")
    for fault in faults:
        click.echo(f"note: no rule was tried on {fault}", err=True)
    for note in notes_on(settings):
        if note.startswith("alerts.rules"):
            click.echo(f"note: {note}", err=True)


def _describe_subject(subject: "Subject") -> str:
    return " ".join(f"{name}={field}" for name, field in subject._asdict().items() if field)


def _parse_matchers(arguments: tuple[str, ...]) -> dict[str, str]:
    matchers: dict[str, str] = {}
    for argument in arguments:
        name, equals, pattern = argument.partition("=")
        if not equals or not pattern:
            raise InvalidInputError(f"{argument!r}: must be FIELD=PATTERN, for example business_unit=research")
        if name in matchers:
            raise InvalidInputError(f"{name}: passed twice; use one shell pattern, for example {name}=team-[ab]")
        matchers[name] = pattern
    return matchers


def _print_silence(silence: "Silence") -> None:
    matchers = " ".join(f"{name}={pattern}" for name, pattern in sorted(silence.matchers.items()))
    times = f"{format_timestamp(silence.starts_at)} to {format_timestamp(silence.ends_at)}"
    _print_row(silence.id, times, silence.author, matchers, silence.comment)


def _print_row(*columns: str) -> None:
    """Print a row. Names and comments are other people's text: they must not break the row or control the terminal."""
    from gpucost.features.alerting.notification_text import single_line

    click.echo("\t".join(single_line(column, MAX_COLUMN_LENGTH) for column in columns).rstrip())


def _print_json(rows: list[dict[str, Any]]) -> None:
    from gpucost.runtime.json_text import dumps

    sys.stdout.write(dumps({"rows": rows}, indent=2) + "\n")


def _test_notification(cluster: str) -> "Notification":
    from gpucost.features.alerting.model import Notification
    from gpucost.features.alerting.rule_kinds.base import Subject

    hour = floor_hour(datetime.now(UTC)) - HOUR
    subject = Subject(cluster, detail=f"sent by {current_user()}")
    return Notification(
        f"{cluster}/sample", "firing", "sample", "sample", "info", subject, hour, hour, "gpucost alerts test", {}
    )


def _alert_queries(stack: str) -> "AlertQueries":
    return container_of(stack).alert_queries


def _rule_inputs(stack: str) -> "RuleInputs":
    from gpucost.features.alerting.evaluation import estimates_check
    from gpucost.features.alerting.ports import RuleInputs

    container = container_of(stack)
    return RuleInputs(
        container.ledger,
        container.rollups,
        container.alert_spend,
        lambda: None,
        lambda: None,
        estimates_check(container.settings_store),
    )
