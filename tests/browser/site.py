"""A deployment with a table of published hours, and the API that serves them with the page."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import requests
import simplejson

from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.aws import client_environment, create_stack, local_client, running_aws
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.functions import LocalFunction
from gpucost_devstack.http import serving_api
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.stack import LAYER
from gpucost_devstack.template import REPOSITORY
from tests.browser.first_answers import first_answers


@dataclass(frozen=True)
class Site:
    address: str
    client: Any
    table: str

    def ask(self, path: str) -> Any:
        answer = requests.get(f"{self.address}/v1/{path}", timeout=30)
        assert answer.status_code == 200, answer.text
        return numbers(answer.text)


def numbers(text: str) -> Any:
    """Parse JSON with exact numbers."""
    return simplejson.loads(text, parse_float=Decimal, parse_int=Decimal)


@contextmanager
def deployment(
    dynamodb: str,
    settings: str,
    records: Iterator[HourRecord],
    *,
    replacements: Sequence[tuple[HourRecord, str]] = (),
    recommendations: Sequence[Recommendation] = (),
) -> Iterator[Site]:
    """A table with published hours, then their replacements with reasons, and the API.

    Nothing changes any more, so repeated requests get the first answer.
    """
    with ExitStack() as running:
        endpoint = running.enter_context(running_aws())
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        deployed = create_stack(endpoint, address, {})
        client, table = local_client("dynamodb", dynamodb), deployed.outputs["TableName"]
        create_table(client, table)
        SettingsDocumentStore(DynamoDBTable(client, table), clock=lambda: datetime.now(UTC)).push(
            settings, author="test", now=datetime.now(UTC)
        )
        ledger = Ledger(DynamoDBTable(client, table))
        for record in records:
            ledger.publish(record, replacing=None, settings_version=1, now=datetime.now(UTC))
        for record, reason in replacements:
            newest = ledger.newest_version_of_hour(record.cluster, record.hour)
            ledger.publish(record, replacing=newest, settings_version=2, now=datetime.now(UTC), reason=reason)
        store = DynamoRecommendations(DynamoDBTable(client, table))
        for recommendation in recommendations:
            store.put(recommendation)
        variables = {**deployed.environments["ApiFunction"], **client_environment(endpoint, dynamodb)}
        function = LocalFunction("api", "app.handler", [REPOSITORY / "functions" / "api", LAYER], variables)
        running.callback(function.stop)
        routes = [route["RouteKey"] for _, route in deployed.resources("AWS::ApiGatewayV2::Route")]
        running.enter_context(serving_api(first_answers(function.invoke), routes, port))
        yield Site(address, client, table)
