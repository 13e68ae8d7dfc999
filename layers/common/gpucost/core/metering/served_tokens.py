"""Tokens and requests that inference servers processed in an hour, from their counters.

A counter's increase over an hour is its last value in the hour minus its last value before the hour, so that the hours
of a server add up to its counter. Where the value at an edge of the hour is not known, the pod's tokens are unknown.

They are divided among the consumers that a gateway in front of the servers counts. A gateway knows who sent a request,
and not which pod processed it. So the tokens of each of a model's pods are divided as those of the model are at the
gateway, each kind in its own proportion. What the gateway did not count has no consumer: requests that bypass it. Small
differences are ignored: a gateway counts tokens when their request ends, and a prefill server generates a token of each
request.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from gpucost.core.amounts import split
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.inference_servers import (
    MAX_LENGTH,
    MAX_NAMES_OF_POD,
    OTHERS,
    CounterKind,
    ServedTokens,
    bounded_names,
)
from gpucost.core.metering.observations import LOOK_AROUND_MS, CounterSeries, ServerCounters
from gpucost.core.metering.usage import Holding

MAX_EDGE_GAP_MS = 300_000
"""How old a counter's value may be at an edge of the hour: Prometheus' look-back, as in the query of increases."""
MAX_COUNT = Decimal(10**15)
"""A larger increase in one hour is not plausible, and a counter above it is no longer exact."""
MAX_NOTES = 20
_pod_of_series = attrgetter("namespace", "pod")
_served_key_of_series = attrgetter("server", "model", "consumer")
_pod_of_holding = attrgetter("pod.namespace", "pod.pod")
_counter_of_process = attrgetter("server", "model", "consumer", "kind", "instance", "other_labels")
"""What copies of a series have in common."""
_PodName = tuple[str, str]
_ServedKey = tuple[str, str, str]
"""Server, model and consumer."""
_Counts = Mapping[_ServedKey, Mapping[CounterKind, int]]


def served_tokens(
    counters: ServerCounters, holdings: Iterable[Holding], window: IntervalMs
) -> tuple[tuple[ServedTokens, ...], list[str]]:
    """Return what the servers in pods with GPUs processed, in order of name, and notes on pods of which it is unknown.

    Args:
        counters: of all servers. Those of pods without GPUs are ignored.
        holdings: what pods held in the hour.
        window: the hour.
    """
    if not counters.series:
        return (), []
    by_pod: dict[_PodName, list[CounterSeries]] = {}
    for series in counters.series:
        by_pod.setdefault(_pod_of_series(series), []).append(series)
    lifetimes: dict[_PodName, list[IntervalMs]] = {}
    for holding in holdings:
        name = _pod_of_holding(holding)
        if name in by_pod:
            lifetimes.setdefault(name, []).append(holding.held)
    served: list[ServedTokens] = []
    notes: list[str] = []
    unknown: list[str] = []
    unnamed: list[str] = []
    for name in sorted(lifetimes):
        pod_reader = _PodCounters(by_pod[name], counters.scrapes, lifetimes[name], window)
        counts = pod_reader.counts()
        if counts is None:
            servers = sorted({series.server for series in by_pod[name]})
            served += [ServedTokens(*name, server, "") for server in servers]
            unknown.append(f"tokens of pod {'/'.join(name)} are unknown: {pod_reader.reason}")
            continue
        bounded_counts = _with_bounded_names(counts)
        if bounded_counts.keys() != counts.keys():
            unnamed.append("/".join(name))
        served += [
            ServedTokens(*name, server, model, **kinds, consumer=consumer)  # type: ignore[arg-type]
            for (server, model, consumer), kinds in sorted(bounded_counts.items())
        ]
    if unnamed:
        notes.append(
            f"tokens of some models or consumers of {len(unnamed)} pod(s), such as {unnamed[0]}, count together as "
            f"{OTHERS}: at most {MAX_NAMES_OF_POD} of a pod are named, with at most {MAX_LENGTH} characters"
        )
    notes += unknown[:MAX_NOTES]
    if len(unknown) > MAX_NOTES:
        notes.append(f"tokens of {len(unknown) - MAX_NOTES} further pods are unknown")
    if counters.of_gateways:
        passed, gateway_notes = _gateway_tokens(counters, window)
        served = divide_among_consumers(served, passed)
        notes += gateway_notes
    return tuple(served), notes


def _gateway_tokens(counters: ServerCounters, window: IntervalMs) -> tuple[list[ServedTokens], list[str]]:
    """Return what passed gateways, by their pod, model and consumer; nothing and a note if any pod's is unknown.

    A gateway's pod has no GPUs, so that its lifetime is unknown. It is that of its samples.
    """
    by_pod: dict[_PodName, list[CounterSeries]] = {}
    for series in counters.of_gateways:
        by_pod.setdefault(_pod_of_series(series), []).append(series)
    passed: list[ServedTokens] = []
    for name, of_pod in sorted(by_pod.items()):
        times = [time for series in of_pod for time, _ in series.samples or ()]
        lifetimes = [IntervalMs(min(times), max(times))] if times else []
        pod_reader = _PodCounters(of_pod, counters.scrapes, lifetimes, window)
        counts = pod_reader.counts()
        if counts is None:
            return [], [f"consumers of models are unknown: gateway {'/'.join(name)}: {pod_reader.reason}"]
        passed += [
            ServedTokens(*name, gateway, model, **kinds, consumer=consumer)  # type: ignore[arg-type]
            for (gateway, model, consumer), kinds in sorted(_with_bounded_names(counts).items())
        ]
    return passed, []


def _with_bounded_names(counts: _Counts) -> _Counts:
    """Return a pod's counts with bounded names. Counts under one name are added up, if all of them are known."""
    for position in (1, 2):  # model, consumer
        names = bounded_names(((key[position], sum(kinds.values())) for key, kinds in counts.items()), MAX_NAMES_OF_POD)
        if names is None:
            continue
        merged: dict[_ServedKey, list[Mapping[CounterKind, int]]] = {}
        for (server, model, consumer), kinds in counts.items():
            key = (server, names[model], consumer) if position == 1 else (server, model, names[consumer])
            merged.setdefault(key, []).append(kinds)
        counts = {
            key: {kind: sum(part[kind] for part in parts) for kind in parts[0] if all(kind in part for part in parts)}
            for key, parts in merged.items()
        }
    return counts


class _PodCounters:
    """The counters of all servers in one pod, or in several of the same name."""

    def __init__(
        self,
        series: Sequence[CounterSeries],
        scrapes: Mapping[str, Mapping[int, bool]],
        lifetimes: Sequence[IntervalMs],
        window: IntervalMs,
    ) -> None:
        self._series, self._lifetimes, self._window = series, lifetimes, window
        self.reason = ""
        self._scrapes: dict[str, dict[int, bool]] = {}
        for counter in series:
            if counter.samples is not None:
                target = counter.scrape_target
                of_target = self._scrapes.setdefault(target, {**scrapes.get(target, {})})
                of_target.update((time, True) for time, _ in counter.samples)

    def counts(self) -> dict[_ServedKey, dict[CounterKind, int]] | None:
        """Return the increase of each kind by server, model and consumer; None if any is unknown."""
        copies: dict[tuple[object, ...], list[CounterSeries]] = {}
        for series in self._series:  # several jobs, or replicas of Prometheus, may scrape the same process
            copies.setdefault(_counter_of_process(series), []).append(series)
        counts: dict[_ServedKey, dict[CounterKind, Fraction | int]] = {}
        has_samples = False
        for group in copies.values():
            if len(group) > 1:
                group.sort(key=lambda series: series.scrape_target)
            first = group[0]
            if first.samples is not None and not any(map(self._has_samples_in_hour, group)):
                if self._was_only_tried(group):
                    self.reason = "the server could not be scraped in the hour"
                    return None
                continue  # of a process that ended before the hour, or began after it
            has_samples = True
            for series in group:
                increase = self._increase(series)
                if increase is not None:
                    break
            else:
                return None
            kinds = counts.setdefault(_served_key_of_series(first), {})
            kinds[first.kind] = kinds.get(first.kind, 0) + increase
        if not has_samples:
            self.reason = "its counters have no samples in the hour"
            return None
        _add_counters_that_have_not_begun(counts)
        return {key: {kind: round(count) for kind, count in kinds.items()} for key, kinds in counts.items()}

    def _has_samples_in_hour(self, series: CounterSeries) -> bool:
        return any(self._window.contains(time) for time, _ in series.samples or ())

    def _was_only_tried(self, group: Sequence[CounterSeries]) -> bool:
        results = [
            success
            for target in {series.scrape_target for series in group}
            for time, success in self._scrapes[target].items()
            if self._window.contains(time)
        ]
        return bool(results) and not any(results)

    def _increase(self, series: CounterSeries) -> Fraction | int | None:
        if series.samples is None:
            increase = series.increase
            if increase is None or not increase.is_finite() or not 0 <= increase <= MAX_COUNT:
                self.reason = f"a counter of {series.server} has implausible values"
                return None
            numerator, denominator = increase.as_integer_ratio()
            return numerator if denominator == 1 else Fraction(numerator, denominator)
        if not all(reading.is_finite() and 0 <= reading <= MAX_COUNT for _, reading in series.samples):
            self.reason = f"a counter of {series.server} has implausible values"
            return None
        samples = sorted(series.samples)
        window = self._window
        inside = [sample for sample in samples if window.contains(sample[0])]
        before = next((sample for sample in reversed(samples) if sample[0] < window.start), None)
        after = next((sample for sample in samples if sample[0] >= window.end), None)
        scrapes = self._scrapes[series.scrape_target]
        (first_time, first), (last_time, last) = inside[0], inside[-1]
        if before is None:
            if first and not self._began(first_time, scrapes):
                self.reason = f"its counters of {series.server} were not scraped before, and it ran already"
                return None
            reading = Decimal(0)
        else:
            reading = before[1]
            if window.start - before[0] > MAX_EDGE_GAP_MS and first != reading:
                self.reason = f"its counters of {series.server} were not scraped around the hour's start"
                return None
        if not self._ended(last_time, scrapes) and (after is None or after[1] != last):
            self.reason = f"its counters of {series.server} were not scraped around the hour's end"
            return None
        total = Fraction(0)
        for _, next_reading in inside:
            total += Fraction(next_reading - reading if next_reading >= reading else next_reading)
            reading = next_reading
        return total

    def _began(self, first_time: int, scrapes: Mapping[int, bool]) -> bool:
        """Whether a counter began at 0 in the hour: with its pod, between two scrapes, or with a new target."""
        earlier = max((time for time, success in scrapes.items() if success and time < first_time), default=None)
        if earlier is not None:
            return first_time - earlier <= MAX_EDGE_GAP_MS
        # A target that was tried all the time that was read, in vain, may have run for longer.
        if min(scrapes) < first_time and min(scrapes) > self._window.start - LOOK_AROUND_MS + MAX_EDGE_GAP_MS:
            return True
        starts = [held.start for held in self._lifetimes if held.start <= first_time]
        return bool(starts) and max(starts) > self._window.start

    def _ended(self, last_time: int, scrapes: Mapping[int, bool]) -> bool:
        """Whether a counter did not increase in the hour after its last sample: it was at the end, or its pod ended."""
        if self._window.end - last_time <= MAX_EDGE_GAP_MS:
            return True
        if any(success and last_time < time < self._window.end for time, success in scrapes.items()):
            return True  # the process exposes the series no longer
        ends = [held.end for held in self._lifetimes if held.start <= last_time]
        return bool(ends) and max(ends) <= last_time + MAX_EDGE_GAP_MS


def _add_counters_that_have_not_begun(counts: dict[_ServedKey, dict[CounterKind, Fraction | int]]) -> None:
    """Add zeros of consumers: their counters begin one by one, with what they use first."""
    if not any(consumer for _, _, consumer in counts):
        return
    kinds_of_server: dict[str, set[CounterKind]] = {}
    for (server, _, _), kinds in counts.items():
        kinds_of_server.setdefault(server, set()).update(kinds)
    for (server, _, _), kinds in counts.items():
        for kind in kinds_of_server[server] - kinds.keys():
            kinds[kind] = 0


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
