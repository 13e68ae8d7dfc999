"""Evaluates alert rules and notifies receivers, when SNS reports a published hour, a tick, or alerts of AMP."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.messages import AlertTick, HourPublished, read_alert_input
from gpucost.runtime.observability import logger

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> None:
    """Handle the records of one SNS event. A message that cannot be read goes to the dead-letter queue."""
    for record in event["Records"]:
        body = record["Sns"]["Message"]
        try:
            message = read_alert_input(body)
        except InvalidMessageError as error:
            logger.error("message sent to the dead-letter queue", reason=str(error))
            container.bus.send_to_dead_letter_queue(body, str(error))
            continue
        logger.set_correlation_id(message.correlation_id)
        if isinstance(message, HourPublished):
            container.alert_service.handle_hour_published(message)
        elif isinstance(message, AlertTick):
            container.alert_service.handle_tick(message)
        else:
            container.alert_service.handle_amp_alerts(message)
