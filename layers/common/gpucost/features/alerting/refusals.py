"""Messages that a receiver refuses for good, as Alertmanager classifies them (notify/util.go, Retrier.Check).

A status of 4xx says that the same message would be refused again, except 408 (timeout) and 429 (too many requests).
"""

import requests

from gpucost.core.errors import GpuCostError

_RETRIED = {requests.codes.request_timeout, requests.codes.too_many_requests}


class RefusedMessageError(GpuCostError):
    """A receiver refuses a message for good. It is not a `SourceError`, after which the same message is sent again."""


def is_refusal(status: int) -> bool:
    """Whether an HTTP status refuses a message for good."""
    return requests.codes.bad_request <= status < requests.codes.internal_server_error and status not in _RETRIED
