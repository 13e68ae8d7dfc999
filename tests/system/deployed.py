"""A stack in the embedded AWS whose functions and command line run in this process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from msgspec import structs

from gpucost.core.hours import DAY, HOUR, floor_day
from gpucost.core.ledger import Manifest
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from gpucost_cli import deployment
from gpucost_cli.main import main
from gpucost_devstack.aws import STACK, Deployed, create_stack, local_client, running_aws
from tests.chaos.script import document
from tests.chaos.simulated_deployment import Endpoints, SimulatedDeployment
from tests.enforced_permissions import enforcing
from tests.gpucost_command import CommandResult
from tests.system.demo_record import announced_in

FIRST = floor_day(datetime.now(UTC)) - 2 * DAY - 2 * HOUR
"""Two hours before a past midnight."""


class Stack(SimulatedDeployment):
    """A simulated deployment on the table, queues and topic that the template declares."""

    def __post_init__(self) -> None:
        self.now = self.first
        self.sqs, self.sns = (local_client(name, self.endpoints.aws) for name in ("sqs", "sns"))
        self.dynamodb = local_client("dynamodb", self.endpoints.dynamodb)
        self._running = ExitStack()
        self.deploy({})
        self.push(document(self.clusters))

    def deploy(self, parameters: dict[str, str]) -> None:
        """Deploy the template again, with its policies. Raise if a function lacked a permission until now."""
        self._running.close()
        local_client("cloudformation", self.endpoints.aws).delete_stack(StackName=STACK)
        self.deployed: Deployed = create_stack(self.endpoints.aws, "http://127.0.0.1:1", parameters)
        outputs = self.deployed.outputs
        self.queues = {
            "hours": outputs["HoursQueueUrl"],
            "backfill": outputs["BackfillQueueUrl"],
            "dead": outputs["DeadLetterQueueUrl"],
            "events": self.sqs.create_queue(QueueName="heard")["QueueUrl"],
        }
        for url in self.queues.values():  # messages are visible again at once
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
        self.topic = outputs["InternalEventsTopicArn"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.queues["events"], AttributeNames=["QueueArn"])["Attributes"]
        self.sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn["QueueArn"])
        tables = {variables["GPUCOST_TABLE"] for variables in self.deployed.environments.values()}
        (self.table,) = tables | {outputs["TableName"]}  # all functions and the command line use the same table
        self.ledger = Ledger(DynamoDBTable(self.dynamodb, self.table))
        self.rollups = RollupStore(DynamoDBTable(self.dynamodb, self.table))
        # Every deployment gives the queues, topics and table new names, which its policies allow.
        addresses = (self.endpoints.dynamodb, self.endpoints.aws)
        self.enforced = self._running.enter_context(
            enforcing(*addresses, parameters=parameters, physical=self.deployed.physical)
        )
        self.clients = self.enforced.administrator("dynamodb", "sqs", "sns")

    def close(self) -> None:
        """Raise if a function lacked a permission."""
        self._running.close()

    def figures(self) -> dict[str, object]:
        """The figures that readers see: neither alert state nor whether a backfill requested an hour first."""
        return {
            name: structs.replace(value, is_backfilled=False) if isinstance(value, Manifest) else value
            for name, value in self.visible_state().items()
            if " alert " not in name
        }

    def backfilled_hours(self) -> set[int]:
        """The hours that a backfill requested first, by number: the schedule does not go back to them."""
        manifests = (value for value in self.visible_state().values() if isinstance(value, Manifest))
        return {(manifest.hour - self.first) // HOUR for manifest in manifests if manifest.is_backfilled}

    def gpucost(self, *arguments: str, **parts: Any) -> CommandResult:
        """Run the command line against this stack in this process, with parts by name as `Container` takes them."""
        self.now = datetime.now(UTC)  # the command line uses the system clock
        out, err, status = StringIO(), StringIO(), 0
        with self.active(), redirect_stdout(out), redirect_stderr(err):
            container = deployment.find_deployment(STACK).container(
                **{"metrics_reader": self._scripted_reader, **parts}
            )
            try:
                main([*arguments, "--stack", STACK], container)
            except SystemExit as ended:
                status = int(ended.code or 0)
        return CommandResult(status, out.getvalue(), err.getvalue())


@contextmanager
def running(folder: Path) -> Iterator[Stack]:
    """Run the embedded AWS with a stack of one cluster, announced to the command line."""
    with running_aws() as endpoint, announced_in(folder, endpoint):
        stack = Stack(Endpoints(endpoint, endpoint), FIRST, ("east",))
        yield stack
        stack.close()
