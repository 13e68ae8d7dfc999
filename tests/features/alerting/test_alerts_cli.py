"""`gpucost alerts`, run against a stack in the embedded AWS."""

import getpass
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from gpucost.core.hours import HOUR, format_timestamp
from gpucost_devstack.aws import create_stack, local_client, running_aws
from gpucost_devstack.slack import SlackWebhook, running_slack
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier, pod, settings_with_rules
from tests.gpucost_command import CommandResult, in_this_process
from tests.system.demo_record import announced_in

pytestmark = pytest.mark.tools  # seconds

WASTE = "rule: waste, name: team-waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 2"
SECRET = "gpucost/slack-webhook"
RECEIVERS = f"[{{type: email}}, {{type: slack, name: ml-costs, secret: {SECRET}}}]"
IDLE, BUSY = pod(gpus=2, use="0.05"), pod(gpus=2, use="0.9")
ME = getpass.getuser()


class Stack:
    """The template's stack, in which two business units waste: one for two hours, the other for one hour."""

    def __init__(self, endpoint: str, slack: SlackWebhook) -> None:
        self.slack = slack
        self.outputs = create_stack(endpoint, "http://127.0.0.1:1", {}).outputs
        self.sns, self.sqs = (local_client(name, endpoint) for name in ("sns", "sqs"))
        local_client("secretsmanager", endpoint).create_secret(Name=SECRET, SecretString=slack.url)
        table = DynamoTable(local_client("dynamodb", endpoint), self.outputs["TableName"])
        text = settings_with_rules(WASTE).replace("[{type: email}]", RECEIVERS)
        fleet = Fleet(table, text, notifiers={"email": RecordingNotifier(), f"slack:{SECRET}": RecordingNotifier()})
        fleet.publish_and_close(0, IDLE)
        assert fleet.publish_and_close(1, IDLE, pod("chat", "serve", gpus=1, use="0.1")) == [
            "firing team-waste research"
        ]

    def emails(self) -> str:
        """Subscribe a queue to the email topic, and return the queue's URL."""
        url: str = self.sqs.create_queue(QueueName="mailbox")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.sns.subscribe(TopicArn=self.outputs["EmailTopicArn"], Protocol="sqs", Endpoint=arn)
        return url


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with ExitStack() as running:
        endpoint = running.enter_context(running_aws())
        running.enter_context(announced_in(tmp_path_factory.mktemp("alerts"), endpoint))
        running.enter_context(patch.dict(os.environ))  # commands set where AWS is
        yield Stack(endpoint, running.enter_context(running_slack()))


STAND_IN = "; the demo's stand-in received it, and nothing left this machine"


def gpucost(*arguments: str) -> CommandResult:
    return in_this_process(*arguments, "--stack", "local")


def rows(*arguments: str) -> list[list[str]]:
    done = gpucost(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_alerts_are_listed_acknowledged_and_silenced(stack: Stack) -> None:
    firing, pending = rows("alerts", "list")
    since = format_timestamp(START)
    assert firing[1:] == ["firing", since, "team-waste", "cluster=demo business_unit=research"]
    assert pending[1:] == ["pending", format_timestamp(START + HOUR), "team-waste", "cluster=demo business_unit=chat"]

    acknowledged = gpucost("alerts", "acknowledge", firing[0])
    expected = f"team-waste cluster=demo business_unit=research is acknowledged by {ME}\n"
    assert (acknowledged.returncode, acknowledged.stdout) == (0, expected)
    comment = "load\ttest\x1b[2J of Öl"
    ((silence_id, times, author, matchers, printed_comment),) = rows(
        "alerts", "silence", "add", "rule=team-waste", "business_unit=res*", "--hours", "1.5", "--comment", comment
    )
    begin, _, end = times.partition(" to ")
    assert (author, matchers, printed_comment) == (ME, "business_unit=res* rule=team-waste", "load test [2J of Öl")
    assert [[firing[0], *firing[1:], f"acknowledged by {ME}, silenced by {silence_id}"], pending] == rows(
        "alerts", "list"
    )
    assert [row[0] for row in rows("alerts", "silence", "list")] == [silence_id]

    ((expired_id, times, *_),) = rows("alerts", "silence", "expire", silence_id)
    assert (expired_id, times.partition(" to ")[0]) == (silence_id, begin)
    assert begin <= times.partition(" to ")[2] < end
    assert [[*firing, f"acknowledged by {ME}"], pending] == rows("alerts", "list")
    assert gpucost("alerts", "silence", "expire", silence_id).returncode == 1


def test_lists_print_json(stack: Stack) -> None:
    active = json.loads(gpucost("alerts", "list", "--format", "json").stdout)["rows"]
    assert [(row["phase"], row["subject"]["business_unit"]) for row in active] == [
        ("firing", "research"),
        ("pending", "chat"),
    ]
    silences = json.loads(gpucost("alerts", "silence", "list", "--format", "json").stdout)["rows"]
    assert {row["active"] for row in silences} <= {False}
    period = ("--from", format_timestamp(START), "--to", format_timestamp(START + 3 * HOUR))
    (event,) = json.loads(gpucost("alerts", "replay", *period, "--format", "json").stdout)["rows"]
    assert (event["event"], event["rule"], event["subject"]["business_unit"]) == ("firing", "team-waste", "research")


def test_test_notification_reaches_only_the_named_receiver(stack: Stack) -> None:
    mailbox = stack.emails()
    assert rows("alerts", "test", "--receiver", "email") == [[f"sent to email (email){STAND_IN}"]]
    (email,) = stack.sqs.receive_message(QueueUrl=mailbox)["Messages"]
    assert f"sent by {ME}" in json.loads(email["Body"])["Message"]
    assert stack.slack.posts == []
    assert rows("alerts", "test", "--receiver", "ml-costs") == [[f"sent to ml-costs (slack:{SECRET}){STAND_IN}"]]
    (post,) = stack.slack.posts
    assert "Test alert" in post["text"]
    assert f"sent by {ME}" in json.dumps(post)


def test_replay_reads_rules_from_a_file(stack: Stack, tmp_path: Path) -> None:
    period = ("--from", format_timestamp(START), "--to", format_timestamp(START + 3 * HOUR))
    done = gpucost("alerts", "replay", *period)
    line = f"{format_timestamp(START + HOUR)}\tfiring\tteam-waste\tcluster=demo business_unit=research\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, line, "would have fired: team-waste 1\n")
    path = tmp_path / "new.yaml"
    path.write_text(settings_with_rules("rule: waste, waste_usd_per_hour: 10, waste_percent: 80, for_hours: 1"))
    done = gpucost("alerts", "replay", *period, "--settings", str(path))
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()] == [
        [format_timestamp(START), "firing", "waste"],
        [format_timestamp(START + HOUR), "firing", "waste"],
    ]
    assert done.stderr == "would have fired: waste 2\n"
    path.write_text(settings_with_rules("rule: waste, waste_usd_per_hour: 1000, waste_percent: 80"))
    assert gpucost("alerts", "replay", *period, "--settings", str(path)).stderr == "would have fired: none\n"
    assert [row[1] for row in rows("alerts", "list")] == ["firing", "pending"], "a replay changed alerts"


def test_replay_names_clusters_without_hours(stack: Stack, tmp_path: Path) -> None:
    period = ("--from", format_timestamp(START), "--to", format_timestamp(START + 3 * HOUR))
    path = tmp_path / "new.yaml"
    document = yaml.safe_load(settings_with_rules(WASTE))
    path.write_text(yaml.safe_dump({**document, "clusters": [{**document["clusters"][0], "name": "dmeo"}]}))
    done = gpucost("alerts", "replay", *period, "--settings", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gpucost: no rule was tried. dmeo: not in the settings of the stack, whose clusters are demo. "
        "Correct clusters[].name\n"
    )

    path.write_text(
        yaml.safe_dump({**document, "clusters": [{**document["clusters"][0], "name": "dmeo"}, *document["clusters"]]})
    )
    done = gpucost("alerts", "replay", *period, "--settings", str(path))
    assert done.returncode == 0
    note, counts = done.stderr.splitlines()
    assert note.startswith("note: no rule was tried on dmeo: not in the settings of the stack")
    assert counts == "would have fired: team-waste 1"

    path.write_text(settings_with_rules(WASTE + ", scope: {clusters: [dmeo]}"))
    done = gpucost("alerts", "replay", *period, "--settings", str(path))
    assert "note: alerts.rules[0].scope.clusters: 'dmeo' matches none of the clusters demo" in done.stderr

    later = ("--from", "2031-01-01", "--to", "2031-01-02")
    done = gpucost("alerts", "replay", *later)
    assert (done.returncode, done.stdout) == (2, "")
    assert "demo: the ledger has no hours from 2031-01-01T00:00:00Z to 2031-01-02T00:00:00Z" in done.stderr


def test_amp_definition_has_the_topic_of_the_deployment(stack: Stack) -> None:
    done = gpucost("alerts", "amp-definition")
    assert (done.returncode, done.stderr) == (0, "")
    (receiver,) = yaml.safe_load(yaml.safe_load(done.stdout)["alertmanager_config"])["receivers"][1]["sns_configs"]
    assert receiver["topic_arn"] == stack.outputs["EventsTopicArn"]
    assert receiver["sigv4"] == {"region": stack.outputs["EventsTopicArn"].split(":")[3]}


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ("alerts acknowledge nonsense", 2, "'nonsense': not the id of an alert; `gpucost alerts list` shows ids"),
        ("alerts acknowledge 0123456789ab", 1, "no firing alert has the id '0123456789ab'"),
        ("alerts test --receiver sre", 2, "unknown receiver 'sre'; allowed: email, ml-costs"),
        ("alerts replay --from 2026-11-02T00:00:00Z --to 2026-11-01T00:00:00Z", 2, "the period must be 1 hour"),
        ("alerts replay --from 2026-11-32 --to 2026-11-03T00:00:00Z", 2, "'2026-11-32'"),
        ("alerts replay --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --settings no.yaml", 2, "cannot be read"),
        ("alerts silence add rule=x --comment y", 2, "Missing option '--hours'"),
        ("alerts silence add rule --hours 1 --comment y", 2, "'rule': must be FIELD=PATTERN, for example"),
        ("alerts silence add unit=x --hours 1 --comment y", 2, "'unit': unknown matcher; allowed: rule"),
        ("alerts silence add rule=x --hours 1", 2, "Missing option '--comment'"),
        ("alerts silence add rule=x --hours 0 --comment y", 2, "--hours"),
        ("alerts silence add rule=x --hours nan --comment y", 2, "at most 8760"),
        ("alerts silence add rule=x --hours inf --comment y", 2, "at most 8760"),
        ("alerts silence add rule=x --hours 1e9 --comment y", 2, "at most 8760"),
        ("alerts silence add rule=x rule=y --hours 1 --comment y", 2, "rule: passed twice"),
        ("alerts silence add --hours 2 --comment y", 2, "matchers: required. Pass at least one"),
        ("alerts silence expire nothing", 1, "no active or future silence has the id 'nothing'"),
    ],
)
def test_invalid_input_prints_a_single_sentence(stack: Stack, arguments: str, status: int, says: str) -> None:
    done = gpucost(*arguments.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert says in done.stderr
    assert "unexpected" not in done.stderr
