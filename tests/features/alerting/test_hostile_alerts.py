"""A thousand hostile messages of an alert manager, through the alert function, change no post of an honest receiver."""

import json
import random
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from functions.alert import app as function
from gpucost.core.hours import format_timestamp
from gpucost.features.alerting.notifiers.email import email_body, email_subject
from gpucost.features.alerting.notifiers.slack import slack_message
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier
from tests.functions.changed_documents import INPUTS, SEEDED, changed, seeds

TOPIC = "arn:aws:sns:eu-central-1:123456789012:EventsTopic"
NOW = START + timedelta(hours=3)
SETTINGS = """
clusters:
  - {name: demo, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: rogue, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 12}
alerts:
  receivers: [{type: email}, {type: slack, name: others, secret: gpucost/receivers/others}]
  rules:
    - {rule: external, name: honest, scope: {clusters: [demo]}, receivers: [email], repeat_hours: 2}
    - {rule: external, name: others, receivers: [others]}
"""
CONTEXT: Any = SimpleNamespace(
    function_name="alert",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:x:1:function:alert",
    aws_request_id="1",
)


def alert(cluster: str, name: str) -> dict[str, Any]:
    return {
        "status": "firing",
        "labels": {"alertname": name, "cluster": cluster, "gpucost": "true"},
        "annotations": {"summary": f"{name} of {cluster}"},
        "startsAt": format_timestamp(NOW),
    }


class PostingNotifier(RecordingNotifier):
    """Records what Slack and a mailbox would receive."""

    posts: list[bytes]

    def send(self, notifications: Any) -> None:
        super().send(notifications)
        address = "https://costs.example.com"
        message = json.dumps(slack_message(notifications, address))
        texts = (message, email_subject(notifications), email_body(notifications, address))
        self.posts.append("\n".join(texts).encode())


def hostile_bodies(rng: random.Random) -> list[str]:
    """Messages before and after the honest one, some of which are no alerts."""
    bodies = []
    for _ in range(2):
        body = json.dumps(changed(rng, {"kind": "amp-alerts", "alerts": [alert("rogue", str(rng.random()))] * 2}))
        tick = json.dumps({"kind": "tick", "scheduled_time": format_timestamp(NOW), "clusters": []})
        bodies.append(rng.choice((body, body, body[: rng.randrange(len(body))], tick)))
    return bodies


def posts(part: int, *, hostile: bool) -> tuple[list[bytes], Fleet]:
    """What the honest receiver gets while honest alerts fire, repeat and end, and the state in the end."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, SqliteTable(Path(folder)) as table:
        return _posts(Fleet(table, SETTINGS, now=NOW), part, hostile=hostile)


def _posts(fleet: Fleet, part: int, *, hostile: bool) -> tuple[list[bytes], Fleet]:
    honest = PostingNotifier()
    honest.posts = []
    fleet.notifiers = {"email": honest, "slack:gpucost/receivers/others": RecordingNotifier()}
    container: Any = SimpleNamespace(
        environment=SimpleNamespace(alerts_topic_arn=TOPIC),
        clock=lambda: fleet.now,
        alert_service=fleet.service(),
        bus=SimpleNamespace(send_to_dead_letter_queue=fleet.set_aside),
    )
    for number, rng in enumerate(seeds(part)):
        genuine = alert("demo", f"GpuDown{number % 25}") | ({"status": "resolved"} if number % 3 == 2 else {})
        before, after = hostile_bodies(rng)
        neighbors = [changed(rng, alert("rogue", "GpuDown")) for _ in range(3)]
        place = rng.randrange(4)
        alerts = [*neighbors[:place], genuine, *neighbors[place:]] if hostile else [genuine]
        body = json.dumps({"kind": "amp-alerts", "alerts": alerts})
        bodies = [before, body, after] if hostile else [body]
        records = [{"Sns": {"TopicArn": TOPIC, "Message": text}} for text in bodies]
        function.handler({"Records": records}, CONTEXT, container=container)
        if number % 50 == 49:
            fleet.tick(4 + number // 50)
    return honest.posts, fleet


@pytest.mark.tools  # seconds
@SEEDED
def test_honest_receiver_gets_the_same_bytes(part: int) -> None:
    expected, undisturbed = posts(part, hostile=False)
    received, attacked = posts(part, hostile=True)
    assert len(expected) > 0.4 * INPUTS
    assert received == expected
    assert undisturbed.letters == []
    assert len(attacked.letters) > 0.4 * INPUTS
    others = attacked.notifiers["slack:gpucost/receivers/others"].notifications
    assert len({notification.subject.detail for notification in others}) > 0.2 * INPUTS, (
        "hostile alerts are handled, too"
    )
