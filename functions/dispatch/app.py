"""EventBridge Scheduler, hourly → send the hours that are due, or whose prices changed."""

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.runtime.messages import ScheduledTick, read_event
from gpucost.runtime.observability import log_missing_settings, logger, metrics

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, int]:
    """Handle a tick of the schedule.

    Raises:
        InvalidMessageError: the schedule's input is invalid; the event goes to the dead-letter queue with the reason.
    """
    tick = read_event(ScheduledTick, event, container.clock())
    correlation_id = f"tick-{tick.scheduled_time:%Y-%m-%dT%H:%M}"
    logger.append_keys(correlation_id=correlation_id)
    result = container.dispatch_service.dispatch(tick, correlation_id)
    if result is None:
        log_missing_settings()
        return {"hours_sent": 0, "hours_to_restate": 0}
    for failure in result.failures:
        logger.error("a cluster could not be checked", reason=failure)
    for refusal in result.unreadable_settings:
        logger.error("newer settings are not in force", reason=refusal)
    metrics.add_metric("SettingsVersionsUnreadable", MetricUnit.Count, len(result.unreadable_settings))
    repriced = container.repricing_service.send_hours_to_restate(tick.scheduled_time, correlation_id)
    metrics.add_metric("HoursToRestate", MetricUnit.Count, repriced)
    metrics.add_metric("HoursSent", MetricUnit.Count, result.hours_sent)
    metrics.add_metric("HoursOverdue", MetricUnit.Count, result.hours_overdue)
    metrics.add_metric("ClustersFailed", MetricUnit.Count, len(result.failures))
    return {"hours_sent": result.hours_sent, "hours_to_restate": repriced}
