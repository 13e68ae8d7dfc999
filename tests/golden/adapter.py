"""The only module of the golden answers that imports code of this repository: what starts the parts around it.

Checking needs the template's table, queues and topics in the embedded AWS, and DynamoDB Local. Recording needs a real
Prometheus and the simulated fleets, too. When these move, their new places are named here and nowhere else.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from samtranslator.yaml_helper import yaml_parse

from local.aws import create_stack, local_client
from local.dynamodb_local import create_table, running_dynamodb
from local.template import REGION, REPOSITORY, TEMPLATE

__all__ = ["REGION", "REPOSITORY", "Deployed", "client", "deploy", "running_dynamodb"]

STACK = "golden"


class Deployed(NamedTuple):
    """What the template became.

    Attributes:
        outputs: of the stack, by name.
        environments: variables of each function, by its folder.
    """

    outputs: dict[str, str]
    environments: dict[str, dict[str, str]]


def deploy(aws: str, dynamodb: str, api_url: str, parameters: Mapping[str, str]) -> Deployed:
    """Make the template's table, queues, topics and bucket; the command line finds them under `--stack golden`."""
    stack = create_stack(aws, api_url, parameters)
    create_table(client("dynamodb", dynamodb), stack.outputs["TableName"])
    resources = yaml_parse(TEMPLATE.read_text())["Resources"]
    folders = {
        name: body["Properties"]["CodeUri"].rstrip("/").rpartition("/")[2]
        for name, body in resources.items()
        if body["Type"] == "AWS::Serverless::Function"
    }
    outputs = {name: {"Value": value} for name, value in stack.outputs.items()}
    document = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}, "Outputs": outputs}
    client("cloudformation", aws).create_stack(StackName=STACK, TemplateBody=_json(document))
    return Deployed(dict(stack.outputs), {folders[name]: dict(own) for name, own in stack.environments.items()})


def client(service: str, endpoint: str) -> Any:
    """A boto3 client of the embedded AWS."""
    return local_client(service, endpoint)


@contextmanager
def running_prometheus(openmetrics: Path) -> Iterator[str]:
    """A real Prometheus over the samples of an OpenMetrics file; yields its address."""
    from local.prometheus import running_prometheus as running

    with running(openmetrics) as url:
        yield url


def write_metrics(fleets: Sequence[Any], base: datetime, path: Path, more: str = "") -> None:
    """What Prometheus would have scraped of simulated fleets, in an OpenMetrics file; `more` are lines of its own."""
    from local.fleet import openmetrics

    openmetrics.write(fleets, base, path)
    if more:
        text = path.read_text()
        path.write_text(text.replace("# EOF\n", f"{more}# EOF\n"))


def _json(document: object) -> str:
    import json

    return json.dumps(document)
