"""Decisions on the page of `gpucost serve`: who may take them, and that they are stored."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from gpucost.features.alerting.model import Alert, AlertGroup
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.features.recommendations.model import Recommendation
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from tests.features.recommendations.sample_recommendations import PROPOSED

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
HOUR = NOW.replace(minute=0) - timedelta(hours=2)
SETTINGS = {
    "clusters": [{"name": "demo", "prometheus": {"url": "http://127.0.0.1:9"}}],
    "pricing": {"source": "constant", "gpu_hourly_usd": 12},
}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalService]:
    """A recommendation, and a firing alert."""
    with SqliteTable(tmp_path) as table:
        DynamoRecommendations(table).put(Recommendation(PROPOSED, "open", HOUR, HOUR, HOUR))
        alert = Alert("waste", Subject("demo", "research"), "firing", HOUR, ())
        DynamoAlertStateStore(table).save_group(AlertGroup("demo", "research", (alert,)))
        yield LocalService(table, json.dumps(SETTINGS), author="me", clock=lambda: NOW, secret_value=str)


@pytest.fixture
def url(local: LocalService) -> Iterator[str]:
    with local.serving(0) as address:
        yield address


def post(url: str, path: str, body: Any = None, **headers: str | None) -> requests.Response:
    """As the page sends it, unless headers say otherwise."""
    sent = {"Origin": url, "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): text for name, text in headers.items()}  # type: ignore[misc]
    return requests.post(f"{url}/serve/{path}", data=json.dumps(body or {}), headers=sent, timeout=30)


def recommendation(url: str) -> dict[str, Any]:
    (row,) = requests.get(f"{url}/v1/recommendations", params={"state": "all"}, timeout=30).json()["rows"]
    return dict(row)


def alert(url: str) -> dict[str, Any]:
    (row,) = requests.get(f"{url}/v1/alerts", timeout=30).json()["active"]
    return dict(row)


def test_recommendation_is_dismissed_with_a_reason_and_reopened(url: str) -> None:
    path = f"recommendations/{recommendation(url)['id']}"
    assert post(url, f"{path}/dismiss", {"reason": " needed for the launch "}).json() == {"state": "dismissed"}
    row = recommendation(url)
    assert (row["state"], row["author"], row["reason"]) == ("dismissed", "me", "needed for the launch")
    assert post(url, f"{path}/reopen").json() == {"state": "open"}
    assert recommendation(url)["state"] == "open"


def test_firing_alert_is_acknowledged(url: str) -> None:
    assert alert(url)["acknowledged_by"] is None
    assert post(url, f"alerts/{alert(url)['id']}/acknowledge").json() == {"acknowledged_by": "me"}
    assert alert(url)["acknowledged_by"] == "me"


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1001, None])
def test_dismissal_needs_a_reason(url: str, reason: str | None) -> None:
    path = f"recommendations/{recommendation(url)['id']}/dismiss"
    refused = post(url, path, {"reason": reason} if reason is not None else {})
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, "application/problem+json")
    assert "reason: " in refused.json()["detail"]
    assert recommendation(url)["state"] == "open"


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ({"Origin": "https://example.com"}, "Origin: 'https://example.com' is not this page"),
        ({"Origin": "null"}, "Origin: 'null' is not this page"),
        ({"Origin": None}, "Origin: '' is not this page"),
        ({"Host": "attacker.example", "Origin": "http://attacker.example"}, "Host: 'attacker.example' is not this"),
        ({"Host": "127.0.0.1.attacker.example", "Origin": "http://127.0.0.1.attacker.example"}, "is not this machine"),
        ({"Content_Type": "text/plain"}, "Content-Type: must be application/json"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, "Content-Type: must be application/json"),
        ({"Content_Type": None}, "Content-Type: must be application/json"),
    ],
)
def test_requests_of_other_pages_change_nothing(url: str, headers: dict[str, str | None], detail: str) -> None:
    """A site that a browser on this machine shows can send forms, and can let its name point to 127.0.0.1."""
    for path, body in (
        (f"recommendations/{recommendation(url)['id']}/dismiss", {"reason": "x"}),
        (f"alerts/{alert(url)['id']}/acknowledge", {}),
    ):
        refused = post(url, path, body, **headers)
        assert refused.status_code == 403, refused.text
        assert detail in refused.json()["detail"]
    assert (recommendation(url)["state"], alert(url)["acknowledged_by"]) == ("open", None)


def test_browsers_are_not_allowed_to_send_json_from_other_sites(url: str) -> None:
    """They ask with OPTIONS before, and need an answer that names their origin."""
    answer = requests.options(
        f"{url}/serve/alerts/1/acknowledge",
        headers={"Origin": "https://example.com", "Access-Control-Request-Method": "POST"},
        timeout=30,
    )
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_other_addresses_take_no_decisions(local: LocalService) -> None:
    """Whoever reaches them sees the costs, and changes nothing."""
    with local.serving(0) as url:
        assert requests.get(f"{url}/config.json", timeout=30).json()["decisions"] is True
        path = f"recommendations/{recommendation(url)['id']}/dismiss"
    with local.serving(0, "0.0.0.0") as url:
        assert requests.get(f"{url}/config.json", timeout=30).json()["decisions"] is False
        assert post(url, path, {"reason": "x"}).status_code == 404
        assert recommendation(url)["state"] == "open"


def test_unknown_ids_are_not_found(url: str) -> None:
    assert post(url, "recommendations/idle-000000000000/dismiss", {"reason": "x"}).status_code == 404
    assert post(url, "alerts/000000000000/acknowledge").status_code == 404
    assert post(url, "alerts/x/acknowledge").status_code == 400
