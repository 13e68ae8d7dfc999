"""Errors name unreadable items to callers who may see the whole fleet, and no cluster or key to others (0031)."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gpucost.container import Container
from gpucost.core.hours import DAY, HOUR, floor_day, format_timestamp
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import request_as, role_caller, serving
from tests.records import line, record

NOW = datetime.now(UTC).replace(microsecond=0)
DAMAGED = floor_day(NOW) - 2 * DAY
CLUSTER = "secret-project"
ROLE = "arn:aws:iam::123456789012:role/"
DOCUMENT = json.dumps(
    {
        "clusters": [{"name": CLUSTER, "prometheus": {"url": "http://127.0.0.1:9"}}],
        "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        "business_units": [{"name": "research", "namespaces": ["bu-a"]}],
        "access": [
            {"principal": f"{ROLE}admins", "roles": ["admin"]},
            {"principal": f"{ROLE}viewers", "roles": ["viewer"]},
            {"principal": f"{ROLE}researchers", "roles": ["bu:research"]},
        ],
    }
)
PERIOD = {"start": format_timestamp(DAMAGED), "end": format_timestamp(DAMAGED + 2 * HOUR)}
WINDOW = {"window": f"{PERIOD['start']},{PERIOD['end']}", "aggregate": "namespace"}
OF_SUMMARIES = [
    ("/v1/costs", {**PERIOD, "group_by": "business_unit"}),
    ("/v1/business-units/research", PERIOD),
    ("/allocation/compute", WINDOW),
]
OF_LINES = [("/v1/lines", PERIOD), ("/allocation/compute", {**WINDOW, "aggregate": "pod"})]


class Store:
    """A settings store of one document."""

    def current(self) -> StoredSettings:
        return StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)


@pytest.fixture
def published(table: DynamoTable, enforced: EnforcedAws) -> Iterator[DynamoTable]:
    hour_record = record([line()], hour=DAMAGED, cluster=CLUSTER)
    Ledger(DynamoDBTable(*table)).publish(hour_record, replacing=None, settings_version=1, now=NOW)
    api = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=table.name)
    with serving(Container(environment, client=lambda _service: api, settings_store=Store())):
        yield table


@pytest.mark.parametrize(
    ("kind", "path", "query"),
    [(kind, *request) for kind, requests in (("summaries", OF_SUMMARIES), ("lines", OF_LINES)) for request in requests],
)
def test_errors_for_bu_roles_contain_no_cluster_and_no_key(
    published: DynamoTable, kind: str, path: str, query: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for item in published.client.scan(TableName=published.name)["Items"]:
        if item["pk"]["S"].startswith(f"C#{CLUSTER}#{kind}"):
            published.client.put_item(TableName=published.name, Item={**item, "b": {"B": b"damaged"}})
    for role in ("admins", "viewers"):
        answer = request_as(role_caller(role), path, query)
        assert (answer.status, CLUSTER in answer.body) == (502, True)
    caplog.clear()

    answer = request_as(role_caller("researchers"), path, query)

    assert answer.status == 502
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "title": "Bad Gateway",
        "status": 502,
        "instance": path,
        "detail": "a record could not be read. Details are in the api function's log, request ID 'request-1'.",
    }
    (reason,) = [
        vars(hour_record)["reason"] for hour_record in caplog.records if hour_record.message == "request failed"
    ]
    assert CLUSTER in reason
