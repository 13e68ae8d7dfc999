"""Runs every command that takes `--stack` with a role that has the documented policies, and records what it needs."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import requests

from gpucost.core.hours import DAY, HOUR, format_timestamp
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.pipeline.dispatch import due_messages
from gpucost.runtime.messages import AttributionOrigin, HourPublished
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import key
from gpucost_cli.aws_session import clear_aws_configuration
from gpucost_cli.main import cli
from gpucost_devstack.aws import ACCOUNT, STACK, client_environment, create_stack, local_client, running_aws
from gpucost_devstack.iam.authorizer import Authorizer, PermissionUse
from gpucost_devstack.iam.calls import SECRET_SUFFIX
from gpucost_devstack.iam.encryption import encryption_keys
from gpucost_devstack.iam.gateway import running_authorizing_proxy
from gpucost_devstack.iam.policies import Policies, Statement
from gpucost_devstack.slack import running_slack
from gpucost_devstack.template import REGION, REPOSITORY
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier, pod, settings_with_rules
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.gpucost_command import GPUCOST, in_this_process
from tests.infra import stacks
from tests.recording_server import recording_server

ROLE = f"arn:aws:iam::{ACCOUNT}:role/operator"
POLICY = REPOSITORY / "docs" / "reference" / "cli-policies.yaml"
KEY, SECRETS_KEY = (f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}" for name in ("stack", "secrets"))
API_ID = "127"
"""The first label of the local API's host name."""
SLACK_SECRET, TOKEN_SECRET = "gpucost/slack", "gpucost/token"
ANSWER = {"refreshed": {}, "exported": [], "reviewed": [], "clusters_left": 0, "rows": [], "cursor": None}
"""Of each function that a command invokes, and of the API."""
SECONDS = 60
"""How long a command that does not end may take until it has called AWS."""
IDLE, BUSY = pod(gpus=2, use="0.05"), pod(gpus=2, use="0.9")
WASTE = "rule: waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 2"
FIRST, END, MONTH = format_timestamp(START), format_timestamp(START + 2 * HOUR), f"{START:%Y-%m}"
PERIOD = f"--from {FIRST} --to {END}"
COMMANDS = (
    "alerts acknowledge {alert}",
    "alerts amp-definition",
    "alerts list",
    f"alerts replay {PERIOD}",
    "alerts silence add rule=waste --hours 8 --comment test",
    "alerts silence list",
    "alerts silence expire {silence}",
    "alerts test --receiver email",
    "alerts test --receiver slack",
    f"backfill --no-wait --from {END} --to {format_timestamp(START + 4 * HOUR)}",
    f"export --from {START:%Y-%m-%d} --to {START + DAY:%Y-%m-%d}",
    f"hours compare-splits {PERIOD}",
    f"hours restate {PERIOD} --reason test",
    "hours redrive --dry-run",
    "hours redrive",
    "ledger copy --data {ledger} --replace",
    f"months close --month {MONTH} --force",
    f"months adjustments --month {MONTH}",
    f"months reopen --month {MONTH}",
    "prices set --match instance_type=p5.48xlarge --amount 90 --unit node-hour --reason test",
    "prices changes",
    "prices list",
    "prices drop {price} --reason test",
    "prices refresh --source spot",
    "recommendations list",
    "recommendations show {recommendation}",
    "recommendations dismiss {recommendation} --reason test",
    "recommendations reopen {recommendation}",
    "recommendations run",
    "recommendations what-if --business-unit research --move '1 H100 to 3g.20gb'",
    "recommendations what-if-models --prompt-price 3 --generated-price 15",
    "report --format json",
    "report --group-by namespace --format json",
    "settings push {settings}",
    "settings show",
    "settings history",
    "settings rollback --to 1",
)
ENDLESS = {
    f"backfill --from {END} --to {format_timestamp(START + 4 * HOUR)}": "sqs:GetQueueAttributes",
    "dashboard --port 0": "execute-api:Invoke",
}
"""Commands that run until they are stopped, with the last action that each needs."""
LISTS = {"alert": "alerts list", "silence": "alerts silence list", "price": "prices changes"}
"""The commands that list the IDs which others take."""
REFUSED = {
    "hours compare-splits": "has stored usage",
    "recommendations what-if-models": "no model like",
    "recommendations what-if": "held no whole GPU of a model like",
}
"""Commands that find nothing to work on in this stack, after they have read it."""
Recorded = Mapping[str, frozenset[PermissionUse]]
"""The permissions that each command needed, by the command's name."""


def documented_policies(stack: str = STACK, api: str = API_ID) -> Policies:
    """The statements of the documented policies, with the keys that a stack may have."""
    parameters = {"StackName": stack, "ApiId": api, "KmsKeyArn": KEY, "SecretsKmsKeyArn": SECRETS_KEY}
    resolved = stacks.Stack("gpucost-commands", stacks.read_template(POLICY), parameters)
    documents = {logical: properties["PolicyDocument"] for logical, _, properties in resolved.resources()}
    of_account = json.loads(json.dumps(documents).replace(stacks.ACCOUNT, ACCOUNT))
    statements = [
        Statement(ROLE, f"{logical}/{body['Sid']}", body)
        for logical, document in of_account.items()
        for body in document["Statement"]
    ]
    account = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "kms:*"}
    keys = [
        Statement(key, "key policy", {**account, "Resource": key}, is_resource_policy=True)
        for key in (KEY, SECRETS_KEY)
    ]
    return Policies((*statements, *keys))


@contextmanager
def recorded_commands(folder: Path) -> Iterator[tuple[Authorizer, Recorded]]:
    """Run all commands, and yield the authorizer and what the commands needed."""
    authorizer = Authorizer(documented_policies())
    with ExitStack() as running:
        aws = running.enter_context(running_aws())
        functions, _ = running.enter_context(recording_server(body=json.dumps(ANSWER).encode()))
        slack = running.enter_context(running_slack())
        api = running.enter_context(running_authorizing_proxy(functions, authorizer))
        endpoint = running.enter_context(running_authorizing_proxy(aws, authorizer, {"lambda": functions}))
        parameters = {"KmsKeyArn": KEY, "SecretsKmsKeyArn": SECRETS_KEY, "SpotPrices": "true"}
        deployed = create_stack(aws, api, parameters)
        authorizer.keys |= encryption_keys(deployed.template, deployed.resolver)
        secrets = {SLACK_SECRET: slack.url, TOKEN_SECRET: json.dumps({"url": functions, "token": "token"})}
        for name, text in secrets.items():
            local_client("secretsmanager", aws).create_secret(Name=name, SecretString=text)
            arn = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}{SECRET_SUFFIX}"
            authorizer.keys[arn] = SECRETS_KEY
        _send_dead_letters(local_client("sqs", aws), deployed.outputs["DeadLetterQueueUrl"])
        running.enter_context(patch.dict(os.environ, XDG_CACHE_HOME=str(folder)))
        clear_aws_configuration()
        running.callback(clear_aws_configuration)
        os.environ.update(client_environment(endpoint, access_key=authorizer.access_key(ROLE)))
        (described,) = local_client("cloudformation", aws).describe_stacks(StackName=STACK)["Stacks"]
        table = DynamoTable(local_client("dynamodb", aws), deployed.outputs["TableName"])
        commands = _Commands(authorizer, described["StackId"], table, folder / "settings.yaml", functions)
        write_ledger(folder / "ledger", DynamoDBTable(*table))
        yield authorizer, commands.run_all()


class _Commands:
    """The commands, and a ledger on which they work.

    Args:
        authorizer: records what they need.
        stack: the ARN of the stack, because its name would lead the commands to a running demo.
        table: the ledger.
        settings: where to write the settings.
        prometheus: URL of a server that answers the token of the settings.
    """

    def __init__(self, authorizer: Authorizer, stack: str, table: DynamoTable, settings: Path, prometheus: str) -> None:
        receivers = f"[{{type: email}}, {{type: slack, secret: {SLACK_SECRET}, host: 127.0.0.1}}]"
        source = f'{{url: "{prometheus}", auth: bearer, secret: {TOKEN_SECRET}}}'
        text = settings_with_rules(WASTE).replace("[{type: email}]", receivers)
        settings.write_text(text.replace('{url: "http://127.0.0.1:9"}', source))
        self._authorizer, self._stack, self._settings = authorizer, stack, settings
        notifiers = {key: RecordingNotifier() for key in ("email", f"slack:{SLACK_SECRET}")}
        self._fleet = Fleet(table, settings.read_text(), notifiers=notifiers)
        for number in (0, 1):
            self._fleet.publish_and_close(number, IDLE)
        now = datetime.now(UTC)
        stored = DynamoRecommendations(DynamoDBTable(*table)).put(
            Recommendation(PROPOSED, "open", now, now, now, version=0)
        )
        self._recommendation = stored.id

    def run_all(self) -> Recorded:
        """Run all commands, and return what each needed."""
        recorded: dict[str, frozenset[PermissionUse]] = {}
        for template in (*COMMANDS, *ENDLESS):
            words = shlex.split(template.format_map(self._placeholders(template)))
            name = command_name(words)
            if name == "months adjustments":  # a change after the month was closed
                self._fleet.publish(0, BUSY)
            self._authorizer.accesses.clear()
            if template in ENDLESS:
                self._run_until(ENDLESS[template], words)
            else:
                self._run(name, words)
            recorded[name] = recorded.get(name, frozenset()) | self._authorizer.accesses
        return recorded

    def _placeholders(self, command: str) -> dict[str, str]:
        """What the placeholders of a command stand for."""
        listed = {name: self._first_id(listing) for name, listing in LISTS.items() if f"{{{name}}}" in command}
        files = {"settings": str(self._settings), "ledger": str(self._settings.with_name("ledger"))}
        return {**files, "recommendation": self._recommendation, **listed}

    def _first_id(self, listing: str) -> str:
        rows = next(iter(json.loads(self._run(listing, [*shlex.split(listing), "--format", "json"])).values()))
        return next(str(row["id"]) for row in rows if row.get("id"))

    def _run(self, name: str, words: list[str]) -> str:
        done = in_this_process(*words, "--stack", self._stack)
        if name in REFUSED:
            assert REFUSED[name] in done.stderr, done.stderr
        else:
            assert done.returncode in (0, None), f"{shlex.join(words)}: {done.stderr}"
        return done.stdout

    def _run_until(self, action: str, words: list[str]) -> None:
        """Run a command in its own process until it has needed an action."""
        process = subprocess.Popen([GPUCOST, *words, "--stack", self._stack], stderr=subprocess.PIPE, text=True)
        try:
            if words[0] == "dashboard" and process.stderr:
                requests.get(process.stderr.readline().split()[1] + "/v1/costs", timeout=SECONDS)
            deadline = time.monotonic() + SECONDS
            while action not in {use.call.action for use in self._authorizer.accesses}:
                assert process.poll() is None, f"{shlex.join(words)} ended"
                assert time.monotonic() < deadline, f"{shlex.join(words)} has not needed {action}"
                time.sleep(0.1)
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def write_ledger(folder: Path, deployed: DynamoDBTable) -> None:
    """Write a ledger with the deployment's settings, and an item that the deployment does not have."""
    settings = [
        {name: attribute for name, attribute in item.items() if name != "w"} for item in deployed.query("SETTINGS")
    ]
    with SqliteTable(folder) as table:
        table.put_all([*settings, key("C#another#limits", "2026-11-18T00")])


def command_name(words: Sequence[str]) -> str:
    """The words that name a command, without its arguments."""
    command: click.Command = cli
    names = []
    for word in words:
        if not isinstance(command, click.Group):
            break
        subcommand = command.get_command(click.Context(command), word)
        assert subcommand is not None, word
        command = subcommand
        names.append(word)
    return " ".join(names)


ALERTS = '{"kind": "amp-alerts", "alerts": []}'


def _send_dead_letters(sqs: Any, queue: str) -> None:
    """Send due hours of both queues, a message of each topic, and one that cannot be read."""
    due: tuple[AttributionOrigin, ...] = ("schedule", "backfill")
    hour = HourPublished(
        cluster="demo",
        hour=START,
        status="complete",
        record_version=1,
        settings_version=1,
        origin="schedule",
        correlation_id="test",
    )
    messages = [
        message
        for origin in due
        for message in due_messages("demo", [START], settings_version=1, origin=origin, correlation_id="test")
    ]
    for body in [*(message.model_dump_json() for message in messages), hour.model_dump_json(), ALERTS, "not JSON"]:
        sqs.send_message(QueueUrl=queue, MessageBody=body)
