"""A write whose answer is lost: botocore sends it again by itself, and meets what it wrote."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpucost.core.errors import ConflictError
from gpucost.core.ledger import ClosedMonth
from gpucost.features.alerting.model import AlertGroup
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.table import MISSING, key
from gpucost_devstack.aws import local_client
from tests.conftest import DynamoTable
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.records import line, record

pytestmark = pytest.mark.tools

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)
SETTINGS = json.dumps(
    {
        "pricing": {"source": "constant", "gpu_hourly_usd": 2},
        "clusters": [{"name": "a", "prometheus": {"url": "http://a:9"}}],
    }
)


@pytest.fixture
def client(dynamodb_url: str) -> Iterator[Any]:
    """A client each of whose writes arrives twice: the first answer counts as lost."""
    client = local_client("dynamodb", dynamodb_url)
    sent: list[str] = []

    def again(operation: Any, attempts: int, **_: Any) -> int | None:
        """How many seconds botocore waits before it sends the call once more."""
        if attempts > 1 or not operation.name.startswith(("Put", "Transact")):
            return None
        sent.append(operation.name)
        return 0

    client.meta.events.register_first("needs-retry.dynamodb", again)
    yield client
    assert sent


def test_push_whose_answer_was_lost_succeeds(client: Any, table: DynamoTable) -> None:
    store = SettingsDocumentStore(DynamoDBTable(client, table.name), clock=lambda: NOW)
    assert [store.push(SETTINGS, author="me", now=NOW).version for _ in range(2)] == [1, 2]
    assert [stored.version for stored in store.history()] == [2, 1]


def test_repeated_call_that_closed_the_month_succeeds_and_other_writers_conflict(
    client: Any, table: DynamoTable
) -> None:
    versions = Ledger(DynamoDBTable(client, table.name)).versions
    versions.close_month(ClosedMonth("2026-10", NOW, "me", "chargeback"))
    with pytest.raises(ConflictError):
        versions.close_month(ClosedMonth("2026-10", NOW, "me", "chargeback"))
    assert [month.author for month in versions.closed_months()] == ["me"]


def test_recommendation_whose_answer_was_lost_is_saved_once(client: Any, table: DynamoTable) -> None:
    store = DynamoRecommendations(DynamoDBTable(client, table.name))
    first = store.put(Recommendation(PROPOSED, "open", NOW, NOW, NOW))
    assert store.put(replace(first, state="applied")).version == 2
    with pytest.raises(ConflictError):
        store.put(replace(first, state="dismissed"))


def test_claim_of_an_outbox_belongs_to_the_sender(client: Any, table: DynamoTable) -> None:
    memory = DynamoAlertStateStore(DynamoDBTable(client, table.name))
    book = AlertGroup("demo", "research")
    assert memory.save_group(memory.save_group(book)).version == 2
    with pytest.raises(ConflictError):
        memory.save_group(book)


def test_publication_whose_answer_was_lost_succeeds_once(client: Any, table: DynamoTable) -> None:
    ledger = Ledger(DynamoDBTable(client, table.name))
    published = ledger.publish(record([line()]), replacing=None, settings_version=1, now=NOW)
    assert published.version == 1
    assert ledger.versions.current(published.cluster, published.hour) == published


def test_two_identical_writes_write_once(client: Any, table: DynamoTable) -> None:
    item = {**key("p", "s"), "by": {"S": "me"}}
    DynamoDBTable(client, table.name).put(item, MISSING)
    with pytest.raises(ConflictError):
        DynamoDBTable(client, table.name).put(item, MISSING)
