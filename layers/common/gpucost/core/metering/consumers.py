"""Divides the tokens of servers among the consumers that a gateway in front of them counts.

A gateway knows who sent a request, and not which pod processed it. So the tokens of each of a model's pods are divided
as those of the model are at the gateway, each kind in its own proportion. What the gateway did not count has no
consumer: requests that bypass it. Small differences are ignored: a gateway counts tokens when their request ends, and
a prefill server generates a token of each request.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from gpucost.core.amounts import split
from gpucost.core.metering.inference_servers import CounterKind, ServedTokens

_MEASURES: Final[tuple[CounterKind, ...]] = ("generated", "requests", "prompt")
"""What shows which part of a server's tokens passed the gateway; the first that both count. Prompt tokens come last,
because both sides of a split of prefill and decode count them."""
_SIMILAR: Final[Mapping[CounterKind, tuple[CounterKind, ...]]] = {
    "prompt": ("prompt", "requests", "generated"),
    "generated": ("generated", "requests", "prompt"),
    "cached": ("cached", "prompt", "requests", "generated"),
    "requests": ("requests", "generated", "prompt"),
}
"""The gateway's counters by which a kind is divided; the first that counted anything."""
_IGNORED_PERCENT: Final = 2
"""How much less a gateway may count than the servers."""


def divide_among_consumers(served: Sequence[ServedTokens], passed: Iterable[ServedTokens]) -> list[ServedTokens]:
    """Divide the tokens of each server and model. The parts add up to them.

    Args:
        served: what servers processed.
        passed: what passed gateways, by consumer. A gateway's tokens are of the servers in its namespace; of all
            servers where no server there has the model.
    """
    namespaces_of_model: dict[str, set[str]] = {}
    for tokens in served:
        namespaces_of_model.setdefault(tokens.model, set()).add(tokens.namespace)
    passed_by_model: dict[tuple[str, str], list[ServedTokens]] = {}
    for tokens in passed:
        namespaces = namespaces_of_model.get(tokens.model, set())
        for namespace in {tokens.namespace} & namespaces or namespaces:
            passed_by_model.setdefault((namespace, tokens.model), []).append(tokens)
    served_by_model: dict[tuple[str, str], list[ServedTokens]] = {}
    for tokens in served:
        served_by_model.setdefault((tokens.namespace, tokens.model), []).append(tokens)
    divided: list[ServedTokens] = []
    for key, of_model in served_by_model.items():
        counted = passed_by_model.get(key)
        divided += of_model if not counted or not key[1] else _divide(of_model, counted)
    return sorted(divided, key=attrgetter("namespace", "pod", "server", "model", "consumer"))


def _divide(of_model: Sequence[ServedTokens], counted: Sequence[ServedTokens]) -> list[ServedTokens]:
    names = sorted({tokens.consumer for tokens in counted} | {""})  # "" comes first
    by_kind = {
        kind: [sum(_count(tokens, kind) for tokens in counted if tokens.consumer == name) for name in names]
        for kind in _SIMILAR
    }
    at_servers, at_gateway = _totals(of_model, by_kind)
    bypassed = at_servers - at_gateway
    if bypassed * 100 <= at_servers * _IGNORED_PERCENT:
        bypassed = 0
    divided = []
    for tokens in of_model:
        parts: dict[str, Sequence[int | None]] = {}
        for kind in _SIMILAR:
            count = getattr(tokens, kind)
            weights = next((by_kind[similar] for similar in _SIMILAR[kind] if any(by_kind[similar])), by_kind[kind])
            shares = [weight * at_gateway for weight in weights]
            shares[0] += sum(weights) * bypassed if any(shares) else 1
            parts[kind] = [None] * len(names) if count is None else split(count, shares)
        for index, name in enumerate(names):
            counts: dict[str, Any] = {kind: of_kind[index] for kind, of_kind in parts.items()}
            divided.append(replace(tokens, consumer=name, **counts))
    return divided


def _totals(of_model: Sequence[ServedTokens], by_kind: Mapping[CounterKind, Sequence[int]]) -> tuple[int, int]:
    """Return how much servers and gateways counted of the same."""
    for kind in _MEASURES:
        at_servers = sum(_count(tokens, kind) for tokens in of_model)
        if at_servers and any(by_kind[kind]):
            return at_servers, sum(by_kind[kind])
    return 0, 0


def _count(tokens: ServedTokens, kind: CounterKind) -> int:
    return getattr(tokens, kind) or 0
