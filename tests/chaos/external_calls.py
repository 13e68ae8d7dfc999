"""The line between the product and the outside world: every call over it is counted, and any can be made to fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal
from uuid import uuid4

from botocore.exceptions import ClientError, ReadTimeoutError

from gpucost.core.errors import MetricsUnavailableError

Fault = Literal["killed before", "killed after", "timed out after", "sent twice", "throttled", "half taken"]
WRITES = {
    "put_item", "batch_write_item", "update_item", "delete_item", "send_message", "send_message_batch", "publish",
    "send", "transact_write_items",
}  # fmt: skip
"""Calls that change something outside: dying after one is another thing than dying before it."""
RESENT = WRITES - {"send"}
"""Those that botocore sends again by itself where the answer got lost; what its caller sees is the second answer."""


class KilledError(BaseException):
    """The function's sandbox is gone; nothing of the product's may catch it."""


@dataclass
class Outside:
    """Counts the calls of one run, and lets the planned ones fail.

    Attributes:
        calls: their names, in order: the first has number 1.
        plan: faults by number.
        rule: the fault of any call, by its name and arguments.
        before: what else happens before the call of a number.
    """

    calls: list[str] = field(default_factory=list)
    plan: dict[int, Fault] = field(default_factory=dict)
    rule: Callable[[str, Mapping[str, Any]], Fault | None] | None = None
    before: tuple[int, Callable[[], None]] | None = None
    _counting: Lock = field(default_factory=Lock, repr=False)

    def wrap(self, inner: Any) -> Any:
        """The same object, its calls led through here."""
        return _Wrapped(inner, self)

    def through(self, name: str, call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """One call."""
        with self._counting:  # queries are asked two at once
            self.calls.append(name)
            number = len(self.calls)
        if self.before is not None and self.before[0] == number:
            self.before[1]()
        fault = self.plan.get(number) or (self.rule(name, arguments) if self.rule else None)
        if fault == "killed before":
            raise KilledError
        if fault == "throttled" and name in {"observe", "ask"}:
            raise MetricsUnavailableError("answered 429, 4 times")
        if fault == "throttled":
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, name)
        if fault == "half taken" and name == "batch_write_item":
            return _half(call, arguments)
        if fault == "sent twice":
            if name == "transact_write_items":  # botocore gives both the same token, by which DynamoDB knows them
                arguments = {"ClientRequestToken": str(uuid4()), **arguments}
            call(**arguments)
        answer = call(**arguments)
        if fault == "killed after":
            raise KilledError
        if fault == "timed out after":
            raise ReadTimeoutError(endpoint_url="https://aws")
        return answer


class _Wrapped:
    def __init__(self, inner: Any, outside: Outside) -> None:
        self._inner, self._outside = inner, outside

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._inner, name)
        return lambda *given, **arguments: self._outside.through(
            name, (lambda **more: call(*given, **more)) if given else call, arguments
        )


def _half(call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """DynamoDB takes every other item and hands back the rest as unprocessed."""
    ((table, requests),) = arguments["RequestItems"].items()
    answer = call(RequestItems={table: requests[::2]})
    return {**answer, "UnprocessedItems": {table: requests[1::2]} if requests[1::2] else {}}
