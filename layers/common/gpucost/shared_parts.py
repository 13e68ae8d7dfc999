"""What the parts of several features share: clients, the table, the ledger, and queues."""

import time
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpucost.runtime.process import Environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpucost.runtime.aws import AwsClients
    from gpucost.runtime.messages import MessageBus
    from gpucost.runtime.secrets import Secrets
    from gpucost.storage.bill_store import BillStore
    from gpucost.storage.ledger import Ledger
    from gpucost.storage.limits_store import LimitsStore
    from gpucost.storage.ports import SettingsStore, Table
    from gpucost.storage.price_book import PriceStore
    from gpucost.storage.rollups import RollupStore


def utc_now() -> datetime:
    """The clock of the deployed system."""
    return datetime.now(UTC)


class SharedParts:
    """Parts of one process, each made when it is first used and then kept.

    Args:
        environment: the values that the template sets; read from the process's environment when it is first needed.
        clock: the time now.
        sleep: waits for some seconds.
        client: makes a client of a service (and region).
        **parts: parts by name that take the place of those that would be made.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        clock: "Callable[[], datetime]" = utc_now,
        sleep: "Callable[[float], None]" = time.sleep,
        client: "Callable[..., Any] | None" = None,
        **parts: Any,
    ) -> None:
        self.clock = clock
        self.sleep = sleep
        if environment is not None:
            self.environment = environment
        if client is not None:
            self.client = client
        for name, part in parts.items():
            setattr(self, name, part)

    @cached_property
    def settings_store(self) -> "SettingsStore[Any]":
        """The settings document. Only the container knows the sections of all features."""
        raise NotImplementedError

    @cached_property
    def environment(self) -> Environment:
        """The values that the template sets."""
        return Environment.read()

    @cached_property
    def client(self) -> "Callable[..., Any]":
        """Makes the client of a service (and region) once."""
        return self.aws_clients

    @cached_property
    def aws_clients(self) -> "AwsClients":
        """The clients of one AWS session."""
        from gpucost.runtime.aws import AwsClients

        return AwsClients()

    @cached_property
    def s3_client(self) -> Any:
        """The boto3 client of S3."""
        return self.aws_clients.s3

    @cached_property
    def secrets(self) -> "Secrets":
        """The secrets that the settings name."""
        from gpucost.runtime.secrets import Secrets

        return Secrets(self.client)

    @cached_property
    def table(self) -> "Table":
        """The ledger's table."""
        from gpucost.storage.dynamodb_table import DynamoDBTable

        return DynamoDBTable(self.client("dynamodb"), self.environment.table)

    @cached_property
    def ledger(self) -> "Ledger":
        """The cost records."""
        from gpucost.storage.ledger import Ledger

        return Ledger(self.table)

    @cached_property
    def rollups(self) -> "RollupStore":
        """Daily sums of the cost records."""
        from gpucost.storage.rollups import RollupStore

        return RollupStore(self.table)

    @cached_property
    def price_book(self) -> "PriceStore":
        """Fetched prices and those set by hand."""
        from gpucost.storage.price_book import PriceStore

        return PriceStore(self.table)

    @cached_property
    def bill_store(self) -> "BillStore":
        """The bill, by hour."""
        from gpucost.storage.bill_store import BillStore

        return BillStore(self.table, clock=self.clock)

    @cached_property
    def bus(self) -> "MessageBus":
        """Queues and topic."""
        from gpucost.runtime.messages import MessageBus

        env = self.environment
        return MessageBus(
            hours_queue_url=env.hours_queue_url,
            backfill_queue_url=env.backfill_queue_url,
            dead_letter_queue_url=env.dead_letter_queue_url,
            events_topic_arn=env.events_topic_arn,
            alerts_topic_arn=env.alerts_topic_arn,
            client=self.client,
        )

    @cached_property
    def limits_store(self) -> "LimitsStore":
        """Limits of node pools and quotas of namespaces."""
        from gpucost.storage.limits_store import LimitsStore

        return LimitsStore(self.table)
