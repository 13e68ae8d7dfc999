"""Counts all external calls of the product, and lets any of them fail."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal
from uuid import uuid4

from botocore.exceptions import ClientError, ReadTimeoutError

from gpucost.core.errors import MetricsUnavailableError, SourceError

Fault = Literal["killed before", "killed after", "timed out after", "sent twice", "throttled", "half taken"]
WRITES = {
    "put_item",
    "batch_write_item",
    "update_item",
    "delete_item",
    "send_message",
    "send_message_batch",
    "publish",
    "send",
    "transact_write_items",
}
"""Calls with an effect. A kill after such a call differs from a kill before it."""
RESENT = WRITES - {"send"}
"""Calls that botocore retries by itself when the response is lost. Its caller sees the second response."""


class KilledError(BaseException):
    """The function's execution environment was killed. The product must not catch this."""


@dataclass
class ExternalCalls:
    """Counts the calls of a run, and lets the planned ones fail.

    Attributes:
        calls: names of the calls, in order. The first has number 1.
        first_calls: numbers of each invocation's first call.
        plan: faults by call number.
        rule: returns the fault of a call by its name and arguments.
        before: (call number, function that runs before that call).

    """

    calls: list[str] = field(default_factory=list)
    first_calls: set[int] = field(default_factory=set)
    plan: dict[int, Fault] = field(default_factory=dict)
    rule: Callable[[str, Mapping[str, Any]], Fault | None] | None = None
    before: tuple[int, Callable[[], None]] | None = None
    _counting: Lock = field(default_factory=Lock, repr=False)

    def begin(self) -> None:
        """Count an invocation of a function."""
        self.first_calls.add(len(self.calls) + 1)

    def wrap(self, inner: Any) -> Any:
        """An object whose calls are counted here."""
        return _Wrapped(inner, self)

    def call(self, name: str, call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Count and run a call, with its fault."""
        with self._counting:  # two queries may run at once
            self.calls.append(name)
            number = len(self.calls)
        if self.before is not None and self.before[0] == number:
            self.before[1]()
        fault = self.plan.get(number) or (self.rule(name, arguments) if self.rule else None)
        if fault == "killed before":
            raise KilledError
        if fault == "throttled" and name in {"observe", "ask"}:
            raise MetricsUnavailableError("answered 429, 4 times")
        if fault == "throttled" and name == "send":
            raise SourceError("the receiver answered 429")
        if fault == "throttled":
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, name)
        if fault == "half taken" and name == "batch_write_item":
            return _write_every_other(call, arguments)
        if fault == "sent twice":
            if name == "transact_write_items":  # botocore sends both with the same token
                arguments = {"ClientRequestToken": str(uuid4()), **arguments}
            call(**arguments)
        answer = call(**arguments)
        if fault == "killed after":
            raise KilledError
        if fault == "timed out after":
            raise ReadTimeoutError(endpoint_url="https://aws")
        return answer


class _Wrapped:
    def __init__(self, inner: Any, outside: ExternalCalls) -> None:
        self._inner, self._outside = inner, outside

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._inner, name)
        return lambda *positional, **arguments: self._outside.call(
            name, (lambda **more: call(*positional, **more)) if positional else call, arguments
        )


def _write_every_other(call: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Write every other item and return the rest as unprocessed."""
    ((table, requests),) = arguments["RequestItems"].items()
    answer = call(RequestItems={table: requests[::2]})
    return {**answer, "UnprocessedItems": {table: requests[1::2]} if requests[1::2] else {}}
