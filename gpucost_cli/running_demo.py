"""A demo that runs: its stack, its metrics, and what it keeps for the next one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpucost.core.errors import SettingsMissingError
from gpucost.core.hours import HOUR, floor_day, hours_between
from gpucost.pipeline.dispatch import due_messages
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.price_book import PriceStore
from gpucost_cli.simulated_fleet import spot_prices
from gpucost_devstack.aws import local_client
from gpucost_devstack.demo_cache import DemoCache
from gpucost_devstack.demo_metrics import DemoMetrics
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.fleet.demo.settings import SLACK_SECRET
from gpucost_devstack.slack import SlackWebhook
from gpucost_devstack.stack import LocalStack

POSTS = "slack.json"
EXPORTS = "exports/"
SCHEDULE_DELAY = timedelta(minutes=5)


@dataclass(slots=True, kw_only=True)
class RunningDemo:
    """The parts of a demo.

    Attributes:
        start: the start of the days that the summary covers.
        end: their end.
        scheduled_until: the end of the last hour that the schedule attributed.
        database: folder of the table.
    """

    stack: LocalStack
    metrics: DemoMetrics
    slack: SlackWebhook
    cache: DemoCache | None
    database: Path
    start: datetime
    end: datetime
    scheduled_until: datetime
    scale: int = 1
    earlier_posts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        """The demo's ledger."""
        return Ledger(DynamoDBTable(*self._table))

    @property
    def posts(self) -> list[dict[str, Any]]:
        """All messages to Slack, those of earlier demos included."""
        return [*self.earlier_posts, *self.slack.posts]

    def push_settings(self) -> None:
        """Put the demo's settings in force."""
        webhook = {"Name": SLACK_SECRET, "SecretString": self.slack.url}
        local_client("secretsmanager", self.stack.endpoint).create_secret(**webhook)
        text = settings_text(self.metrics.url, scale=self.scale)
        store = self._settings_store()
        try:
            is_current = store.current().text == text
        except SettingsMissingError:
            is_current = False
        if not is_current:
            store.push(text, author="demo", now=datetime.now(UTC))

    def add_spot_prices(self, start: datetime) -> None:
        """Put the simulated spot prices from a time on into the price book, as the function that asks EC2 would."""
        prices = spot_prices(start, self.end + HOUR)
        now = datetime.now(UTC).replace(microsecond=0)
        PriceStore(DynamoDBTable(*self._table)).merge_prices("spot", prices, rated_until=floor_day(start), now=now)

    def missing_hours(self, cluster: str, start: datetime, end: datetime) -> list[datetime]:
        """Hours that are not in the ledger."""
        present = {manifest.hour for manifest in self.ledger.manifests(cluster, start, end)}
        return [hour for hour in hours_between(start, end) if hour not in present]

    def clusters_in_force(self) -> list[str]:
        """The fleet's clusters that the settings have. A push may have dropped some while the demo runs."""
        names = {cluster.name for cluster in self._settings_store().current().settings.clusters}
        return [cluster for cluster in fleet.CLUSTERS if cluster in names]

    def backfill(self, start: datetime, end: datetime) -> None:
        """Send the hours that are not in the ledger to the backfill queue, of the clusters that the settings have."""
        sqs = local_client("sqs", self.stack.endpoint)
        version = self._settings_store().current().version
        for cluster in self.clusters_in_force():
            missing = self.missing_hours(cluster, start, end)
            for message in due_messages(
                cluster, missing, settings_version=version, origin="backfill", correlation_id="demo-backfill"
            ):
                sqs.send_message(QueueUrl=self.stack.outputs["BackfillQueueUrl"], MessageBody=message.model_dump_json())

    def run_schedule(self, hour: datetime) -> None:
        """Run the template's schedules as they run after an hour, and all that follows."""
        self.stack.fire_schedule(hour + HOUR + SCHEDULE_DELAY)
        self.stack.deliver_all()
        self.scheduled_until = hour + HOUR

    def restore_exports(self, files: dict[str, bytes]) -> None:
        """Put the files of earlier exports into the bucket, which does not outlive a demo."""
        s3, bucket = local_client("s3", self.stack.endpoint), self.stack.outputs["ExportBucketName"]
        for name, content in files.items():
            if name.startswith(EXPORTS):
                s3.put_object(Bucket=bucket, Key=name.removeprefix(EXPORTS), Body=content)

    def save(self, *, is_complete: bool) -> None:
        """Keep the ledger for the next demo."""
        if self.cache is not None:
            files = {POSTS: json.dumps(self.posts).encode(), **dict(self._exports())}
            self.cache.save(self.database, files, scheduled_until=self.scheduled_until, is_complete=is_complete)

    def _exports(self) -> Iterator[tuple[str, bytes]]:
        s3, bucket = local_client("s3", self.stack.endpoint), self.stack.outputs["ExportBucketName"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page.get("Contents", []):
                yield EXPORTS + entry["Key"], s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()

    def _settings_store(self) -> SettingsDocumentStore:
        return SettingsDocumentStore(DynamoDBTable(*self._table), clock=lambda: datetime.now(UTC))

    @property
    def _table(self) -> tuple[Any, str]:
        return local_client("dynamodb", self.stack.dynamodb), self.stack.outputs["TableName"]


def settings_text(prometheus_url: str, *, scale: int = 1) -> str:
    """Return the demo's settings document."""
    return json.dumps(fleet.settings_document(dict.fromkeys(fleet.CLUSTERS, prometheus_url), scale=scale), indent=2)
