"""Slack over a real HTTP server that answers as Slack does."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpucost.adapters.slack import SlackNotifier, message
from gpucost.domain.alerting import Notification
from gpucost.errors import SourceError

NOTIFICATION = Notification(
    id="demo/waste/research/2026-11-19T10:00:00Z/firing",
    event="firing",
    rule="waste",
    cluster="demo",
    business_unit="research",
    since=datetime(2026, 11, 19, 9, tzinfo=UTC),
    hour=datetime(2026, 11, 19, 10, tzinfo=UTC),
    waste_usd_per_hour=Decimal("1234.565000000001"),
    allocated_usd_per_hour=Decimal(1500),
    waste_percent=Decimal("82.3"),
    threshold="waste ≥ $10 per hour and ≥ 50% of allocated, for 2 hours on end",
)


@dataclass
class Webhook:
    """Answers what it is told to, then 200; keeps what it was sent."""

    url: str
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    delay: float = 0.0
    waits: list[float] = field(default_factory=list)

    def notifier(self, timeout: float = 5.0) -> SlackNotifier:
        return SlackNotifier(
            "gpucost/slack", secret_value=lambda _: self.url, sleep=self.waits.append, timeout=(timeout, timeout)
        )


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(hook.delay)
            status, headers, body = hook.answers.pop(0) if hook.answers else (200, {}, "ok")
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/services/T0/B0/topsecret")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield hook
        server.shutdown()
        thread.join()


def test_says_who_how_much_since_when_and_by_which_rule(webhook: Webhook) -> None:
    webhook.notifier().send(NOTIFICATION)

    (body,) = webhook.received
    assert body["text"] == (
        "GPU waste alert: research in cluster demo wastes $1,234.57 per hour, 82.3% of the GPUs it holds"
    )
    shown = json.dumps(body["blocks"], ensure_ascii=False)
    for part in ("research", "demo", "$1,234.57 (82.3%)", "$1,500.00", "2026-11-19T09:00:00Z", "for 2 hours on end"):
        assert part in shown


def test_waits_as_long_as_slack_asks_and_tries_again(webhook: Webhook) -> None:
    webhook.answers = [(429, {"Retry-After": "3"}, "")]

    webhook.notifier().send(NOTIFICATION)

    assert len(webhook.received) == 2
    assert webhook.waits == [3.0]


def test_a_server_error_is_tried_again(webhook: Webhook) -> None:
    webhook.answers = [(500, {}, "oops"), (503, {}, "")]

    webhook.notifier().send(NOTIFICATION)

    assert len(webhook.received) == 3


@pytest.mark.parametrize(
    ("answers", "tries", "sentence"),
    [
        ([(500, {}, "")] * 3, 3, "answered HTTP 500"),
        ([(429, {"Retry-After": "3600"}, "")], 1, "asks to wait 3600 s"),
        ([(429, {"Retry-After": "soon"}, "")] * 3, 3, "HTTP 429"),
        ([(400, {}, "invalid_payload")], 1, "refused the message: HTTP 400 invalid_payload"),
        ([(404, {}, "no_service")], 1, "no_service"),
        ([(302, {"Location": "http://127.0.0.1:9/"}, "")], 1, "HTTP 302"),
    ],
)
def test_a_failure_is_one_sentence_without_the_address(
    webhook: Webhook, answers: list[tuple[int, dict[str, str], str]], tries: int, sentence: str
) -> None:
    webhook.answers = list(answers)

    with pytest.raises(SourceError, match=sentence) as failure:
        webhook.notifier().send(NOTIFICATION)

    assert len(webhook.received) == tries
    assert "topsecret" not in str(failure.value)


def test_a_server_that_does_not_answer_in_time(webhook: Webhook) -> None:
    webhook.delay = 0.4

    with pytest.raises(SourceError, match="could not be reached") as failure:
        webhook.notifier(timeout=0.1).send(NOTIFICATION)

    assert len(webhook.received) == 3
    assert "topsecret" not in str(failure.value)


def test_a_server_that_is_not_there_leaks_no_address() -> None:
    notifier = SlackNotifier("gpucost/slack", secret_value=lambda _: "http://127.0.0.1:9/topsecret", sleep=print)

    with pytest.raises(SourceError, match="could not be reached") as failure:
        notifier.send(NOTIFICATION)

    assert "topsecret" not in str(failure.value)


@pytest.mark.parametrize("value", ["", "topsecret", "ftp://topsecret"])
def test_a_secret_that_is_no_address(value: str) -> None:
    with pytest.raises(SourceError, match="gpucost/slack does not hold a webhook's address") as failure:
        SlackNotifier("gpucost/slack", secret_value=lambda _: value).send(NOTIFICATION)

    assert "topsecret" not in str(failure.value)


NASTY = "<!here> <@U123> <https://evil.example|click> *b* _i_ ~s~ `c` @channel &amp; http://evil.example\n> quote\u202e"


@pytest.mark.parametrize("place", ["business_unit", "cluster"])
def test_no_name_becomes_markup(place: str) -> None:
    changed = {"business_unit": NASTY} if place == "business_unit" else {"cluster": NASTY}
    body = message(replace(NOTIFICATION, **changed))  # type: ignore[arg-type]  # one field of a known type

    texts = [body["text"], *(text["text"] for block in body["blocks"] for text in _texts(block))]
    for text in texts:
        assert "<" not in text
        assert ">" not in text
        assert "\u202e" not in text
    assert "\n" not in body["text"]
    for markup in ("@channel", "http://", "*b*", "_i_", "~s~", "`c`"):
        assert markup not in body["text"]
    assert {text["type"] for block in body["blocks"] for text in _texts(block)} == {"plain_text"}


def test_sizes_stay_within_slacks_limits() -> None:
    body = message(replace(NOTIFICATION, business_unit="&" * 5_000, cluster="c" * 100), "https://costs.example.com")

    assert len(body["blocks"]) <= 50
    for block in body["blocks"]:
        limit = {"header": 150, "section": 2_000, "context": 3_000}[block["type"]]
        assert all(len(text["text"]) <= limit for text in _texts(block))
        assert len(block.get("fields", [])) <= 10


def test_a_link_only_where_the_address_is_public() -> None:
    assert "http" not in json.dumps(message(NOTIFICATION))

    body = json.dumps(message(replace(NOTIFICATION, cluster="a&b|c>d"), "https://costs.example.com/"))
    assert "<https://costs.example.com/v1/costs?start=2026-11-19T09%3A00%3A00Z&amp;" in body
    assert "cluster=a%26b%7Cc%3Ed|Open the report>" in body


def _texts(block: dict[str, Any]) -> list[dict[str, Any]]:
    return [*block.get("fields", []), *block.get("elements", []), *([block["text"]] if "text" in block else [])]
