"""EventBridge Scheduler (daily) and `gpucost recommendations run` → recommendations."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from gpucost.container import Container
from gpucost.core.errors import SourceError
from gpucost.runtime.messages import RecommendationsDue, read_event
from gpucost.runtime.observability import log_missing_settings, logger

CONTAINER = Container()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext, container: Container = CONTAINER) -> dict[str, Any]:
    """Review all clusters, or the requested one.

    Raises:
        InvalidMessageError: the event does not fit.
        SourceError: a cluster could not be reviewed; the others were. The call is retried, and then goes to the
            dead-letter queue.
    """
    due = read_event(RecommendationsDue, event, container.clock())
    result = container.review_service.review_clusters(due, lambda: context.get_remaining_time_in_millis() / 1000)
    if result is None:
        log_missing_settings()
        return {"reviewed": [], "clusters_left": 0}
    for review in result.reviewed:
        logger.info(
            "cluster reviewed",
            cluster=review.cluster,
            recommendations=len(review.recommendations),
            workloads=len(review.assessments),
        )
    for reason in result.failures:
        logger.error("a cluster could not be reviewed", reason=reason)
    if result.clusters_left:
        logger.warning(
            "the time was too short for all clusters; the next run starts with the others",
            clusters_left=result.clusters_left,
        )
    if result.failures:
        raise SourceError("; ".join(result.failures))
    reviewed = [
        {
            "cluster": review.cluster,
            "recommendations": len(review.recommendations),
            "workloads": len(review.assessments),
        }
        for review in result.reviewed
    ]
    return {"reviewed": reviewed, "clusters_left": result.clusters_left}
