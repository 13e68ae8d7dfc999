"""Evaluates alert rules and notifies receivers, when SNS reports a published hour, a tick, or alerts of AMP."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.messages import HourPublished, read_alert_input, read_external_alerts, wrap_external_message
from gpucost.runtime.observability import logger

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> None:
    """Handle the records of one SNS event. A message that cannot be read goes to the dead-letter queue.

    The topic decides what a message may be: whoever edits an alert manager's definition can publish any text there.
    """
    for record in event["Records"]:
        topic, body = record["Sns"]["TopicArn"], record["Sns"]["Message"]
        is_external = topic == container.environment.alerts_topic_arn
        try:
            if is_external:
                handle_amp_alerts(body, container)
            else:
                handle_internal_event(body, container)
        except InvalidMessageError as error:
            logger.error("message sent to the dead-letter queue", reason=str(error))
            letter = wrap_external_message(body, topic) if is_external else body
            container.bus.send_to_dead_letter_queue(letter, str(error))


def handle_internal_event(body: str, container: Container) -> None:
    """Handle a published hour or a tick.

    Raises:
        InvalidMessageError: it is neither.
    """
    message = read_alert_input(body, container.clock())
    logger.set_correlation_id(message.correlation_id)
    if isinstance(message, HourPublished):
        container.alert_service.handle_hour_published(message)
    else:
        container.alert_service.handle_tick(message)


def handle_amp_alerts(body: str, container: Container) -> None:
    """Handle the valid alerts of a message. The others go to the dead-letter queue.

    Raises:
        InvalidMessageError: it is no message of an alert manager.
    """
    checked = read_external_alerts(body, container.clock()).check(container.clock())
    logger.set_correlation_id(checked.valid.correlation_id)
    if checked.reasons:
        logger.error("alerts sent to the dead-letter queue", reasons=checked.reasons)
        container.bus.send_to_dead_letter_queue(checked.refused.model_dump_json(), "; ".join(checked.reasons))
    container.alert_service.handle_amp_alerts(checked.valid)
