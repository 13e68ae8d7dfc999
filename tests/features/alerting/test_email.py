"""Alert emails through SNS (moto's server, over HTTP) to a queue that is read back."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import boto3
import pytest
import requests
from botocore.config import Config
from moto.server import ThreadedMotoServer

from gpucost.core.errors import SourceError
from gpucost.features.alerting.notifiers.email import MAX_SUBJECT_LENGTH, EmailNotifier, email_body, email_subject
from tests.features.alerting.sample_notifications import notification

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

NOTIFICATION = notification(
    event="resolved",
    figures={
        "waste_usd_per_hour": Decimal("3.5"),
        "allocated_usd_per_hour": Decimal(100),
        "waste_percent": Decimal("3.5"),
    },
    workloads=(),
)


class Mailbox:
    """A topic with a queue behind it."""

    def __init__(self, endpoint: str) -> None:
        self.sns: SNSClient = _client("sns", endpoint)
        self._sqs: SQSClient = _client("sqs", endpoint)
        self.topic = self.sns.create_topic(Name="email")["TopicArn"]
        self._queue = self._sqs.create_queue(QueueName="mailbox")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        self.sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=arn)

    def read(self) -> dict[str, str]:
        (message,) = self._sqs.receive_message(QueueUrl=self._queue)["Messages"]
        envelope: dict[str, str] = json.loads(message["Body"])
        return envelope


def _client(service: str, endpoint: str):  # type: ignore[no-untyped-def]  # boto3's overloads need literal names
    return boto3.client(
        service,  # type: ignore[call-overload]  # as above
        endpoint_url=endpoint,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5),
    )


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    requests.post(f"http://{host}:{port}/moto-api/reset", timeout=5)  # its state is the process's
    yield Mailbox(f"http://{host}:{port}")
    server.stop()


def test_email_has_subject_summary_fields_and_link(mailbox: Mailbox) -> None:
    EmailNotifier(mailbox.topic, client=lambda: mailbox.sns, public_url="https://costs.example.com").send(
        [NOTIFICATION]
    )

    mail = mailbox.read()
    assert mail["Subject"] == "GPU waste alert resolved: research in demo"
    assert "research in cluster demo is below its waste threshold again: $3.50 per hour" in mail["Message"]
    assert "Resolved in the hour: 2026-11-19T10:00:00Z" in mail["Message"]
    assert "Report: https://costs.example.com/#/unit/research?start=2026-11-19T09%3A00%3A00Z" in mail["Message"]


def test_amounts_are_in_the_currency_of_the_settings() -> None:
    mail = email_body([notification(currency="EUR"), notification("budget", note="the hour x was restated")])

    assert "research in cluster demo wastes 1,234.57 EUR per hour, 82.3% of the cost of its GPUs." in mail
    assert "Projected per month: 901,232.45 EUR" in mail
    assert "1. training/llm-7b (Job): wastes 90.50 EUR per hour" in mail
    assert "$" not in mail.partition("-" * 40)[0].replace("≥ $10", "")
    assert "has spent $8,200.00 of $10,000.00 this month (82.0%), projected: not available" in mail
    assert "Note: the hour x was restated." in mail


def test_names_cannot_add_lines(mailbox: Mailbox) -> None:
    evil = NOTIFICATION.subject._replace(business_unit="evil\nBcc: all@example.com\r\n<script>")
    EmailNotifier(mailbox.topic, client=lambda: mailbox.sns).send([replace(NOTIFICATION, subject=evil)])

    mail = mailbox.read()
    assert "\n" not in mail["Subject"]
    assert "\nBcc" not in mail["Message"]
    assert "http" not in mail["Message"]


@pytest.mark.parametrize("name", ["Zürich 研究", "x" * 300, "\n\x00tab\t", "=1+1"])
def test_subjects_are_short_and_ascii(name: str) -> None:
    line = email_subject([replace(NOTIFICATION, subject=NOTIFICATION.subject._replace(business_unit=name))])

    assert len(line) <= MAX_SUBJECT_LENGTH
    assert all(" " <= char <= "~" for char in line)


def test_missing_topic_and_failing_topic_are_reported(mailbox: Mailbox) -> None:
    with pytest.raises(SourceError, match="no email topic"):
        EmailNotifier("", client=lambda: mailbox.sns).send([NOTIFICATION])
    with pytest.raises(SourceError, match="refused the message: NotFound"):
        EmailNotifier(mailbox.topic + "-gone", client=lambda: mailbox.sns).send([NOTIFICATION])
    with pytest.raises(SourceError, match="could not be reached: connection refused"):
        EmailNotifier(mailbox.topic, client=lambda: _client("sns", "http://127.0.0.1:9")).send([NOTIFICATION])
