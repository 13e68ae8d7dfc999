"""`gpucost alerts`, `silence` and `ack` as people run them, against a stack in the embedded AWS."""

import getpass
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from devstack.aws import create_stack, local_client, running_aws
from devstack.slack import Slack, running_slack
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.runtime import aws, secrets
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier, pod, settings_with_rules
from tests.system.demo_record import announced_in
from tests.system.test_cli import CommandResult, in_this_process

WASTE = "rule: waste, name: team-waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 2"
SECRET = "gpucost/slack-webhook"
RECEIVERS = f"[{{type: email}}, {{type: slack, name: ml-costs, secret: {SECRET}}}]"
IDLE, BUSY = pod(gpus=2, use="0.05"), pod(gpus=2, use="0.9")
ME = getpass.getuser()


class Stack:
    """What the template declares, in which two units waste: one for two hours, the other for one."""

    def __init__(self, endpoint: str, slack: Slack) -> None:
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
        """Lets somebody read the email topic from now on; answers the address."""
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
        aws.client.cache_clear()
        secrets.clear_cache()
        yield Stack(endpoint, running.enter_context(running_slack()))
        aws.client.cache_clear()
        secrets.clear_cache()


def gpucost(*arguments: str) -> CommandResult:
    return in_this_process(*arguments, "--stack", "local")


def rows(*arguments: str) -> list[list[str]]:
    done = gpucost(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_alerts_are_listed_taken_on_and_silenced(stack: Stack) -> None:
    firing, pending = rows("alerts", "list")
    since = format_timestamp(START)
    assert firing[1:] == ["firing", since, "team-waste", "cluster=demo business_unit=research"]
    assert pending[1:] == ["pending", format_timestamp(START + HOUR), "team-waste", "cluster=demo business_unit=chat"]

    taken = gpucost("ack", firing[0])
    assert (taken.returncode, taken.stdout) == (0, f"team-waste cluster=demo business_unit=research is {ME}'s\n")
    comment = "load\ttest\x1b[2J of Öl"
    ((made, times, author, matchers, said),) = rows(
        "silence", "rule=team-waste", "business_unit=res*", "--hours", "1.5", "--comment", comment
    )
    begin, _, end = times.partition(" to ")
    assert (author, matchers, said) == (ME, "business_unit=res* rule=team-waste", "load test [2J of Öl")
    assert [[firing[0], *firing[1:], f"acked by {ME}, silenced by {made}"], pending] == rows("alerts", "list")
    assert [one[0] for one in rows("silence")] == [made]

    ((ended, times, *_),) = rows("silence", "--end", made)
    assert (ended, times.partition(" to ")[0]) == (made, begin)
    assert begin <= times.partition(" to ")[2] < end
    assert [[*firing, f"acked by {ME}"], pending] == rows("alerts", "list")
    assert gpucost("silence", "--end", made).returncode == 1


def test_a_sample_reaches_the_receiver_that_is_named_and_no_other(stack: Stack) -> None:
    mailbox = stack.emails()
    assert rows("alerts", "test", "--receiver", "email") == [["sent to email (email)"]]
    (email,) = stack.sqs.receive_message(QueueUrl=mailbox)["Messages"]
    assert f"sent by {ME}" in json.loads(email["Body"])["Message"]
    assert stack.slack.posts == []
    assert rows("alerts", "test", "--receiver", "ml-costs") == [[f"sent to ml-costs (slack:{SECRET})"]]
    (post,) = stack.slack.posts
    assert "Sample alert" in post["text"]
    assert f"sent by {ME}" in json.dumps(post)


def test_new_rules_are_replayed_from_a_file(stack: Stack, tmp_path: Path) -> None:
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
    assert [one[1] for one in rows("alerts", "list")] == ["firing", "pending"], "a replay decides nothing"


def test_the_definition_for_amp_names_this_deployments_topic(stack: Stack) -> None:
    done = gpucost("alerts", "amp-definition")
    assert (done.returncode, done.stderr) == (0, "")
    (receiver,) = yaml.safe_load(yaml.safe_load(done.stdout)["alertmanager_config"])["receivers"][1]["sns_configs"]
    assert receiver["topic_arn"] == stack.outputs["EventsTopicArn"]
    assert receiver["sigv4"] == {"region": stack.outputs["EventsTopicArn"].split(":")[3]}


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ("ack nonsense", 2, "'nonsense' is not the id of an alert; `gpucost alerts list` shows them"),
        ("ack 0123456789ab", 1, "no alert '0123456789ab' is firing"),
        ("alerts test --receiver sre", 2, "'sre' is no receiver of the settings; there are: email, ml-costs"),
        ("alerts replay --from 2026-11-02T00:00:00Z --to 2026-11-01T00:00:00Z", 2, "a period of 1 hour to 62 days"),
        ("alerts replay --from 2026-11-32 --to 2026-11-03T00:00:00Z", 2, "'2026-11-32'"),
        ("alerts replay --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --settings no.yaml", 2, "cannot be read"),
        ("silence rule=x --comment y", 2, "--hours is needed: every silence has an end"),
        ("silence rule --hours 1 --comment y", 2, "'rule' is no matcher; one is written like business_unit=research"),
        ("silence unit=x --hours 1 --comment y", 2, "'unit' is nothing to match by"),
        ("silence rule=x --hours 1", 2, "a comment is needed"),
        ("silence rule=x --hours 0 --comment y", 2, "--hours"),
        ("silence rule=x --hours nan --comment y", 2, "at most a year"),
        ("silence rule=x --hours inf --comment y", 2, "at most a year"),
        ("silence rule=x --hours 1e9 --comment y", 2, "at most a year"),
        ("silence rule=x rule=y --hours 1 --comment y", 2, "rule is given twice"),
        ("silence rule=x --end 0123456789ab", 2, "--end goes with nothing else"),
        ("silence --hours 2 --comment y", 2, "which alerts? matchers are written like business_unit=research"),
        ("silence --end nothing", 1, "no silence 'nothing' is in force or to come"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(stack: Stack, arguments: str, status: int, says: str) -> None:
    done = gpucost(*arguments.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert says in done.stderr
    assert "unexpected" not in done.stderr
