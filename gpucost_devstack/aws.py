"""The embedded AWS: moto as a server, with the template's table, queues, topics and buckets."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpucost_devstack.iam.authorizer import ADMINISTRATOR, SECRET_KEY
from gpucost_devstack.iam.intrinsics import Resolver
from gpucost_devstack.template import REGION, TEMPLATE, transformed_template

STACK = "local"
ACCOUNT = "123456789012"
"""moto's account ID."""
EMULATED_TYPES = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::SNS::Topic"}
"""Resource types that moto creates. This package runs the functions, schedules and routes."""


def client_environment(endpoint: str, dynamodb: str = "", access_key: str = ADMINISTRATOR) -> dict[str, str]:
    """Environment variables that point AWS clients to the embedded AWS, and to DynamoDB Local for tables."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb or endpoint,
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
    }


@contextmanager
def running_aws() -> Iterator[str]:
    """Run moto's server on a free port. Yields its URL."""
    import requests
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise it logs a line per request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        try:
            yield url
        finally:
            requests.post(f"{url}/moto-api/reset", timeout=60)  # moto's state outlives its server
    finally:
        server.stop()


def has_messages(queue: str) -> bool:
    """Whether a message can be received from a queue, by its URL, of the AWS that runs in this process.

    It takes no request. Polling empty queues took a third of the processor time of a process with a deployment.
    """
    from moto.sqs.models import sqs_backends

    return bool(sqs_backends[ACCOUNT][REGION].queues[queue.rpartition("/")[2]].messages)


def local_client(service: str, endpoint: str, access_key: str = ADMINISTRATOR) -> Any:
    """A boto3 client of the embedded AWS."""
    import boto3
    from botocore.config import Config

    options = {
        "endpoint_url": endpoint,
        "aws_access_key_id": access_key,
        "aws_secret_access_key": SECRET_KEY,
        "region_name": REGION,
        "config": Config(user_agent="gpucost"),  # botocore would build one from a dozen parts twice per call
    }
    return boto3.client(service, **options)  # type: ignore[call-overload]  # any service


def create_stack(
    endpoint: str, api_url: str, parameters: Mapping[str, str], template_file: Path = TEMPLATE
) -> "Deployed":
    """Create the template's table, queues and topics, and resolve its outputs and every function's environment.

    moto's CloudFormation resolves them with the template's parameters and conditions.
    """
    template = transformed_template(template_file)
    kept = {name: body for name, body in template["Resources"].items() if body["Type"] in EMULATED_TYPES}
    functions = {
        name: body["Properties"]
        for name, body in template["Resources"].items()
        if body["Type"] == "AWS::Lambda::Function"
    }
    # moto does not create the API's URL, the functions that users invoke, and Athena's table.
    missing_in_moto = {
        "ApiUrl": api_url,
        "PricesFunctionName": f"{STACK}-PricesFunction-1",
        "ExportFunctionName": f"{STACK}-ExportFunction-1",
    }
    missing_in_moto["RecommendFunctionName"] = f"{STACK}-RecommendFunction-1"
    outputs = template["Outputs"] | {name: {"Value": value} for name, value in missing_in_moto.items()}
    del outputs["ExportTable"]
    variables: dict[str, tuple[str, str]] = {}
    for name, properties in functions.items():
        for number, (variable, value) in enumerate(properties["Environment"]["Variables"].items()):
            variables[f"{name}{number}"] = (name, variable)
            outputs[f"{name}{number}"] = {"Value": value}
    for condition in template["Conditions"]:
        outputs[f"Condition{condition}"] = {"Value": {"Fn::If": [condition, "true", "false"]}}
    reduced = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": template["Parameters"],
        "Conditions": template["Conditions"],
        "Resources": kept,
        "Outputs": outputs,
    }
    client = local_client("cloudformation", endpoint)
    client.create_stack(
        StackName=STACK,
        TemplateBody=json.dumps(reduced),
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()],
    )
    (stack,) = client.describe_stacks(StackName=STACK)["Stacks"]
    resolved = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    environments: dict[str, dict[str, str]] = {name: {} for name in functions}
    for key, (name, variable) in variables.items():
        environments[name][variable] = str(resolved.pop(key))
    conditions = {name: resolved.pop(f"Condition{name}") == "true" for name in template["Conditions"]}
    resources = client.describe_stack_resources(StackName=STACK)["StackResources"]
    # moto lists resources whose condition is false without a logical ID.
    physical = {
        resource["LogicalResourceId"]: resource["PhysicalResourceId"]
        for resource in resources
        if "LogicalResourceId" in resource
    }
    resolver = Resolver(template, parameters, physical, stack=STACK, account=ACCOUNT, region=REGION)
    return Deployed(template, resolved, environments, physical, conditions, resolver)


class Deployed:
    """A deployed stack: the transformed template and its resolved values.

    Attributes:
        template: the transformed template.
        outputs: the stack's outputs, as `describe-stacks` returns them.
        environments: environment variables by function.
        physical: queue URLs, topic ARNs and table names by logical name.
        conditions: the value of each condition.
        resolver: resolves the template's intrinsic functions.
    """

    def __init__(
        self,
        template: dict[str, Any],
        outputs: dict[str, str],
        environments: dict[str, dict[str, str]],
        physical: dict[str, str],
        conditions: dict[str, bool],
        resolver: Resolver,
    ) -> None:
        self.template = template
        self.outputs = outputs
        self.environments = environments
        self.physical = physical
        self.conditions = conditions
        self.resolver = resolver

    def resources(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Logical names and properties of the resources of one type whose condition is true."""
        for name, body in self.template["Resources"].items():
            if body["Type"] == kind and self.conditions.get(body.get("Condition", ""), True):
                yield name, body["Properties"]

    def role_of(self, function: str) -> str:
        """The ARN of a function's role."""
        return str(self.resolver.resolve(self.template["Resources"][function]["Properties"]["Role"]))
