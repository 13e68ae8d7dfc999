"""Errors of SQS and SNS."""

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber

from gpucost.core.errors import SourceError
from gpucost.runtime.messages import HoursDue, MessageBus
from gpucost_devstack.aws import local_client, running_aws

DUE = HoursDue(
    cluster="c",
    first_hour=datetime(2026, 11, 19, 10, tzinfo=UTC),
    hours=3,
    settings_version=1,
    origin="schedule",
    correlation_id="w",
)
ACCEPTED = {"Id": "0", "MessageId": "m", "MD5OfMessageBody": "x"}


@pytest.mark.parametrize("refusals", [1, 2, 3])
def test_refused_messages_are_sent_again_up_to_three_times(refusals: int) -> None:
    client = boto3.client("sqs", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
    bus = MessageBus(
        hours_queue_url="h",
        backfill_queue_url="b",
        dead_letter_queue_url="d",
        events_topic_arn="t",
        client=lambda _: client,
    )
    accepted = [ACCEPTED]
    refused = [{"Id": "1", "SenderFault": False, "Code": "InternalError"}]
    with Stubber(client) as stub:
        batch = [{"Id": entry_id, "MessageBody": DUE.model_dump_json()} for entry_id in ("0", "1")]
        for entries in [batch, batch[1:], batch[1:]][:refusals]:
            expected = {"QueueUrl": "h", "Entries": entries}
            stub.add_response("send_message_batch", {"Successful": accepted, "Failed": refused}, expected)
            accepted = []
        if refusals < 3:
            stub.add_response("send_message_batch", {"Successful": [{**ACCEPTED, "Id": "1"}], "Failed": []})
            bus.send_due([DUE, DUE])
        else:
            with pytest.raises(SourceError, match=r"did not accept 1 messages \(InternalError\)"):
                bus.send_due([DUE, DUE])
        stub.assert_no_pending_responses()


def test_backlog_counts_waiting_and_received_messages() -> None:
    with running_aws() as endpoint:
        sqs = local_client("sqs", endpoint)
        hours, backfill = (sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("hours", "backfill"))
        bus = MessageBus(
            hours_queue_url=hours,
            backfill_queue_url=backfill,
            dead_letter_queue_url="d",
            events_topic_arn="t",
            client=lambda _: sqs,
        )
        bus.send_due([DUE.model_copy(update={"origin": "backfill"})] * 12)
        (received,) = sqs.receive_message(QueueUrl=backfill, MaxNumberOfMessages=1)["Messages"]
        assert (bus.backlog("backfill"), bus.backlog("schedule")) == (12, 0)
        sqs.delete_message(QueueUrl=backfill, ReceiptHandle=received["ReceiptHandle"])
        assert bus.backlog("backfill") == 11
        sqs.delete_queue(QueueUrl=backfill)
        with pytest.raises(SourceError, match="could not count messages"):
            bus.backlog("backfill")
