"""EventBridge Scheduler, hourly and daily, and `gpucost prices refresh` → refresh the price book."""

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.runtime.messages import PricesDue, read_event
from gpucost.runtime.observability import log_missing_settings, logger, metrics

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, Any]:
    """Refresh what the event requests.

    Raises:
        InvalidMessageError: the event is invalid.
        SourceError: a source failed; the others are refreshed. The invocation is tried again, and finally ends in the
            dead-letter queue.
    """
    due = read_event(PricesDue, event, container.clock())
    result = container.prices_service.refresh(due)
    if result is None:
        log_missing_settings()
        return {"refreshed": {}}
    for refresh in result.refreshed:
        logger.info(
            "prices refreshed",
            source=refresh.source,
            prices=refresh.prices_changed,
            changes=refresh.past_prices_changed,
            unknown=refresh.unlisted_types,
            notes=refresh.notes,
            bytes_scanned=refresh.bytes_scanned,
        )
    for failure in result.failures:
        logger.error("prices could not be refreshed", reason=failure)
    metrics.add_metric("PricesChanged", MetricUnit.Count, sum(refresh.prices_changed for refresh in result.refreshed))
    metrics.add_metric(
        "PastPricesChanged", MetricUnit.Count, sum(refresh.past_prices_changed for refresh in result.refreshed)
    )
    metrics.add_metric("PriceSourcesFailed", MetricUnit.Count, len(result.failures))
    if result.failures:
        raise SourceError("; ".join(result.failures))
    return {"refreshed": {refresh.source: refresh.prices_changed for refresh in result.refreshed}}
