"""Starts the services around the product. Only this module of the golden answers imports the repository's code.

Checking needs the template's table, queues and topics in the embedded AWS, and DynamoDB Local. Recording needs a real
Prometheus and the simulated fleets, too. When these move, their new places are named here and nowhere else.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from samtranslator.yaml_helper import yaml_parse

from gpucost_devstack.aws import client_environment, create_stack, local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.template import REPOSITORY, TEMPLATE

__all__ = ["REPOSITORY", "Deployed", "client", "client_environment", "deploy", "running_dynamodb"]

STACK = "golden"


class Deployed(NamedTuple):
    """The deployed template.

    Attributes:
        outputs: of the stack, by name.
        environments: variables of each function, by its folder.
    """

    outputs: dict[str, str]
    environments: dict[str, dict[str, str]]


def deploy(aws: str, dynamodb: str, api_url: str, parameters: Mapping[str, str]) -> Deployed:
    """Create the template's table, queues, topics and bucket. The command line finds them as `--stack golden`."""
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
    client("cloudformation", aws).create_stack(StackName=STACK, TemplateBody=json.dumps(document))
    return Deployed(
        dict(stack.outputs), {folders[name]: dict(variables) for name, variables in stack.environments.items()}
    )


def client(service: str, endpoint: str) -> Any:
    """A boto3 client of the embedded AWS."""
    return local_client(service, endpoint)


@contextmanager
def running_prometheus(folder: Path) -> Iterator[str]:
    """A real Prometheus over the samples of a folder's OpenMetrics files. Yields its URL."""
    from gpucost_devstack.prometheus import running_prometheus as running

    with running(sorted(folder.glob("*.om"))) as url:
        yield url


def write_metrics(fleets: Mapping[datetime, Sequence[Any]], folder: Path, days: int = 400) -> None:
    """Write the samples of simulated fleets, by the hour from which their minutes count.

    Args:
        fleets: clusters by their base.
        folder: where OpenMetrics files are written, in the order in which they are to be loaded.
        days: how many a file holds: promtool reads a file once for each day in it.
    """
    from gpucost_devstack.fleet import openmetrics
    from gpucost_devstack.fleet.series import SimulatedSeries

    base = min(fleets)
    all_series: list[tuple[str, SimulatedSeries]] = []
    for start, scenarios in fleets.items():
        shift = round((start - base).total_seconds() * 1000)
        for scenario in scenarios:
            for series in openmetrics.series(scenario):
                samples = series.samples if not shift else [(at + shift, value) for at, value in series.samples]
                all_series.append((scenario.name, SimulatedSeries(series.metric, series.labels, samples)))
    first = min(series.samples[0][0] for _, series in all_series if series.samples)
    last = max(series.samples[-1][0] for _, series in all_series if series.samples)
    length = days * 86_400_000
    for number, begin in enumerate(range(first - first % length, last + 1, length)):
        part = []
        for cluster, series in all_series:
            times = [at for at, _ in series.samples]
            samples = series.samples[bisect_left(times, begin) : bisect_left(times, begin + length)]
            if samples:
                part.append((cluster, SimulatedSeries(series.metric, series.labels, samples)))
        openmetrics.write_series(part, base, folder / f"{number:03}.om")
