"""Slack over a real HTTP server that answers as Slack does."""

import html
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification, NotificationEvent
from gpucost.features.alerting.notification_text import report_link
from gpucost.features.alerting.notifiers.slack import SlackNotifier, slack_message
from gpucost.features.alerting.ports import RefusedMessageError
from gpucost.features.alerting.rule_kinds import RuleKind
from gpucost.features.alerting.rule_kinds.base import Subject, WastefulWorkload
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.template import REPOSITORY
from tests.features.alerting.fleet import Fleet, RecordingNotifier, pod, settings_with_rules
from tests.features.alerting.sample_notifications import SUBJECTS, notification
from tests.features.alerting.slack_limits import control_sequences, limit_violations, markup

NOTIFICATION = notification()


@dataclass
class Webhook:
    """Returns the prepared responses, then 200, and records requests."""

    url: str
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    delay: float = 0.0
    waits: list[float] = field(default_factory=list)

    def notifier(self, timeout: float = 5.0) -> SlackNotifier:
        return SlackNotifier("gpucost/slack", secret_value=lambda _: self.url, sleep=self.waits.append, timeout=timeout)


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


def test_message_has_summary_subject_figures_and_rule(webhook: Webhook) -> None:
    webhook.notifier().send([NOTIFICATION])

    (body,) = webhook.received
    assert body["text"] == (
        "GPU waste alert: research in cluster demo wastes $1,234.57 per hour, 82.3% of the cost of its GPUs"
    )
    shown = json.dumps(body["blocks"], ensure_ascii=False)
    fields = ("research", "demo", "$1,234.57 (82.3%)", "$901,232.45", "$1,500.00", "2026-11-19T09:00:00Z")
    for text in (
        *fields,
        "for 2 consecutive hours",
        "training/llm-7b (Job): wastes $90.50 per hour",
        "release unused GPUs",
    ):
        assert text in shown
    assert limit_violations(body) == []


def test_several_alerts_share_a_message(webhook: Webhook) -> None:
    webhook.notifier().send([NOTIFICATION, notification("idle-workload")])

    (body,) = webhook.received
    assert body["text"].startswith("2 GPU cost alerts: GPU waste alert: research in cluster demo wastes $1,234.57")
    assert "Idle GPU workload: llm-7b of research in cluster demo is idle: 8 GPUs at 0.3% utilization" in body["text"]
    assert [block["type"] for block in body["blocks"]].count("header") == 2


def test_retry_waits_as_long_as_slack_asks(webhook: Webhook) -> None:
    webhook.answers = [(429, {"Retry-After": "3"}, "")]

    webhook.notifier().send([NOTIFICATION])

    assert len(webhook.received) == 2
    assert webhook.waits == [3.0]


def test_server_errors_are_retried(webhook: Webhook) -> None:
    webhook.answers = [(500, {}, "oops"), (503, {}, "")]

    webhook.notifier().send([NOTIFICATION])

    assert len(webhook.received) == 3


@pytest.mark.parametrize(
    ("answers", "tries", "sentence"),
    [
        ([(500, {}, "")] * 3, 3, "answered HTTP 500"),
        ([(429, {"Retry-After": "3600"}, "")], 1, "asks to retry after 3600 s"),
        ([(429, {"Retry-After": "soon"}, "")] * 3, 3, "HTTP 429"),
        ([(400, {}, "invalid_payload")], 1, "refused the message: HTTP 400 invalid_payload"),
        ([(404, {}, "no_service")], 1, "no_service"),
        ([(302, {"Location": "http://127.0.0.1:9/"}, "")], 1, "HTTP 302"),
    ],
)
def test_error_message_does_not_contain_the_url(
    webhook: Webhook, answers: list[tuple[int, dict[str, str], str]], tries: int, sentence: str
) -> None:
    webhook.answers = list(answers)

    with pytest.raises((SourceError, RefusedMessageError), match=sentence) as failure:
        webhook.notifier().send([NOTIFICATION])

    assert len(webhook.received) == tries
    assert "topsecret" not in str(failure.value)


def test_timeout_is_retried_and_reported(webhook: Webhook) -> None:
    webhook.delay = 1.5

    with pytest.raises(SourceError, match="could not be reached") as failure:
        webhook.notifier(timeout=0.5).send([NOTIFICATION])

    assert len(webhook.received) == 3
    assert "topsecret" not in str(failure.value)


def test_connection_error_does_not_contain_the_url() -> None:
    notifier = SlackNotifier("gpucost/slack", secret_value=lambda _: "http://127.0.0.1:9/topsecret", sleep=print)

    with pytest.raises(SourceError, match="could not be reached") as failure:
        notifier.send([NOTIFICATION])

    assert "topsecret" not in str(failure.value)


@pytest.mark.parametrize("value", ["", "topsecret", "ftp://topsecret"])
def test_secret_without_url_is_rejected(value: str) -> None:
    with pytest.raises(SourceError, match="gpucost/slack does not contain a webhook's URL") as failure:
        SlackNotifier("gpucost/slack", secret_value=lambda _: value).send([NOTIFICATION])

    assert "topsecret" not in str(failure.value)


NASTY = "<!channel> <@U1> <https://a.io|b> *b* _i_ ~s~ `c` :tada: @channel &amp; http://a.io\n> q\u202e"


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("field_name", Subject._fields)
def test_names_cannot_mention_link_or_format(kind: RuleKind, field_name: str) -> None:
    """Slack reads mentions and links after < only (docs.slack.dev, formatting message text: escape &, < and >)."""
    workloads = (WastefulWorkload(NASTY, NASTY, NASTY, Decimal(1), Decimal(9)),)
    subject = SUBJECTS[kind]._replace(**{field_name: NASTY})
    alert = notification(kind, subject=subject, workloads=workloads, note=NASTY, rule=NASTY, threshold=NASTY)
    body = slack_message([alert], "https://costs.example.com/")

    (link,) = control_sequences(body)
    assert link.startswith("https://costs.example.com/#/")
    assert link.count("|") == 1
    assert link.endswith("|Open the report")
    assert markup(body) == []
    shown = [text["text"] for block in body["blocks"] for text in _texts(block)]
    assert "\u202e" not in "".join([body["text"], *shown])
    if field_name not in {"detail", "workload_kind"}:
        printable = NASTY.replace("\n", " ").replace("\u202e", " ")
        assert any(html.unescape(text).endswith(f"\n{printable}") for text in shown)


def test_parser_sees_mentions_links_and_formats() -> None:
    body = {"text": NASTY, "blocks": [{"type": "section", "text": {"type": "plain_text", "text": "<!here>"}}]}
    assert control_sequences(body) == ["!channel", "@U1", "https://a.io|b", "!here"]
    linked = [":tada:", "http://a", "@channel"]
    assert markup(body) == ["*b*", "_i_", "~s~", "`c`", ">", *linked]
    assert markup({**body, "mrkdwn": False}) == linked


LONG = Subject("c" * 100, *["&" * 5_000] * 6)


@pytest.mark.parametrize("kind", SUBJECTS)
@pytest.mark.parametrize("event", ["firing", "repeat", "resolved"])
def test_every_message_is_within_slacks_limits(kind: RuleKind, event: NotificationEvent) -> None:
    for subject in (SUBJECTS[kind], LONG):
        for url in ("", "https://costs.example.com"):
            workloads = [WastefulWorkload("<" * 300, ">" * 300, "&" * 300, Decimal(1), Decimal(10**12))] * 3
            long_notification = notification(kind, event, subject=subject, workloads=tuple(workloads), note="&" * 5000)
            full = slack_message([long_notification] * count_that_fits([long_notification] * 30, url), url)
            assert limit_violations(full) == []


def count_that_fits(notifications: list[Notification], url: str) -> int:
    return SlackNotifier("gpucost/slack", secret_value=str, public_url=url).batch_size(notifications)


@pytest.mark.parametrize("char", ["&", '"', "\\", "<", "ä", "🔴", "a"])
def test_one_alert_fits_whatever_its_names(char: str) -> None:
    workloads = [WastefulWorkload(char * 300, char * 300, char * 300, Decimal(1), Decimal(10**12))] * 3
    alert = notification(
        subject=Subject(*[char * 5_000] * 7), workloads=tuple(workloads), note=char * 5000, rule=char * 5000
    )
    body = slack_message([alert], "https://costs.example.com")
    assert limit_violations(body) == []
    assert not body["text"].endswith(("&", "&a", "&am", "&amp", "&l", "&lt"))


@pytest.mark.parametrize(("kind", "count"), [("waste", 9), ("idle-workload", 9), ("token-cost", 7)])
def test_message_has_as_many_alerts_as_slack_accepts(kind: RuleKind, count: int) -> None:
    """Ten alerts with their links, of 50 blocks, are refused as too long: msg_blocks_too_long."""
    alerts = [notification(kind)] * 12
    url = "https://costs.example.com"
    assert count_that_fits(alerts, url) == count
    assert limit_violations(slack_message(alerts[:count], url)) == []
    assert limit_violations(slack_message(alerts[: count + 1], url)) != []
    assert count_that_fits([notification("budget")] * 12, url) == 10


def test_alerts_that_do_not_fit_are_in_the_next_message(sqlite_table: SqliteTable, webhook: Webhook) -> None:
    fleet = Fleet(
        sqlite_table, settings_with_rules("rule: idle-workload, gpus: 1, utilization_percent: 10, for_hours: 1")
    )
    fleet.notifiers = {"email": cast(RecordingNotifier, webhook.notifier())}
    names = [f"{index:02}-{'x' * 180}" for index in range(12)]
    fleet.publish(0, *(pod(name=name, gpus=8, use="0") for name in names))
    fleet.close_hour(0)

    assert [limit_violations(body) for body in webhook.received] == [[]] * len(webhook.received)
    shown = [text["text"] for body in webhook.received for block in body["blocks"] for text in _texts(block)]
    assert [text for text in shown if "-xxx" in text] == [f"Deployment\n{name}" for name in names]
    assert len(webhook.received) == 2


def test_validator_reports_messages_that_slack_rejects() -> None:
    body = slack_message([NOTIFICATION])
    header = {"type": "header", "text": {"type": "mrkdwn", "text": "x" * 151}}
    fields = {"type": "section", "fields": [{"type": "plain_text", "text": "x" * 2001}] * 11}
    assert limit_violations({**body, "blocks": [header] * 51})
    assert len(limit_violations({**body, "blocks": [header, fields, {"type": "section"}]})) >= 5
    assert limit_violations({"blocks": body["blocks"]}) == ["no fallback text"]


LINKS = json.loads((REPOSITORY / "web" / "tests" / "notification-links.json").read_text())
"""Links to the page by kind of rule, with the views that the page reads from them (web/tests/route.test.ts)."""


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link["kind"])
def test_link_leads_to_the_view_of_the_subject_and_period(link: dict[str, Any]) -> None:
    if link["kind"] == "strange names":
        alert = notification(subject=Subject("x,y!z*", "a/b?ü &|>"))
    else:
        alert = notification(link["kind"])
    assert report_link(alert, "https://costs.example.com/") == f"https://costs.example.com/{link['fragment']}"


def test_every_kind_of_rule_has_a_link() -> None:
    assert {link["kind"] for link in LINKS} - {"strange names"} == set(SUBJECTS)


def test_message_has_link_only_with_public_url() -> None:
    assert "http" not in json.dumps(slack_message([NOTIFICATION]))

    body = json.dumps(
        slack_message([replace(NOTIFICATION, subject=Subject("a&b|c>d", "research"))], "https://costs.example.com/")
    )
    assert "<https://costs.example.com/#/unit/research?start=2026-11-19T09%3A00%3A00Z&amp;" in body
    assert "cluster=a%26b%7Cc%3Ed|Open the report>" in body


def _texts(block: dict[str, Any]) -> list[dict[str, Any]]:
    return [*block.get("fields", []), *block.get("elements", []), *([block["text"]] if "text" in block else [])]
