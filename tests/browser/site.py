"""A ledger with published hours, and the API that serves them with the page."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests
import simplejson

from functions.api import app as function
from gpucost.api.app import build_app
from gpucost.container import Container
from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime.process import Environment
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.http import serving_api
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.template import transformed_template
from tests.browser.first_answers import first_answers
from tests.functions.api_requests import Context


@dataclass(frozen=True)
class Site:
    address: str

    def ask(self, path: str) -> Any:
        answer = requests.get(f"{self.address}/v1/{path}", timeout=30)
        assert answer.status_code == 200, answer.text
        return numbers(answer.text)


def numbers(text: str) -> Any:
    """Parse JSON with exact numbers."""
    return simplejson.loads(text, parse_float=Decimal, parse_int=Decimal)


@contextmanager
def deployment(
    settings: str,
    records: Iterator[HourRecord],
    *,
    end: datetime,
    replacements: Sequence[tuple[HourRecord, str]] = (),
    recommendations: Sequence[Recommendation] = (),
) -> Iterator[Site]:
    """Published hours, then their replacements with reasons, and the api function's handler in this process.

    Its clock stands five minutes after `end`, so that it answers the same when an hour or day ends meanwhile.

    The table is in SQLite, which takes a tenth of the processor time; `test_page.py` opens every view on the demo, with
    DynamoDB Local and the function in its own process. Nothing changes any more, so repeated requests get the first
    answer.
    """
    now = end + timedelta(minutes=5)
    with TemporaryDirectory() as folder, SqliteTable(Path(folder)) as table:
        SettingsDocumentStore(table, clock=lambda: now).push(settings, author="test", now=now)
        ledger = Ledger(table)
        for record in records:
            ledger.publish(record, replacing=None, settings_version=1, now=now)
        for record, reason in replacements:
            newest = ledger.newest_version_of_hour(record.cluster, record.hour)
            ledger.publish(record, replacing=newest, settings_version=2, now=now, reason=reason)
        store = DynamoRecommendations(table)
        for recommendation in recommendations:
            store.put(recommendation)
        app = build_app(
            Container(Environment(table=""), table=table, clock=lambda: now).api_services, function.PAGE_FOLDER
        )

        def invoke(event: Mapping[str, Any]) -> Any:
            return function.handler(dict(event), Context(), app=app)  # type: ignore[arg-type]  # a reduced context

        resources = transformed_template()["Resources"].values()
        routes = [body["Properties"]["RouteKey"] for body in resources if body["Type"] == "AWS::ApiGatewayV2::Route"]
        port = free_port()
        with serving_api(first_answers(invoke), routes, port):
            yield Site(f"http://127.0.0.1:{port}")
