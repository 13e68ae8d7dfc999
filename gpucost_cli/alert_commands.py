"""`gpucost alerts`, `gpucost silence` and `gpucost ack`: what people do with alerts, under their own IAM."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_hour, format_timestamp
from gpucost_cli.options import HourType, current_user, settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.features.alerting.model import Notification, Subject
    from gpucost.features.alerting.muting import Silence
    from gpucost.features.alerting.ports import AlertSources
    from gpucost.features.alerting.queries import AlertQueries

REPOSITORY = Path(__file__).resolve().parent.parent
LONGEST_COLUMN = 1000


@click.group()
def alerts() -> None:
    """Alerts: which are active, whether messages arrive, what new rules would have done."""


@alerts.command("list")
@stack_option
def list_(stack: str) -> None:
    """List pending and firing alerts, with the ids that `gpucost ack` takes."""
    for one in _desk(stack).active():
        alert = one.alert
        more = [f"acked by {alert.acknowledged_by}"] if alert.acknowledged_by else []
        more += [f"silenced by {silence}" for silence in one.silenced_by]
        since = format_timestamp(alert.since)
        _print(one.id, alert.phase, since, alert.rule, words(alert.subject), ", ".join(more))


@alerts.command("test")
@stack_option
@click.option("--receiver", required=True, help="name of a receiver in the settings; its type where it has no name")
def try_(stack: str, receiver: str) -> None:
    """Send a sample to one receiver, now."""
    from gpucost.features.alerting.notifiers import notifiers
    from gpucost_cli import deployment

    settings = settings_store(stack).current().settings
    found = {one.name or one.type: one for one in settings.alerts.receivers}
    if receiver not in found:
        raise InvalidInputError(f"{receiver!r} is no receiver of the settings; there are: {', '.join(found) or 'none'}")
    topic = deployment.find(stack).email_topic_arn
    key = found[receiver].key
    notifiers(settings, email_topic_arn=topic, public_url="")[key].send([_sample(settings.clusters[0].name)])
    click.echo(f"sent to {receiver} ({key})")


@alerts.command("replay")
@stack_option
@click.option("--from", "--start", "start", required=True, type=HourType(), help="first hour, as 2026-11-19T10:00:00Z")
@click.option("--to", "--end", "end", required=True, type=HourType(), help="end of the period")
@click.option(
    "--settings", "path", type=click.Path(path_type=Path), help="rules to try; the deployment's where not given"
)
def replay(stack: str, start: datetime, end: datetime, path: Path | None) -> None:
    """Say what rules would have decided on stored hours; nobody is told, and nothing is remembered."""
    from gpucost.features.alerting.replay import count_firings
    from gpucost.features.alerting.replay import replay as run
    from gpucost.settings_document import parse_settings
    from gpucost.storage.ports import StoredSettings

    stored = settings_store(stack).current()
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"settings file {str(path)!r} cannot be read") from error
        settings = parse_settings(text)
        settings.check_new()
        stored = StoredSettings(stored.version, text, settings, current_user(), datetime.now(UTC))
    news = list(run(_sources(stack), stored, start, end))
    for one in news:
        note = f"({one.note})" if one.note else ""
        _print(format_timestamp(one.hour), one.event, one.rule, words(one.subject), note)
    fired = ", ".join(f"{rule} {number}" for rule, number in sorted(count_firings(news).items())) or "none"
    click.echo(f"would have fired: {fired}", err=True)


@alerts.command("amp-definition")
@stack_option
def amp_definition(stack: str) -> None:
    """Print the alert manager definition that lets an AMP workspace tell this deployment."""
    from gpucost_cli import deployment

    text = (REPOSITORY / "cluster" / "amp-alertmanager.yaml").read_text()
    topic = deployment.find(stack).events_topic_arn
    region = topic.split(":")[3]
    sys.stdout.write(text.replace("EVENTS_TOPIC_ARN", topic).replace("REGION", region))


@click.command()
@stack_option
@click.argument("matchers", nargs=-1)
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="how long, from now on")
@click.option("--comment", default="", help="why nobody wants to hear of it")
@click.option("--end", "ended", metavar="ID", help="let a silence end now")
def silence(stack: str, matchers: tuple[str, ...], hours: float | None, comment: str, ended: str | None) -> None:
    """Hear nothing of some alerts for a time: gpucost silence rule=waste 'business_unit=res*' --hours 8 --comment ….

    Without matchers the silences there are.
    """
    wanted = _matchers(matchers)
    if ended is not None and (wanted or hours is not None or comment):
        raise InvalidInputError("--end goes with nothing else: it ends the silence of that id")
    if wanted and hours is None:
        raise InvalidInputError("--hours is needed: every silence has an end")
    if not wanted and (hours is not None or comment):
        raise InvalidInputError("which alerts? matchers are written like business_unit=research")
    desk = _desk(stack)
    if ended is not None:
        _show(desk.expire_silence(ended))
    elif hours is None:
        for one in desk.silences():
            _show(one)
    else:
        _show(desk.add_silence(wanted, author=current_user(), comment=comment, hours=hours))


@click.command()
@stack_option
@click.argument("alert")
def ack(stack: str, alert: str) -> None:
    """Take a firing alert on: it is not repeated; that it is over is still said."""
    taken = _desk(stack).acknowledge(alert, author=current_user())
    _print(f"{taken.alert.rule} {words(taken.alert.subject)} is {taken.alert.acknowledged_by}'s")


def words(subject: "Subject") -> str:
    """What an alert is about."""
    return " ".join(f"{name}={value}" for name, value in subject._asdict().items() if value)


def _matchers(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not value:
            raise InvalidInputError(f"{one!r} is no matcher; one is written like business_unit=research")
        if name in found:
            raise InvalidInputError(f"{name} is given twice; patterns are those of a shell: {name}=team-[ab]")
        found[name] = value
    return found


def _show(one: "Silence") -> None:
    matchers = " ".join(f"{name}={value}" for name, value in sorted(one.matchers.items()))
    times = f"{format_timestamp(one.starts_at)} to {format_timestamp(one.ends_at)}"
    _print(one.id, times, one.author, matchers, one.comment)


def _print(*columns: str) -> None:
    """A row; names and comments come from others, and must neither break it nor steer the terminal."""
    from gpucost.features.alerting.notifiers.formatting import single_line

    click.echo("\t".join(single_line(column, LONGEST_COLUMN) for column in columns).rstrip())


def _sample(cluster: str) -> "Notification":
    from gpucost.features.alerting.model import Notification, Subject

    hour = floor_hour(datetime.now(UTC)) - HOUR
    subject = Subject(cluster, detail=f"sent by {current_user()}")
    return Notification(
        f"{cluster}/sample", "firing", "sample", "sample", "info", subject, hour, hour, "gpucost alerts test", {}
    )


def _table(stack: str) -> tuple[Any, str]:
    from gpucost.runtime import aws
    from gpucost_cli import deployment

    table = deployment.find(stack).table
    return aws.client("dynamodb"), table


def _desk(stack: str) -> "AlertQueries":
    from gpucost.features.alerting.queries import AlertQueries
    from gpucost.features.alerting.storage.history import AlertHistory, SilenceStore
    from gpucost.features.alerting.storage.states import DynamoAlertStates

    store, own = settings_store(stack), _table(stack)
    return AlertQueries(
        store, DynamoAlertStates(*own), AlertHistory(*own), SilenceStore(*own), clock=lambda: datetime.now(UTC)
    )


def _sources(stack: str) -> "AlertSources":
    from gpucost.features.alerting.ports import AlertSources
    from gpucost.features.alerting.storage.spend import DynamoSpendStore
    from gpucost.storage.ledger import Ledger
    from gpucost.storage.rollups import RollupStore

    own = _table(stack)
    return AlertSources(Ledger(*own), RollupStore(*own), DynamoSpendStore(*own), lambda: None, lambda: None)
