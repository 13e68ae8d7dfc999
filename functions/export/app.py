"""The export function: exports days as FOCUS rows to S3, daily (EventBridge Scheduler) or for `gpucost export`."""

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.runtime.messages import ExportDue, read_event
from gpucost.runtime.observability import log_missing_settings, logger, metrics

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, Any]:
    """Export the due days, or the requested ones.

    Raises:
        InvalidMessageError: the event is not valid.
        SourceError: a day could not be exported; the others are. After retries, the event is a dead letter.
    """
    message = read_event(ExportDue, event, container.clock())
    result = container.export_service.export(message, lambda: context.get_remaining_time_in_millis() / 1000)
    if result is None:
        log_missing_settings()
        return {"exported": [], "days_left": 0}
    for day in result.exported_days:
        logger.info(
            "day exported",
            cluster=day.cluster,
            day=f"{day.day:%Y-%m-%d}",
            version=day.export_version,
            status=day.status,
            rows=day.row_count,
            bytes=day.parquet_bytes,
        )
    for reason in result.expired_days:
        logger.warning("a day cannot be exported again", reason=reason)
    for failure in result.failures:
        logger.error("a day could not be exported", reason=failure)
    metrics.add_metric("ExportDaysLeft", MetricUnit.Count, result.days_left)
    if result.failures:
        raise SourceError("; ".join(result.failures))
    exported = [
        {"cluster": day.cluster, "day": f"{day.day:%Y-%m-%d}", "status": day.status, "rows": day.row_count}
        for day in result.exported_days
    ]
    return {"exported": exported, "days_left": result.days_left}
