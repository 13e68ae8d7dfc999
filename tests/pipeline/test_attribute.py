"""The attribute service with a real Prometheus and DynamoDB Local: it is idempotent and retries."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import requests

from gpucost.core.amounts import to_decimal
from gpucost.core.errors import InvalidInputError, SourceError
from gpucost.core.hours import floor_day
from gpucost.core.ledger import Limits
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.attribute import LimitsRecorder, check_hour, check_retention
from gpucost.runtime.messages import AttributionOrigin, HoursDue
from gpucost.runtime.observability import tally
from gpucost.settings_document import parse_settings
from gpucost.sources.aws_prices import AwsPriceList, Ec2SpotHistory
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import parse_duration
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ports import Table
from tests.conftest import DynamoTable
from tests.pipeline.attributed import NOW, System, busy_hour
from tests.prometheus_clients import SentQuery, recording_client
from tests.sources.aws_prices import Aws, Offer, Point
from tests.system.timeline import HOUR, Timeline


@pytest.fixture
def system(ledger_table: Table, prometheus: Callable[[str], str]) -> System:
    return busy_hour(ledger_table, prometheus)


def test_limits_of_published_hours_are_recorded(ledger_table: Table, prometheus: Callable[[str], str]) -> None:
    timeline = Timeline(gaps=[(60, 125)])
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    timeline.add(
        "kube_resourcequota", value=4, namespace="n", resourcequota="q", type="hard", resource="requests.nvidia.com/gpu"
    )
    system = System(ledger_table, prometheus(timeline.text()))
    system.attribute(hours=2)
    assert [status for status, _, _ in system.figures()] == ["complete", "incomplete"]
    limits = system.limits.limits_between("demo", HOUR - timedelta(days=1), HOUR + timedelta(days=1))
    assert [(hour_limits.hour, hour_limits.quotas[0].hard) for hour_limits in limits] == [(HOUR, Decimal(4))]


def test_limits_are_recorded_after_a_crash_of_the_first_delivery(
    ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    class KilledError(BaseException):
        pass

    class KilledRecorder(LimitsRecorder):
        def record(self, *_: object) -> None:
            raise KilledError

    class KilledReader(NodePoolLimitsReader):
        def read(self, hours: Sequence[datetime]) -> list[Limits]:
            raise KilledError

    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.add(
        "kube_resourcequota", value=4, namespace="n", resourcequota="q", type="hard", resource="requests.nvidia.com/gpu"
    )
    system = System(ledger_table, prometheus(timeline.text()))
    complete = system.service
    system.service = system.compose(limits=KilledRecorder(NodePoolLimitsReader, system.limits))
    with pytest.raises(KilledError):
        system.attribute()
    system.service = complete
    assert [status for status, _, _ in system.figures()] == ["complete"]
    system.attribute()
    assert [
        hour_limits.hour for hour_limits in system.limits.limits_between("demo", HOUR, HOUR + timedelta(hours=1))
    ] == [HOUR]
    system.service = system.compose(limits=LimitsRecorder(KilledReader, system.limits))
    system.attribute()  # no query is repeated


def test_hours_of_a_partly_expired_day_are_published(table: DynamoTable, system: System) -> None:
    """Hours expire before days, so the day cannot be summed again."""
    system.attribute(start=HOUR - timedelta(hours=1))
    for item in table.client.scan(TableName=table.name)["Items"]:
        if "#summaries" in item["pk"]["S"]:
            expired = {**item, "expires_at": {"N": "1"}}
            table.client.put_item(TableName=table.name, Item=expired)
        elif item["pk"]["S"].endswith("#hours"):  # a manifest says when its summary ends
            table.client.put_item(TableName=table.name, Item={**item, "e": {"N": "1"}})
    system.attribute()
    assert system.bus.closed[-1].hour == HOUR
    assert system.figures()[-1] == ("complete", "12", 1)


def test_hour_is_published_with_an_event(system: System) -> None:
    system.attribute()
    assert system.figures() == [("complete", "12", 1)]
    (closed,) = system.bus.closed
    assert (closed.hour, closed.status, closed.record_version, closed.origin) == (HOUR, "complete", 1, "schedule")
    assert closed.correlation_id == "why"


def test_repeated_delivery_sends_the_event_again_and_changes_nothing(system: System) -> None:
    system.attribute()
    system.attribute()
    assert system.figures() == [("complete", "12", 1)]
    assert len(system.bus.closed) == 2
    assert system.bus.closed[0] == system.bus.closed[1]


def test_prices_are_those_of_the_book_in_that_hour(system: System) -> None:
    mid_hour = HOUR + timedelta(minutes=30)
    for amount, start, end in (("30", HOUR - timedelta(days=1), mid_hour), ("48", mid_hour, None)):
        price = Price("override", "gpu-hour", Decimal(amount), {}, "USD", start, end, NOW, "me", "negotiated")
        system.book.set_override(price, now=NOW)
    system.attribute()
    assert system.figures() == [("complete", "39", 1)]
    assert {line.price_source for line in system.ledger.lines("demo", HOUR)} == {"override"}


def test_spot_and_on_demand_nodes_have_separate_prices(ledger_table: Table, prometheus: Callable[[str], str]) -> None:
    timeline = Timeline()
    timeline.up()
    shared = {"node_kubernetes_io_instance_type": "g5.xlarge", "topology_kubernetes_io_zone": "us-east-1a"}
    spot_labels = {**shared, "eks_amazonaws_com_capacity_type": "SPOT", "topology_k8s_aws_zone_id": "use1-az6"}
    timeline.node("n1", capacity={"nvidia_com_gpu": 1}, labels=spot_labels)
    timeline.node("n2", capacity={"nvidia_com_gpu": 1}, labels={**shared, "karpenter_sh_capacity_type": "on-demand"})
    timeline.node("n3", capacity={"nvidia_com_gpu": 1}, labels={**shared, "karpenter_sh_capacity_type": "spot"})
    for node in ("n1", "n2", "n3"):
        timeline.pod(f"on-{node}", node=node)
    system = System(ledger_table, prometheus(timeline.text()))
    url = system.store.current().settings.clusters[0].prometheus.url
    document = {
        "clusters": [{"name": "demo", "prometheus": {"url": url}}],
        "pricing": {"sources": ["spot", "on-demand"], "discounts": [{"percent": 10}]},
    }
    system.store.push(json.dumps(document), author="me", now=NOW)
    aws, minute = Aws(), timedelta(minutes=1)
    aws.points = [
        Point("g5.xlarge", "us-east-1a", HOUR - timedelta(days=3), "0.30"),
        Point("g5.xlarge", "us-east-1a", HOUR + 15 * minute, "0.40"),
        Point("g5.xlarge", "us-east-1a", HOUR + 45 * minute, "0.50"),
    ]
    spot = Ec2SpotHistory(aws.client).fetch("us-east-1", ["g5.xlarge"], ["linux"], since=HOUR, now=NOW)
    system.book.merge_prices("spot", spot, since=HOUR, rated_until=HOUR, now=NOW)
    aws.offers = [Offer("g5.xlarge", "us-east-1", "1.0060000000", since="2020-01-01T00:00:00Z")]
    listed = AwsPriceList(aws.client).fetch("us-east-1", ["g5.xlarge"], ["linux"], tenancy="Shared", now=NOW)
    system.book.merge_prices("on-demand", listed, rated_until=HOUR, now=NOW)

    system.attribute(version=2)
    lines = {
        line.pod: (line.price_source, to_decimal(line.allocated_usd or 0)) for line in system.ledger.lines("demo", HOUR)
    }
    assert lines == {
        # A quarter of an hour at 0.30, half at 0.40, a quarter at 0.50.
        "on-n1": ("spot", Decimal("0.4")),
        # 1.006 less 10%.
        "on-n2": ("on-demand", Decimal("0.9054")),
        # Spot, but its zone's id is unknown.
        "on-n3": ("on-demand", Decimal("0.9054")),
    }


def test_without_a_price_in_the_book_the_hour_is_provisional(system: System) -> None:
    url = system.store.current().settings.clusters[0].prometheus.url
    document = {
        "clusters": [{"name": "demo", "prometheus": {"url": url}}],
        "pricing": {"sources": ["spot", "on-demand"]},
    }
    system.store.push(json.dumps(document), author="me", now=NOW)
    system.attribute(version=2)
    assert [status for status, _, _ in system.figures()] == ["provisional"]
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest
    assert any("from override, spot, on-demand" in note for note in manifest.notes)

    tally.drain()
    origins: tuple[AttributionOrigin, ...] = ("schedule", "backfill")
    for origin in origins:
        system.attribute(version=2, origin=origin)
    assert "AttributeSeconds" not in tally.drain(), "it only waits for prices, and is rated from stored usage"
    assert [(status, version) for status, _, version in system.figures()] == [("provisional", 1)]


@pytest.mark.tools  # of items in DynamoDB Local
def test_published_items_expire_as_configured(table: DynamoTable, system: System) -> None:
    kept = {"pods": 40, "hourly": 50, "daily": 60}
    document = json.loads(system.store.current().text) | {"retention": kept}
    system.store.push(json.dumps(document), author="me", now=NOW)
    system.attribute(version=2)
    ends: dict[str, set[int]] = defaultdict(set)
    for item in table.client.scan(TableName=table.name)["Items"]:
        if item["pk"]["S"].startswith("C#demo#"):
            days = (int(item["expires_at"]["N"]) - NOW.timestamp()) / 86_400
            ends[item["pk"]["S"].split("#")[2]].add(round(days))
    expected = {
        "lines": {40},
        "nodes": {40},
        "usage": {40},
        "summaries": {50},
        "unit": {50},
        "notes": {50},
        "hours": {60},
        "days": {60},
        "rollups": {60},
    }
    if floor_day(HOUR) < floor_day(NOW):
        expected["facts"] = {60}  # the facts of a day are rolled up when it is over
    assert ends == expected


def test_unreadable_price_book_leaves_the_message_to_be_retried(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SourceError("the ledger's table failed")

    monkeypatch.setattr(system.book, "in_force", refuse)
    with pytest.raises(SourceError):
        system.attribute()
    assert system.figures() == []


def test_retry_after_a_push_keeps_the_settings_of_its_message(system: System) -> None:
    url = system.store.current().settings.clusters[0].prometheus.url
    system.push(url, price=99)
    system.attribute(version=1)
    assert system.figures() == [("complete", "12", 1)]


def test_several_hours_share_queries_and_equal_single_ones(system: System, table: DynamoTable) -> None:
    system.attribute(hours=2, start=HOUR - timedelta(hours=1), origin="backfill")
    together = system.ledger.lines("demo", HOUR)
    assert [status for status, _, _ in system.figures()] == ["complete", "complete"]
    url = system.store.current().settings.clusters[0].prometheus.url
    alone = System(DynamoDBTable(table.client, _copy(table)), url)
    alone.attribute()
    assert alone.ledger.lines("demo", HOUR) == together


def _copy(table: DynamoTable) -> str:
    from gpucost_devstack.dynamodb_local import create_table

    name = f"{table.name}-alone"
    create_table(table.client, name)
    return name


def test_cluster_missing_from_the_settings_is_refused(system: System) -> None:
    message = HoursDue(
        cluster="gone", first_hour=HOUR, hours=1, settings_version=1, origin="schedule", correlation_id="why"
    )
    with pytest.raises(InvalidInputError, match="'gone' is not in version 1 of the settings"):
        system.service.attribute(message)


def test_hours_that_cannot_be_metered_are_refused() -> None:
    now = datetime(2026, 11, 19, 10, 30, tzinfo=UTC)
    check_hour(datetime(2026, 11, 19, 9, tzinfo=UTC), now)
    with pytest.raises(InvalidInputError, match=r"has not ended\. The newest hour .* is 2026-11-19T09:00:00Z"):
        check_hour(datetime(2026, 11, 19, 10, tzinfo=UTC), now)
    with pytest.raises(InvalidInputError, match="not on the full hour"):
        check_hour(datetime(2026, 11, 19, 8, 15, tzinfo=UTC), now)


def test_hours_past_the_retention_are_refused_with_the_reason(system: System) -> None:
    settings = system.store.current().settings
    cluster = settings.clusters[0]
    reader = metrics_reader(cluster, settings)
    check_retention(NOW - timedelta(days=399), cluster, reader, NOW)
    with pytest.raises(InvalidInputError, match="kept for 400 days"):
        check_retention(NOW - timedelta(days=401), cluster, reader, NOW)
    amp = parse_settings(
        "clusters: [{name: a, prometheus: {url: 'https://aps', auth: sigv4, region: eu-central-1}}]\n"
        "pricing: {source: constant, gpu_hourly_usd: 1}"
    ).clusters[0]
    with pytest.raises(InvalidInputError, match="kept for 150 days"):
        check_retention(NOW - timedelta(days=151), amp, reader, NOW)


def test_queries_of_a_whole_message_stay_within_amps_limits(
    ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    """AMP's limits are 32 days for instant and 95 for range queries. A message's queries cover about 24 hours."""
    queries: list[SentQuery] = []
    system = busy_hour(ledger_table, prometheus, client=recording_client(queries))
    tally.drain()
    system.attribute(hours=24, start=HOUR - timedelta(hours=23))
    counted = tally.drain()
    assert {path for path, _ in queries} >= {"query_range"}
    samples = 0
    for path, form in queries:
        first, last = (form["start"], form["end"]) if path == "query_range" else (form["time"], form["time"])
        reach = [
            sum(
                (parse_duration(text) or timedelta(0) for text in re.findall(r"[\[:\s](\d+[a-z\d]*)[\]:\s]", part)),
                timedelta(0),
            )
            for part in form["query"].split(" or ")
        ]
        back = timedelta(seconds=float(last) - float(first)) + max(reach)
        assert back < timedelta(days=2), form
        answer = requests.post(f"{system.url}/api/v1/{path}", data={**form, "stats": "all"}, timeout=60).json()
        samples += answer["data"]["stats"]["samples"]["totalQueryableSamples"]
    assert samples > 0
    assert counted["SamplesProcessed"] == samples, "the metric equals Prometheus' statistics of the same queries"
    assert counted["Queries"] == len(queries)
