"""The restatement of the hours of one pod, with real stores."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.core.hour_record import Line
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.observations import ContainerRequest, NodeObservation, NodeState, Observation, PodObservation
from gpucost.pipeline.attribute import AttributeService
from gpucost.pipeline.pricing import Pricer
from gpucost.pipeline.restate import RestateService
from gpucost.runtime.messages import AttributionOrigin, HourPublished, HoursDue, HoursToRestate, MessageBus
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.settings_document import SettingsDocumentStore
from gpucost.sources.prometheus.reader import PrometheusReader
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from tests.records import HOUR

NOW = datetime.now(UTC).replace(microsecond=0)
GPU = "nvidia_com_gpu"


class OnePod(PrometheusReader):
    """A metrics source with a pod that always holds one of two GPUs."""

    queries = 0
    instance_type = ""
    labels: Mapping[str, str] = {}

    def __init__(self) -> None: ...

    def observe(self, hours: Sequence[datetime]) -> list[Observation]:
        self.queries += 1
        return [self._observed(hour) for hour in hours]

    def retention(self) -> timedelta | None:
        return None

    def _observed(self, hour: datetime) -> Observation:
        scrapes = Scrapes(tuple(to_epoch_ms(hour) + at * 60_000 for at in range(-60, 120)))
        request = ContainerRequest("main", "container", GPU, Decimal(1))
        labels = {"label_team": "red"}
        pod = PodObservation("a", "p", "u", "n", (request,), None, labels=labels)
        kind = {"label_node_kubernetes_io_instance_type": self.instance_type} if self.instance_type else {}
        kind |= self.labels
        node = NodeObservation("n", "aws:///z/i-0", None, kind, (NodeState(None, {GPU: Decimal(2)}, {}, kind),))
        return Observation("demo", hour, {"k": scrapes}, (pod,), (node,), ())


class RecordingBus(MessageBus):
    def __init__(self) -> None:
        self.closed: list[HourPublished] = []

    def publish(self, message: object) -> None:
        assert isinstance(message, HourPublished)
        self.closed.append(message)

    def send_due(self, messages: object) -> None:
        raise AssertionError("no work is sent")

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        raise AssertionError("nothing goes to the dead-letter queue")


def document(price: int, **more: Any) -> str:
    """Settings with one cluster."""
    settings = {
        "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": price},
        **more,
    }
    return json.dumps(settings)


class System:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.ledger = Ledger(table)
        self.rollups = RollupStore(table)
        self.store = SettingsDocumentStore(table, clock=lambda: NOW)
        self.book = PriceStore(table)
        self.bills = BillStore(table, clock=lambda: NOW)
        self.pricer = Pricer(self.book, self.bills)
        self.bus = RecordingBus()
        self.metrics = OnePod()
        self.push(12)

    def reader(self, cluster: ClusterSettings, settings: CoreSettings, _deadline: object = None) -> PrometheusReader:
        return self.metrics

    def push(self, price: int, **more: Any) -> None:
        self.store.push(document(price, **more), author="me", now=NOW)

    def attribute(
        self, hours: int = 1, version: int = 1, ledger: Ledger | None = None, origin: AttributionOrigin = "schedule"
    ) -> None:
        message = HoursDue(
            cluster="demo", first_hour=HOUR, hours=hours, settings_version=version, origin=origin, correlation_id="c"
        )
        AttributeService(
            self.store,
            ledger or self.ledger,
            self.rollups,
            self.reader,
            self.bus,
            pricer=self.pricer,
            clock=lambda: NOW,
        ).attribute(message)

    def restate(
        self, *, version: int | None = 2, hours: int = 1, ledger: Ledger | None = None, why: str = "new price"
    ) -> list[int]:
        message = HoursToRestate(
            cluster="demo", first_hour=HOUR, hours=hours, settings_version=version, reason=why, correlation_id="c"
        )
        service = self.restating(ledger or self.ledger)
        return [done.manifest.version for done in service.restate(message)]

    def restating(self, ledger: Ledger) -> RestateService:
        return RestateService(self.store, ledger, self.rollups, self.bus, pricer=self.pricer, clock=lambda: NOW)

    def line(self) -> Line:
        (line,) = self.ledger.lines("demo", HOUR)
        return line
