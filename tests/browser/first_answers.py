"""Answers repeated requests with the first real answer, for deployments whose data do not change.

A view sends up to ten requests, most tests open the same views, and each answer takes processor time of the function
and of DynamoDB Local.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from gpucost_devstack.http import Invoke, serving_api
from gpucost_devstack.prometheus import free_port

CLIENTS = {"host", "referer", "user-agent", "accept-language"}
"""Headers that may differ, because the API does not read them."""
HOPS = {"host", "connection", "transfer-encoding", "content-length"}
"""Headers of a connection."""


def first_answers(invoke: Invoke) -> Invoke:
    """Call the function once for each request: path, query, headers and caller. Errors are not kept."""
    answers: dict[str, Any] = {}
    lock = Lock()

    def answer(event: Mapping[str, Any]) -> Any:
        request = event["requestContext"]
        headers = {name: value for name, value in event["headers"].items() if name not in CLIENTS}
        method, parts = request["http"]["method"], (event["rawPath"], event["rawQueryString"], event.get("body"))
        key = json.dumps([method, parts, headers, request["authorizer"]], sort_keys=True)
        with lock:  # concurrent equal requests are one
            if key not in answers:
                got = invoke(event)
                if int(got["statusCode"]) >= 500:
                    return got
                answers[key] = got
            return answers[key]

    return answer


@contextmanager
def serving_first_answers(url: str) -> Iterator[str]:
    """A server in front of another one, which answers repeated requests itself. Yields its URL."""
    port, target = free_port(), urlsplit(url).netloc

    def ask(event: Mapping[str, Any]) -> Any:
        query = f"?{event['rawQueryString']}" if event["rawQueryString"] else ""
        request = event["requestContext"]["http"]
        headers = {name: value for name, value in event["headers"].items() if name not in HOPS}
        connection = HTTPConnection(target, timeout=60)
        try:
            connection.request(request["method"], request["path"] + query, headers=headers)
            got = connection.getresponse()
            kept = {name: value for name, value in got.getheaders() if name.lower() not in HOPS}
            body = base64.b64encode(got.read()).decode()
        finally:
            connection.close()
        return {"statusCode": got.status, "headers": kept, "body": body, "isBase64Encoded": True}

    with serving_api(first_answers(ask), ["GET /", "GET /{path+}"], port):
        yield f"http://127.0.0.1:{port}"
