"""Restates a day of 1,000 nodes from stored usage, compared with bare calls that move the same bytes."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from benchmarks.figures import Figure, stand_alone
from gpucost.core.attribution import build_record
from gpucost.core.hour_record import Coverage
from gpucost.core.hours import HOUR, HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import NodeUsage, PodUsage, Usage, Use
from gpucost.pipeline.attribute import attribution_rules
from gpucost.pipeline.pricing import Pricer, pricing_of
from gpucost.pipeline.restate import RestateService
from gpucost.runtime.messages import HourPublished, HoursToRestate
from gpucost.settings_document import SettingsDocumentStore, parse_settings
from gpucost.storage.bill_store import BillStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb

NODES, GPUS, UNITS, HOURS = 1000, 8, 200, 24
NOW = datetime.now(UTC)
START = NOW.replace(minute=0, second=0, microsecond=0) - timedelta(days=2)


class Silence:
    """A bus that discards messages."""

    def publish(self, message: HourPublished) -> None:
        """Do nothing."""


class Counted:
    """The real client, which counts calls and consumed units."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.units: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def counted(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = call(**arguments, ReturnConsumedCapacity="TOTAL")
            capacity = answer.get("ConsumedCapacity", [])
            for consumed in capacity if isinstance(capacity, list) else [capacity]:
                kind = "read" if name in {"get_item", "query"} else "write"
                self.units[kind] = self.units.get(kind, 0.0) + consumed["CapacityUnits"]
            return answer

        return counted


def document(price: int) -> str:
    """Settings of the fleet at a price."""
    units = [{"name": f"unit-{i}", "namespaces": [f"team-{i}"]} for i in range(UNITS)]
    pricing = {"source": "rates", "rates": [{"instance_type": "p5*", "node_hourly_usd": price}]}
    clusters = [{"name": "large", "prometheus": {"url": "http://127.0.0.1:9"}}]
    return json.dumps({"clusters": clusters, "pricing": pricing, "business_units": units})


def usage_of(hour: datetime) -> Usage:
    """Usage in which every GPU is held all hour by its own pod and partly used."""
    start = to_epoch_ms(hour)
    time_ = IntervalMs(start, start + HOUR_MS)
    pods, nodes = [], []
    for n in range(NODES):
        node = GpuNode(f"node-{n}", f"aws:///z/i-{n:017x}", "p5.48xlarge", gpu_model="H100", physical_gpus=GPUS)
        for g in range(GPUS):
            i = n * GPUS + g
            uid = f"0a1b2c3d-0000-4000-8000-{(i * 7919) % 10**12:012d}"
            pod = PodObservation(f"team-{i % UNITS}", f"app-{i // 4}-{uid[-5:]}", uid, node.name, (), None)
            used = Fraction((i * 37) % 100, 100)
            pods.append(
                PodUsage(
                    pod,
                    node,
                    "nvidia_com_gpu",
                    1,
                    GpuShare(Fraction(1), "capacity"),
                    time_,
                    time_,
                    time_.end,
                    use=Use("pod", used, HOUR_MS, HOUR_MS * used),
                )
            )
        zero = Fraction(0)
        nodes.append(NodeUsage(node, time_, Fraction(GPUS * HOUR_MS), zero, zero, zero, zero, zero, zero))
    return Usage("large", hour, Coverage(Decimal(1), Decimal(1)), tuple(pods), tuple(nodes), ())


def replay(client: Any, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """The floor: the same calls without their conditions, which are no longer true."""
    for name, arguments in calls:
        if name == "transact_write_items":
            wrapped = [part for part in arguments["TransactItems"] if "ConditionCheck" not in part]
            bare = [{kind: _unconditional(operation) for kind, operation in part.items()} for part in wrapped]
            client.transact_write_items(TransactItems=bare)
        else:
            getattr(client, name)(**(_unconditional(arguments) if name == "put_item" else arguments))


def _unconditional(arguments: dict[str, Any]) -> dict[str, Any]:
    dropped = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
    return {key: value for key, value in arguments.items() if key not in dropped}


def figures(quick: bool) -> list[Figure]:
    """Figures of a restated day, or of four hours."""
    hours = 4 if quick else HOURS
    with running_dynamodb() as url:
        client, table = local_client("dynamodb", url), "ledger"
        create_table(client, table)
        counted = Counted(client)
        ledger = Ledger(DynamoDBTable(counted, table))
        store = SettingsDocumentStore(DynamoDBTable(client, table), clock=lambda: NOW)
        for price in (100, 120):
            store.push(document(price), author="benchmark", now=NOW)
        settings = parse_settings(document(100))
        rules = attribution_rules(settings, pricing_of(settings))
        for number in range(hours):
            usage = usage_of(START + HOUR * number)
            ledger.publish(build_record(usage, rules), replacing=None, settings_version=1, now=NOW, usage=usage)
        first = dict(counted.units)
        counted.calls.clear()
        counted.units.clear()
        pricer = Pricer(
            PriceStore(DynamoDBTable(client, table)), BillStore(DynamoDBTable(client, table), clock=lambda: NOW)
        )
        rollups = RollupStore(DynamoDBTable(counted, table))
        service = RestateService(store, ledger, rollups, Silence(), pricer=pricer, clock=lambda: NOW)  # type: ignore[arg-type]
        message = HoursToRestate(
            cluster="large", first_hour=START, hours=hours, settings_version=2, reason="benchmark", correlation_id="c"
        )
        began = time.perf_counter()
        done = service.restate(message)
        restated = time.perf_counter() - began
        began = time.perf_counter()
        replay(client, counted.calls)
        bare = time.perf_counter() - began
        published = sum(attempt.is_new_version for attempt in done)
        if published != hours:
            raise RuntimeError(f"{published} of {hours} hours were restated")
        return [
            Figure("an hour restated, ÷ the same calls bare", restated / hours, "s", bare / hours),
            Figure("an hour first published: write units", first["write"] / hours),
            Figure("an hour restated: write units", counted.units["write"] / hours),
            Figure("an hour restated: read units", counted.units["read"] / hours),
        ]


if __name__ == "__main__":
    stand_alone(figures, __doc__)
