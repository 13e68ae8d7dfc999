"""Evaluates alert rules and notifies receivers, when SNS reports a published hour, a tick, or alerts of AMP."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.messages import HourPublished, UncheckedAlerts, read_alert_input
from gpucost.runtime.observability import logger

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> None:
    """Handle the records of one SNS event. A message that cannot be read goes to the dead-letter queue."""
    for record in event["Records"]:
        body = record["Sns"]["Message"]
        try:
            message = read_alert_input(body, container.clock())
        except InvalidMessageError as error:
            logger.error("message sent to the dead-letter queue", reason=str(error))
            container.bus.send_to_dead_letter_queue(body, str(error))
            continue
        if isinstance(message, UncheckedAlerts):
            handle_amp_alerts(message, container)
            continue
        logger.set_correlation_id(message.correlation_id)
        if isinstance(message, HourPublished):
            container.alert_service.handle_hour_published(message)
        else:
            container.alert_service.handle_tick(message)


def handle_amp_alerts(message: UncheckedAlerts, container: Container) -> None:
    """Handle the valid alerts of a message. The others go to the dead-letter queue."""
    checked = message.check(container.clock())
    logger.set_correlation_id(checked.valid.correlation_id)
    if checked.reasons:
        logger.error("alerts sent to the dead-letter queue", reasons=checked.reasons)
        container.bus.send_to_dead_letter_queue(checked.refused.model_dump_json(), "; ".join(checked.reasons))
    container.alert_service.handle_amp_alerts(checked.valid)
