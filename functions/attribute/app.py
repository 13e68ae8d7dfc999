"""SQS `hours` and `backfill` → attribute cluster-hours, or rate them again, and publish them in the ledger."""

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import HoursDue, Origin, read_attribute_input
from gpucost.runtime.observability import logger, metrics, tally

if TYPE_CHECKING:
    from gpucost.pipeline.attribute import HourResult

LAST_TRIES = 3
"""The third of four deliveries: an invocation that ends without a word (time, memory) has happened twice."""

QUERIES_SHARE = 0.75
"""Of the function's time: what is left is for metering, and for writing the hours (docs/decisions/0062)."""

CONTAINER = Container()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


def handle_record(record: SQSRecord, lambda_context: LambdaContext, container: Container) -> None:
    """One message. What can never be handled goes to the dead letters with its reason; the rest is tried again."""
    try:
        message = read_attribute_input(record.body)
        logger.append_keys(correlation_id=message.correlation_id, cluster=message.cluster)
        if message.hours > 1 and int(record.attributes.approximate_receive_count) >= LAST_TRIES:
            logger.warning("sent on as single hours: one of them may be what this message fails with")
            container.bus.send_due(message.singles())
            return
        if isinstance(message, HoursDue):
            seconds = lambda_context.get_remaining_time_in_millis() / 1000
            results = container.attribute_service.attribute(message, Deadline(QUERIES_SHARE * seconds))
        else:
            results = container.restate_service.restate(message)
    except (InvalidInputError, NotFoundError) as error:
        logger.error("message refused", reason=str(error))
        container.bus.dead_letter(record.body, str(error))
        return
    finally:
        tell_spent()
    for result in results:
        tell_hour(result, message.origin)


def tell_spent() -> None:
    """What a message took: of the fleet as metrics, of its cluster in the log."""
    spent = tally.drain()
    if not spent:  # refused as it was read
        return
    logger.info("spent", extra={re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): spent[name] for name in spent})
    for name, amount in spent.items():
        metrics.add_metric(name, MetricUnit.Seconds if name.endswith("Seconds") else MetricUnit.Count, amount)


def tell_hour(result: "HourResult", origin: Origin) -> None:
    """What became of an hour, likewise."""
    manifest = result.manifest
    given_up = result.was_published and manifest.is_abandoned()
    lag = None
    if origin == "schedule" and manifest.status != "incomplete":
        lag = (manifest.published_at - manifest.hour - HOUR).total_seconds()
        metrics.add_metric("LagSeconds", MetricUnit.Seconds, lag)
    logger.info(
        "hour closed",
        hour=manifest.hour,
        status=manifest.status,
        version=manifest.version,
        coverage=manifest.coverage and float(manifest.coverage.allocation),
        lag_seconds=lag,
        lines=result.lines,
        published=result.was_published,
        notes=manifest.notes,
    )
    if given_up:
        logger.error("an hour is closed as incomplete", hour=manifest.hour, notes=manifest.notes)
    metrics.add_metric("HoursGivenUp", MetricUnit.Count, int(given_up))
    metrics.add_metric("HoursClosed", MetricUnit.Count, int(result.was_published))
    if manifest.coverage is not None:
        metrics.add_metric("AllocationCoverage", MetricUnit.NoUnit, float(manifest.coverage.allocation))
    metrics.add_metric("HoursIncomplete", MetricUnit.Count, int(manifest.status == "incomplete"))
    metrics.add_metric("LinesWritten", MetricUnit.Count, result.lines)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, Any]:
    """Handle a batch; answers which messages are to be delivered again."""
    return dict(process_partial_response(event, partial(handle_record, container=container), processor, context))
