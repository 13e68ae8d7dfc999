"""The attribute service with real stores and in-memory queues."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from gpucost.core.amounts import to_decimal
from gpucost.pipeline.attribute import AttributeService, LimitsRecorder, MetricsReaderFactory
from gpucost.pipeline.pricing import Pricer
from gpucost.runtime.messages import AttributionOrigin, HourPublished, HoursDue, MessageBus
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from tests.prometheus_clients import PrometheusClients
from tests.system.timeline import HOUR, Timeline

NOW = datetime.now(UTC)


class RecordingBus(MessageBus):
    """A message bus that records what was published."""

    def __init__(self) -> None:
        self.closed: list[HourPublished] = []
        self.letters: list[tuple[str, str]] = []

    def publish(self, message: object) -> None:
        assert isinstance(message, HourPublished)
        self.closed.append(message)

    def send_due(self, messages: object) -> None:
        raise AssertionError("attribute sends no work")

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        self.letters.append((body, reason))


class System:
    def __init__(self, table: Table, url: str, *, client: PrometheusClients = PrometheusClient) -> None:
        self.url = url
        self.ledger = Ledger(table)
        self.store = SettingsDocumentStore(table, clock=lambda: NOW)
        self.push(url)
        self.bus = RecordingBus()
        self.now = NOW
        self.book = PriceStore(table)
        self.bills = BillStore(table, clock=lambda: NOW)
        self.pricer = Pricer(self.book, self.bills)
        self.rollups = RollupStore(table)
        self.limits = LimitsStore(table)
        limits = LimitsRecorder(partial(NodePoolLimitsReader, client=client), self.limits)
        self.service = self.compose(partial(metrics_reader, make_client=client), limits)

    def compose(
        self, readers: MetricsReaderFactory = metrics_reader, limits: LimitsRecorder | None = None
    ) -> AttributeService:
        """The service with other readers than those of `PrometheusClient`."""
        return AttributeService(
            self.store,
            self.ledger,
            self.rollups,
            readers,
            self.bus,
            pricer=self.pricer,
            clock=lambda: self.now,
            limits=limits or LimitsRecorder(NodePoolLimitsReader, self.limits),
        )

    def push(self, url: str, price: int = 12) -> None:
        document = {
            "clusters": [{"name": "demo", "prometheus": {"url": url}}],
            "pricing": {"source": "constant", "gpu_hourly_usd": price},
        }
        self.store.push(json.dumps(document), author="me", now=NOW)

    def attribute(
        self, hours: int = 1, start: datetime = HOUR, origin: AttributionOrigin = "schedule", version: int = 1
    ) -> None:
        message = HoursDue(
            cluster="demo", first_hour=start, hours=hours, settings_version=version, origin=origin, correlation_id="why"
        )
        self.service.attribute(message)

    def figures(self) -> list[tuple[str, str, int]]:
        summaries = self.ledger.summaries("demo", HOUR - timedelta(days=2), HOUR + timedelta(days=1))
        totals = [
            to_decimal(summary.totals.costs.allocated_usd).normalize() if summary.totals else ""
            for summary in summaries
        ]
        return [
            (summary.manifest.status, str(usd), summary.manifest.version)
            for summary, usd in zip(summaries, totals, strict=True)
        ]


def busy_hour(
    table: Table, prometheus: Callable[[str], str], *, client: PrometheusClients = PrometheusClient
) -> System:
    """One pod that runs on a node with two GPUs for the whole hour."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    return System(table, prometheus(timeline.text()), client=client)
