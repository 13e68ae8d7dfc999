"""Costs by model on Amazon's own DynamoDB engine: stored with the hour's version and restated with it."""

from datetime import UTC, datetime
from decimal import Decimal

from msgspec.structs import replace

from gpucost.core.amounts import Costs
from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.costs_by_model import InferenceRules, TokenWeights, costs_by_model
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR as LENGTH
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.prices import Price, PriceBook
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from tests.conftest import DynamoTable
from tests.core.single_node_cluster import HOUR, device, observation
from tests.metered_client import MeteredClient
from tests.records import line, record

NOW = datetime.now(UTC).replace(microsecond=0)
SERVED = (
    ServedTokens("team", "p", "vllm", "a", 100, 20, 0, 3),
    ServedTokens("team", "p", "vllm", "b", 50, 90, None, 4),
)


def rules(usd: int, **inference: object) -> AttributionRules:
    book = PriceBook([Price("constant", "gpu-hour", Decimal(usd), {})])
    units = (BusinessUnit("serving", namespaces=("team",)),)
    return AttributionRules(Pricing(book, ("constant",)), units, inference=InferenceRules(**inference))  # type: ignore[arg-type]


def publish(ledger: Ledger, hour_record: HourRecord, **more: object) -> None:
    newest = ledger.newest_version_of_hour(hour_record.cluster, hour_record.hour)
    ledger.publish(hour_record, replacing=newest, settings_version=1, now=NOW, **more)  # type: ignore[arg-type]


def test_models_are_restated_from_stored_usage_and_replaced_rows_expire(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(MeteredClient(table.client), table.name))
    usage = replace(meter(observation(devices=(device(),)), MeteringRules()), served=SERVED)
    first = build_record(usage, rules(4))
    publish(ledger, first, usage=usage)
    (manifest,) = ledger.manifests("c", HOUR, HOUR + LENGTH)
    assert ledger.models_of([manifest]) == {HOUR: first.models}
    assert [row.key.model for row in first.models] == ["a", "b"]

    stored = ledger.usage(manifest)
    assert stored is not None
    assert stored.served == SERVED
    restated = build_record(stored, rules(8, weights=TokenWeights(generated=Decimal(1))))
    publish(ledger, restated, reason="a new price and other weights")
    (newer,) = ledger.manifests("c", HOUR, HOUR + LENGTH)
    assert ledger.models_of([newer]) == {HOUR: restated.models}
    total = Costs.total(row.costs for row in restated.models)
    assert total == Costs.total(each.costs() for each in ledger.lines("c", HOUR))
    assert total.allocated_usd == 2 * Costs.total(row.costs for row in first.models).allocated_usd
    ends = {
        scanned["sk"]["S"].split("#")[1]: int(scanned["expires_at"]["N"])
        for scanned in table.client.scan(TableName=table.name)["Items"]
        if scanned["pk"]["S"] == "C#c#models"
    }
    assert ends[manifest.run_id] < ends[newer.run_id]


def test_lines_models_and_summary_have_equal_sums(ledger_table: Table) -> None:
    ledger = Ledger(ledger_table)
    lines = [line(pod="p1"), line(pod="p2", usd="0.000000000001"), line("idle", "notebooks", "n", "12")]
    served = [
        ServedTokens("bu-a", "p1", "vllm", model, prompt, 1, 0, 1) for model, prompt in (("x", 1), ("y", 1), ("z", 5))
    ]
    publish(ledger, replace(record(lines), models=tuple(costs_by_model(lines, served, InferenceRules()))))
    manifests = ledger.manifests("demo", record().hour, record().hour + LENGTH)
    (models,) = ledger.models_of(manifests).values()
    (summary,) = ledger.summaries_of(manifests)
    assert summary.totals is not None
    assert Costs.total(row.costs for row in models) == summary.totals.costs
    assert summary.totals.costs == Costs.total(each.costs() for each in ledger.lines("demo", record().hour))


def test_hour_without_servers_has_no_item_of_models(table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    publish(ledger, record([line()]))
    assert not [
        scanned for scanned in table.client.scan(TableName=table.name)["Items"] if "models" in scanned["pk"]["S"]
    ]
    assert ledger.models_of(ledger.manifests("demo", record().hour, record().hour + LENGTH)) == {}
