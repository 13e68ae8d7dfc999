"""Checks the permissions of AWS services that act for a deployment: Lambda, Scheduler, SNS, API Gateway, alarms."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucost_devstack.iam.authorizer import Authorizer
from gpucost_devstack.iam.calls import PermissionNeeded

if TYPE_CHECKING:
    from gpucost_devstack.aws import Deployed

Context = tuple[tuple[str, tuple[str, ...]], ...]


class AwsServicePermissions:
    """Checks the roles that services assume, and the policies of the resources that they use.

    Args:
        authorizer: evaluates the permissions.
        deployed: the deployment.

    Every method raises `AccessDeniedError` if AWS would deny the access.

    """

    def __init__(self, authorizer: Authorizer, deployed: "Deployed") -> None:
        self._authorizer = authorizer
        self._deployed = deployed
        self._resolver = deployed.resolver
        self._account = str(self._resolver.ref("AWS::AccountId"))

    def start_function(self, function: str) -> None:
        """Lambda assumes the function's role, and writes its log with it."""
        role = self._deployed.role_of(function)
        self._assume(role, "lambda.amazonaws.com")
        group = self._resolver.arn(self._properties(function)["LoggingConfig"]["LogGroup"]["Ref"])
        stream = f"{group}:log-stream:0"
        self._authorizer.require(
            role, [PermissionNeeded("logs:CreateLogStream", stream), PermissionNeeded("logs:PutLogEvents", stream)]
        )

    def poll_queue(self, function: str, queue: str) -> None:
        """Lambda polls a queue with the function's credentials."""
        self._authorizer.require(
            self._deployed.role_of(function), [PermissionNeeded("sqs:GetQueueAttributes", self._resolver.arn(queue))]
        )

    def invoke_by_schedule(self, schedule: Mapping[str, Any]) -> None:
        """Scheduler assumes the schedule's role and invokes the target."""
        role = self._resolver.resolve(schedule["Target"]["RoleArn"])
        region, group = self._resolver.ref("AWS::Region"), schedule.get("GroupName", "default")
        source_arn = f"arn:{self._resolver.partition}:scheduler:{region}:{self._account}:schedule-group/{group}"
        self._assume(role, "scheduler.amazonaws.com", ("aws:SourceArn", (source_arn,)))
        self._authorizer.require(
            role, [PermissionNeeded("lambda:InvokeFunction", self._resolver.resolve(schedule["Target"]["Arn"]))]
        )

    def invoke_by_topic(self, function: str, topic: str) -> None:
        """SNS invokes a function that subscribes."""
        self._invoke(function, "sns.amazonaws.com", self._resolver.arn(topic))

    def invoke_by_api(self, function: str, api: str, route: str) -> None:
        """API Gateway invokes a function for a route such as `GET /v1/costs`."""
        region, partition = self._resolver.ref("AWS::Region"), self._resolver.partition
        source_arn = (
            f"arn:{partition}:execute-api:{region}:{self._account}:{self._resolver.ref(api)}/*/{route.replace(' ', '')}"
        )
        self._invoke(function, "apigateway.amazonaws.com", source_arn)

    def dead_letter_of_schedule(self, schedule: Mapping[str, Any]) -> None:
        """Scheduler sends an event that it could not deliver to the schedule's dead-letter queue."""
        target = schedule["Target"]
        queue = self._resolver.resolve(target["DeadLetterConfig"]["Arn"])
        self._authorizer.require(
            self._resolver.resolve(target["RoleArn"]), [PermissionNeeded("sqs:SendMessage", queue)]
        )

    def dead_letter_of_subscription(self, subscription: Mapping[str, Any]) -> None:
        """SNS sends a message that it could not deliver to the subscription's dead-letter queue."""
        queue = self._resolver.resolve(subscription["RedrivePolicy"]["deadLetterTargetArn"])
        source_arn = self._resolver.resolve(subscription["TopicArn"])
        self._authorizer.require(
            "sns.amazonaws.com", [PermissionNeeded("sqs:SendMessage", queue, self._source_context(source_arn))]
        )

    def publish(self, service: str, topic: str, source_arn: str) -> None:
        """A service (`cloudwatch.amazonaws.com`, `aps.amazonaws.com`) publishes for a resource of this account."""
        self._authorizer.require(
            service, [PermissionNeeded("sns:Publish", self._resolver.arn(topic), self._source_context(source_arn))]
        )

    def _assume(self, role: str, service: str, *source: tuple[str, tuple[str, ...]]) -> None:
        context = (("aws:SourceAccount", (self._account,)), *source)
        self._authorizer.require(service, [PermissionNeeded("sts:AssumeRole", role, context)])

    def _invoke(self, function: str, service: str, source_arn: str) -> None:
        call = PermissionNeeded("lambda:InvokeFunction", self._resolver.arn(function), self._source_context(source_arn))
        self._authorizer.require(service, [call])

    def _source_context(self, arn: str) -> Context:
        return ("aws:SourceAccount", (self._account,)), ("aws:SourceArn", (arn,))

    def _properties(self, logical: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self._deployed.template["Resources"][logical]["Properties"]
        return properties
