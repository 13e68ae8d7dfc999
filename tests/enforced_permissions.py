"""Clients with exactly a function's permissions from the template."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from gpucost_devstack.aws import ACCOUNT, STACK, local_client
from gpucost_devstack.iam.authorizer import Authorizer
from gpucost_devstack.iam.gateway import running_authorizing_proxy
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.iam.policies import policies_of
from gpucost_devstack.template import REGION, transformed_template

ANY_TABLE = {"ExistingTableName": "*"}
"""Extends the policies to every table, because each test has its own table."""


@dataclass(frozen=True)
class EnforcedAws:
    """The embedded AWS, as functions see it.

    Attributes:
        dynamodb: address of the engine.
        aws: address of all else; "" where a test needs nothing else.
        authorizer: decides.
        resolver: of the template.
    """

    dynamodb: str
    aws: str
    authorizer: Authorizer
    resolver: Resolver

    def access_key(self, function: str) -> str:
        """The access key ID of a function's role, by the function's logical name."""
        return self.authorizer.access_key(self.resolver.arn(f"{function}Role"))

    def client(self, service: str, function: str) -> Any:
        """A boto3 client with a function's permissions."""
        return local_client(service, self.dynamodb if service == "dynamodb" else self.aws, self.access_key(function))

    def administrator(self, *services: str) -> dict[str, Any]:
        """boto3 clients with all permissions."""
        addresses = {"dynamodb": self.dynamodb}
        return {service: local_client(service, addresses.get(service, self.aws)) for service in services}

    def environment(self, function: str, region: str = REGION) -> dict[str, str]:
        """Environment variables that give a process a function's permissions."""
        return {
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ACCESS_KEY_ID": self.access_key(function),
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": region,
        }


@contextmanager
def enforcing(
    dynamodb: str,
    aws: str = "",
    *,
    parameters: Mapping[str, str] = ANY_TABLE,
    physical: Mapping[str, str] | None = None,
    region: str = REGION,
) -> Iterator[EnforcedAws]:
    """Enforce the template's policies in front of the embedded AWS.

    Args:
        dynamodb: address of the engine.
        aws: address of moto's server.
        parameters: of the template.
        physical: what `Ref` gives for the queues and topics that a test made, by their logical names.
        region: of the deployment.

    Raises:
        AccessDeniedError: on leaving, where a function was denied something.
    """
    template = transformed_template()
    resolver = Resolver(template, parameters, physical or {}, stack=STACK, account=ACCOUNT, region=region)
    authorizer = Authorizer(policies_of(template, resolver))
    with ExitStack() as running:
        engine = running.enter_context(running_authorizing_proxy(dynamodb, authorizer))
        moto = running.enter_context(running_authorizing_proxy(aws, authorizer)) if aws else ""
        yield EnforcedAws(engine, moto, authorizer, resolver)
    authorizer.raise_denied()
