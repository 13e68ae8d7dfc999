"""An interruption cancels the queries that are under way, also while others are being started."""

import signal
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from gpucost.sources.prometheus.sharding import ShardedClient


class HangingClient:
    """Does not answer until it is canceled."""

    def __init__(self) -> None:
        self.started, self.canceled = Event(), Event()

    def cancel(self, _reason: str) -> None:
        self.canceled.set()


class Hanging(ShardedClient):
    def _evaluate(self, _name: str, _build: object, _ends: object) -> Any:
        client: Any = self._client
        client.started.set()
        assert client.canceled.wait(60), "the query is canceled"
        return []


class InterruptedBuilders(Mapping[str, Any]):
    """Ctrl-C arrives after the first query has begun, before the second is started."""

    def __init__(self, client: HangingClient) -> None:
        self._client = client

    def __getitem__(self, _name: str) -> Any:
        return None

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        yield "first"
        assert self._client.started.wait(60)
        signal.raise_signal(signal.SIGINT)
        yield "second"


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, and Python then leaves it ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("_interruptible")
def test_interruption_while_queries_are_started_cancels_those_under_way() -> None:
    client = HangingClient()
    unused: Any = None
    sharded = Hanging(client, unused, unused)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        sharded.query_hours(InterruptedBuilders(client), [datetime(2026, 11, 19, 10, tzinfo=UTC)])
    assert client.canceled.is_set()
