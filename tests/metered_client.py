"""A DynamoDB client that records what it consumes."""

from collections.abc import Callable
from typing import Any


class MeteredClient:
    """The real client, which counts consumed units, refuses eventually consistent reads, and fails at a chosen call."""

    def __init__(self, client: Any, fail_at: int = 0) -> None:
        self._client = client
        self.calls: list[str] = []
        self.units: dict[str, float] = {}
        self._fail_at = fail_at

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self._fail_at:
                raise KeyboardInterrupt("killed")
            if name in {"get_item", "query"}:
                assert arguments.get("ConsistentRead") is True
                assert "IndexName" not in arguments
            answer = getattr(self._client, name)(**arguments, ReturnConsumedCapacity="TOTAL")
            capacity = answer.get("ConsumedCapacity", [])
            for consumed in capacity if isinstance(capacity, list) else [capacity]:
                self.units[name] = self.units.get(name, 0.0) + consumed["CapacityUnits"]
            return answer

        return call
