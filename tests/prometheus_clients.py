"""Prometheus clients that a test hands in: without waits between attempts, or with a record of their queries."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gpucost.sources.prometheus.client import PrometheusClient, QueryResponse

PrometheusClients = Callable[..., PrometheusClient]
client_without_waits = partial(PrometheusClient, sleep=lambda _seconds: None)


class SentQuery(NamedTuple):
    """The path and the form of a query."""

    path: str
    form: dict[str, str]


def recording_client(sent: list[SentQuery]) -> PrometheusClients:
    """A client class that appends each query to a list before it is sent."""

    class RecordingClient(PrometheusClient):
        def _send_query(self, path: str, form: Mapping[str, str]) -> QueryResponse:
            sent.append(SentQuery(path, dict(form)))
            return super()._send_query(path, form)

    return RecordingClient
