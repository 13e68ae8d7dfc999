"""SQS `hours` and `backfill` → attribute or restate cluster-hours, and publish them in the ledger."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import AttributionOrigin, HoursDue, read_attribute_input
from gpucost.runtime.observability import logger, metrics, tally

if TYPE_CHECKING:
    from gpucost.pipeline.attribute import HourResult

SPLIT_FROM_DELIVERY = 3
"""From the third of four deliveries on, messages are split: the invocation may have run out of time or memory."""

QUERIES_SHARE = 0.75
"""Share of the function's time for queries; the rest is for metering and writing the hours (docs/decisions/0062)."""

CONTAINER = Container()


def handle_record(record: Mapping[str, Any], lambda_context: LambdaContext, container: Container) -> None:
    """Handle a message. One that can never be handled goes to the dead-letter queue; other failures are tried again."""
    try:
        message = read_attribute_input(record["body"], container.clock())
        logger.append_keys(correlation_id=message.correlation_id, cluster=message.cluster)
        if message.hours > 1 and int(record["attributes"]["ApproximateReceiveCount"]) >= SPLIT_FROM_DELIVERY:
            logger.warning("sent again as single hours, because one of the hours may make the message fail")
            container.bus.send_due(message.split_by_hour())
            return
        if isinstance(message, HoursDue):
            seconds = lambda_context.get_remaining_time_in_millis() / 1000
            results = container.attribute_service.attribute(message, Deadline(QUERIES_SHARE * seconds))
        else:
            results = container.restate_service.restate(message)
    except (InvalidInputError, NotFoundError) as error:
        logger.error("message refused", reason=str(error))
        container.bus.send_to_dead_letter_queue(record["body"], str(error))
        return
    finally:
        log_usage()
    for result in results:
        log_hour(result, message.origin)


def log_usage() -> None:
    """Log what a message's handling used, by cluster, and add it to the fleet's metrics."""
    usage = tally.drain()
    if not usage:  # the message was refused when it was read
        return
    logger.info(
        "resources used", extra={re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): usage[name] for name in usage}
    )
    for name, amount in usage.items():
        metrics.add_metric(name, MetricUnit.Seconds if name.endswith("Seconds") else MetricUnit.Count, amount)


def log_hour(result: "HourResult", origin: AttributionOrigin) -> None:
    """Log the result of an hour, and add it to the metrics."""
    manifest = result.manifest
    is_abandoned = result.is_new_version and manifest.is_abandoned()
    lag = None
    if origin == "schedule" and manifest.status != "incomplete":
        lag = (manifest.published_at - manifest.hour - HOUR).total_seconds()
        metrics.add_metric("LagSeconds", MetricUnit.Seconds, lag)
    logger.info(
        "hour published",
        hour=manifest.hour,
        status=manifest.status,
        version=manifest.version,
        coverage=manifest.coverage and float(manifest.coverage.allocation),
        lag_seconds=lag,
        lines=result.line_count,
        published=result.is_new_version,
        notes=manifest.notes,
    )
    if is_abandoned:
        logger.error("an hour stays incomplete and is not tried again", hour=manifest.hour, notes=manifest.notes)
    metrics.add_metric("HoursGivenUp", MetricUnit.Count, int(is_abandoned))
    metrics.add_metric("HoursPublished", MetricUnit.Count, int(result.is_new_version))
    if manifest.coverage is not None:
        metrics.add_metric("AllocationCoverage", MetricUnit.NoUnit, float(manifest.coverage.allocation))
    metrics.add_metric("HoursIncomplete", MetricUnit.Count, int(manifest.status == "incomplete"))
    metrics.add_metric("LinesWritten", MetricUnit.Count, result.line_count)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, Any]:
    """Handle a batch, and return which messages must be delivered again.

    Powertools' batch processor does the same. It imports asyncio and every event source, which took a quarter of the
    time of all imports.
    """
    failures = []
    for record in event["Records"]:
        try:
            handle_record(record, context, container)
        except Exception:
            logger.exception("a message failed; SQS delivers it again")
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
