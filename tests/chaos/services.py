"""The real services on which faults are tried."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpucost.core.hours import floor_day
from gpucost_devstack.aws import running_aws
from gpucost_devstack.dynamodb_local import running_dynamodb
from gpucost_devstack.prometheus import running_prometheus
from tests.chaos.simulated_deployment import Endpoints
from tests.system.timeline import HOUR as FIRST_SEEN
from tests.system.timeline import Timeline


def first_hour() -> datetime:
    """The first hour, three hours before the nearest midnight."""
    return floor_day(datetime.now(UTC) + timedelta(hours=12)) - timedelta(hours=3)


@contextmanager
def running_services() -> Iterator[Endpoints]:
    """DynamoDB Local and moto."""
    with running_dynamodb() as dynamodb, running_aws() as aws:
        yield Endpoints(dynamodb, aws)


@contextmanager
def running_metrics(folder: Path) -> Iterator[tuple[str, datetime]]:
    """Run a real Prometheus with one busy hour. Yields its URL and the hour."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p", namespace="research")
    timeline.pod("q", namespace="chat", end=95)
    timeline.device("0.4", exported_namespace="research", exported_pod="p")
    path = folder / "metrics.om"
    path.write_text(timeline.text())
    with running_prometheus(path) as url:
        yield url, FIRST_SEEN
