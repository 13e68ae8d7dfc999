"""Costs by model: each line's costs go to the models that its pods served, by weighted tokens.

Pods of one server share its tokens: those of a workload in which only some pods have counters, as of tensor- or
pipeline-parallel servers, and the pods of a LeaderWorkerSet's group. The rows of an hour add up to its lines.

Where a server's counters name who sent the requests, each model's costs are split further among these consumers. The
business unit of a row stays that of its pods.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from operator import attrgetter
from typing import Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import SCALE, Costs, quantize, split, to_decimal
from gpucost.core.hour_record import Line, ModelHour, ModelKey
from gpucost.core.metering.inference_servers import MAX_NAMES_OF_UNIT, OTHERS, ServedTokens, bounded_names

Side = Literal["prefill", "decode", ""]
"""The side of a split of prefill and decode; "" of servers that do both."""
_PodName = tuple[str, str]
"""Namespace and name."""
_Workload = tuple[str, str, str]
"""Namespace, kind and name."""
_pod_of = attrgetter("namespace", "pod")
_workload_of = attrgetter("namespace", "workload_kind", "workload")
_part_of_key = attrgetter("business_unit", "namespace", "workload_kind", "workload", "gpu_model")
"""Fields of a line with which a `ModelKey` begins."""


class TokenWeights(Struct, frozen=True):
    """What a token costs relative to others."""

    prompt: Decimal = Decimal(1)
    """Prompt tokens that are not from a cache."""
    generated: Decimal = Decimal(5)
    cached: Decimal = Decimal("0.1")

    def weigh(self, served: ServedTokens) -> Fraction:
        """Return the weighted tokens; 0 if they are unknown."""
        prompt, cached = served.prompt or 0, min(served.cached or 0, served.prompt or 0)
        return (
            Fraction(self.prompt) * (prompt - cached)
            + Fraction(self.cached) * cached
            + Fraction(self.generated) * (served.generated or 0)
        )


class InferenceRules(Struct, frozen=True):
    """The settings by which costs go to models.

    Of a model with prefill and decode servers in one namespace, both count its prompt tokens and requests. Prompt and
    generated tokens and requests then count on one side only; cached tokens on the prefill side, because the decode
    side counts as cached what it receives.
    """

    weights: TokenWeights = field(default_factory=TokenWeights)
    prefill_workloads: tuple[str, ...] = ("*-prefill",)
    """Shell patterns of the names of workloads."""
    decode_workloads: tuple[str, ...] = ("*-decode",)
    prompt_side: Literal["prefill", "decode"] = "decode"
    """The side that counts prompt tokens. Generated tokens and requests count on the decode side."""

    def side_of(self, workload: str) -> Side:
        """Return the side of a split to which a workload belongs."""
        if any(fnmatchcase(workload, pattern) for pattern in self.prefill_workloads):
            return "prefill"
        return "decode" if any(fnmatchcase(workload, pattern) for pattern in self.decode_workloads) else ""


_COUNTS = ("prompt", "generated", "cached", "requests")


def costs_by_model(
    lines: Sequence[Line],
    served: Iterable[ServedTokens],
    rules: InferenceRules,
    unit_of_consumer: Callable[[str], str] = str,
) -> list[ModelHour]:
    """Return the costs and tokens of an hour by model, in order of their keys. Their costs add up to the lines'.

    Args:
        lines: all lines of the hour.
        served: what the servers in the lines' pods processed; nothing is returned if there is none.
        rules: the settings.
        unit_of_consumer: returns the business unit of a consumer, who is named as by the servers.
    """
    served_by_pod: dict[_PodName, list[ServedTokens]] = {}
    for tokens in _without_unused(served):
        served_by_pod.setdefault((tokens.namespace, tokens.pod), []).append(tokens)
    if not served_by_pod:
        return []
    groups, other_lines = _groups(lines, served_by_pod)
    other_costs: dict[tuple[str, ...], list[Costs]] = {}
    for key, costs in zip(map(_part_of_key, other_lines), map(Line.costs, other_lines), strict=True):
        other_costs.setdefault(key, []).append(costs)
    sides = [_side(group, rules) for group in groups]
    split_models = _models_on_both_sides(groups, sides)
    rows: dict[tuple[ModelKey, bool, bool], list[ModelHour]] = {}
    for group, side in zip(groups, sides, strict=True):
        for hour in _group_rows(group, rules, side, split_models, unit_of_consumer):
            rows.setdefault((hour.key, hour.prompt_tokens is not None, hour.requests is not None), []).append(hour)
    of_servers = (_total(rows[key]) for key in sorted(rows))
    others = (ModelHour(ModelKey._make((*key, "", "", "")), Costs.total(costs)) for key, costs in other_costs.items())
    return sorted([*of_servers, *others], key=attrgetter("key"))


def with_bounded_names(hours: Sequence[ModelHour]) -> tuple[list[ModelHour], list[str]]:
    """Return an hour's rows with bounded names of each unit's models and consumers; and notes about others."""
    units: dict[str, list[ModelHour]] = {}
    for hour in hours:
        units.setdefault(hour.key.business_unit, []).append(hour)
    rows: list[ModelHour] = []
    notes = []
    for unit, of_unit in units.items():
        renamed = of_unit
        for dimension in ("model", "consumer"):
            weights = (
                (getattr(hour.key, dimension), hour.costs.allocated_usd or hour.costs.allocated_gpu_hours)
                for hour in renamed
            )
            names = bounded_names(weights, MAX_NAMES_OF_UNIT)
            if names is not None:
                count = sum(kept == OTHERS for kept in names.values())
                notes.append(f"{count} {dimension}s of business unit {unit} count together as {OTHERS}")
                renamed = [
                    hour._replace(key=hour.key._replace(**{dimension: names[getattr(hour.key, dimension)]}))
                    for hour in renamed
                ]
        rows += of_unit if renamed is of_unit else condensed(renamed, by_key=True)
    return sorted(rows, key=attrgetter("key")), notes


def condensed(hours: Iterable[ModelHour], *, by_key: bool = False) -> list[ModelHour]:
    """Return fewer rows with the same sums: of each key, or of all, those of which the same is known."""
    groups: dict[tuple[object, ...], list[ModelHour]] = {}
    for hour in hours:
        unknown = (hour.prompt_tokens is None, hour.requests is None, bool(hour.costs.unpriced_gpu_hours))
        groups.setdefault((hour.key if by_key else None, *unknown), []).append(hour)
    return [_total(of_group) for of_group in groups.values()]


def _without_unused(served: Iterable[ServedTokens]) -> Iterable[ServedTokens]:
    """Leave out consumers without requests in the hour. A model without any was used by none, and waits."""
    served = [*served]
    if not any(tokens.consumer for tokens in served):
        return served
    by_model: dict[tuple[str, ...], list[ServedTokens]] = {}
    for tokens in served:
        by_model.setdefault((tokens.namespace, tokens.pod, tokens.server, tokens.model), []).append(tokens)
    return [tokens for of_model in by_model.values() for tokens in _used(of_model)]


def _used(of_model: Sequence[ServedTokens]) -> Sequence[ServedTokens]:
    used = [tokens for tokens in of_model if any(getattr(tokens, kind) for kind in _COUNTS)]
    return used or [replace(of_model[0], consumer="")]


class _Group(NamedTuple):
    """The pods of one server, with what they processed together."""

    lines: list[Line]
    served: list[ServedTokens]


def _groups(
    lines: Sequence[Line], served_by_pod: Mapping[_PodName, Sequence[ServedTokens]]
) -> tuple[list[_Group], list[Line]]:
    """Return the groups of lines that share tokens, and the lines without an inference server."""
    pods, workloads = [*map(_pod_of, lines)], [*map(_workload_of, lines)]
    workload_of_pod = dict(zip(pods, workloads, strict=True))
    workload_of_server: dict[tuple[str, ...], _Workload] = {
        pod: workload_of_pod[pod] for pod in served_by_pod if pod in workload_of_pod
    }
    workloads_of_servers = {*workload_of_server.values()}
    sharing: set[_Workload] = set()
    members: list[tuple[Line, _PodName | _Workload]] = []
    other_lines: list[Line] = []
    for line, pod, workload in zip(lines, pods, workloads, strict=True):
        if pod in workload_of_server:
            members.append((line, pod))
        # The workers of a LeaderWorkerSet's group are a StatefulSet with the name of the group's leader pod
        # (kubernetes-sigs/lws 0.10 pkg/controllers/pod_controller.go).
        elif line.workload_kind == "StatefulSet" and (line.namespace, line.workload) in workload_of_server:
            members.append((line, (line.namespace, line.workload)))
        elif workload in workloads_of_servers:
            sharing.add(workload)
            members.append((line, workload))
        else:
            other_lines.append(line)
    groups: dict[_PodName | _Workload, _Group] = {}
    added: set[_PodName] = set()
    for line, server in members:
        workload_of_group = workload_of_server.get(server)
        group = groups.setdefault(workload_of_group if workload_of_group in sharing else server, _Group([], []))
        group.lines.append(line)
        pod = _pod_of(line)
        if pod in served_by_pod and pod not in added:
            added.add(pod)
            group.served.extend(served_by_pod[pod])
    return [*groups.values()], other_lines


def _side(group: _Group, rules: InferenceRules) -> Side:
    """Return the group's side of a split. Its leader's workload may have it, and those of its workers not."""
    for line in group.lines:
        if side := rules.side_of(line.workload):
            return side
    return ""


def _models_on_both_sides(groups: Sequence[_Group], sides: Sequence[Side]) -> set[tuple[str, str]]:
    """Return the models, with their namespaces, that both prefill and decode servers processed tokens for."""
    sides_of_model: dict[tuple[str, str], set[Side]] = {}
    for group, side in zip(groups, sides, strict=True):
        for tokens in group.served if side else ():
            if tokens.prompt:
                sides_of_model.setdefault((tokens.namespace, tokens.model), set()).add(side)
    return {model for model, of_model in sides_of_model.items() if len(of_model) > 1}


def _group_rows(
    group: _Group,
    rules: InferenceRules,
    side: Side,
    split_models: set[tuple[str, str]],
    unit_of_consumer: Callable[[str], str],
) -> Iterable[ModelHour]:
    """Yield the row of each line of a group, of each of its models and of each of their consumers."""
    servers = {tokens.server for tokens in group.served}
    has_tokens = all(tokens.has_tokens for tokens in group.served)
    if not group.served or not (has_tokens or all(tokens.requests is not None for tokens in group.served)):
        server = servers.pop() if len(servers) == 1 else ""
        for line in group.lines:
            yield ModelHour(_key(line, server, ""), line.costs())
        return
    counts = [
        _counts(tokens, side if (tokens.namespace, tokens.model) in split_models else "", rules, has_tokens=has_tokens)
        for tokens in group.served
    ]
    if len(group.lines) == len(group.served) == 1 and not group.served[0].consumer:
        (line,), (tokens,), (of_model,) = group.lines, group.served, counts
        yield ModelHour(_key(line, tokens.server, tokens.model or line.workload or line.pod), line.costs(), *of_model)
        return
    consumers = [unit_of_consumer(tokens.consumer) if tokens.consumer else "" for tokens in group.served]
    weights = [rules.weights.weigh(tokens) if has_tokens else tokens.requests or 0 for tokens in group.served]
    if not any(weights):
        weights = [1] * len(weights)  # servers that were not called wait for each of their models
    hours = [line.allocated_gpu_hours for line in group.lines]
    by_line = hours if any(hours) else [1] * len(hours)
    parts_of_counts = [[_split_count(count, by_line) for count in of_model] for of_model in counts]
    for position, line in enumerate(group.lines):
        for tokens, consumer, costs, parts in zip(
            group.served, consumers, line.costs().split(weights), parts_of_counts, strict=True
        ):
            model = tokens.model or line.workload or line.pod
            yield ModelHour(_key(line, tokens.server, model, consumer), costs, *(part[position] for part in parts))


def _counts(tokens: ServedTokens, side: Side, rules: InferenceRules, *, has_tokens: bool) -> list[int | None]:
    """Return what counts of a server's tokens and requests: on each side of a split, what the other does not count."""
    counts = {kind: getattr(tokens, kind) if has_tokens or kind == "requests" else None for kind in _COUNTS}
    if side:
        of_other_side = {"decode": {"cached"}, "prefill": {"generated", "requests"}}[side]
        if side != rules.prompt_side:
            of_other_side |= {"prompt"}
        counts |= {kind: 0 for kind in of_other_side if counts[kind] is not None}
        if side == "decode":
            counts["cached"] = 0  # also where the server does not count them
    return [counts[kind] for kind in _COUNTS]


def _split_count(count: int | None, weights: Sequence[int]) -> Sequence[int | None]:
    return [None] * len(weights) if count is None else split(count, weights)


def _key(line: Line, server: str, model: str, consumer: str = "") -> ModelKey:
    return ModelKey._make((*_part_of_key(line), server, model, consumer))


def _total(hours: Sequence[ModelHour]) -> ModelHour:
    """Add up rows of one key. Cached tokens are unknown if any row's are."""
    if len(hours) == 1:
        return hours[0]
    counts = (sum_if_complete(column) for column in zip(*(hour[2:] for hour in hours), strict=True))
    return ModelHour(hours[0].key, Costs.total(hour.costs for hour in hours), *counts)


def sum_if_complete(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if any count is unknown."""
    summands = [count for count in counts if count is not None]
    return sum(summands) if len(summands) == len(counts) else None


# Sums of hours, unit costs and percentiles.


class ModelSum(NamedTuple):
    """The sum of rows of models over a period."""

    costs: Costs
    """Of all rows."""
    token_costs: Costs
    """Of rows whose tokens are known: only these are divided by tokens."""
    request_costs: Costs
    """Of rows whose requests are known."""
    prompt_tokens: int | None
    """None if no row's are known."""
    generated_tokens: int | None
    cached_tokens: int | None
    """None if those of any row with tokens are unknown."""
    requests: int | None
    priced: "ModelSum | None" = None
    """Of rows whose GPUs all have a price, where others have none: only these have unit costs."""

    @classmethod
    def of(cls, hours: Sequence[ModelHour]) -> "ModelSum":
        """Add up rows."""
        priced = [hour for hour in hours if not hour.costs.unpriced_gpu_hours]
        with_tokens = [hour for hour in hours if hour.prompt_tokens is not None]
        with_requests = [hour for hour in hours if hour.requests is not None]
        prompt, generated, cached = (
            sum_if_complete([getattr(hour, name) for hour in with_tokens]) if with_tokens else None
            for name in ("prompt_tokens", "generated_tokens", "cached_tokens")
        )
        return cls(
            Costs.total(hour.costs for hour in hours),
            Costs.total(hour.costs for hour in with_tokens),
            Costs.total(hour.costs for hour in with_requests),
            prompt,
            generated,
            cached,
            sum(hour.requests or 0 for hour in with_requests) if with_requests else None,
            cls.of(priced) if len(priced) < len(hours) else None,
        )

    def weighted_tokens(self, weights: TokenWeights) -> Fraction:
        """Return the weighted tokens; 0 if they are unknown."""
        return weights.weigh(
            ServedTokens("", "", "", "", self.prompt_tokens, self.generated_tokens, self.cached_tokens)
        )

    def figures(self, weights: TokenWeights) -> dict[str, Decimal | int | None]:
        """Return the costs, tokens and unit costs as published.

        Unit costs are of allocated GPUs with a price, as it was; those at full use leave out the time in which the GPUs
        waited. They are None without tokens of that kind, or without prices.
        """
        figures: dict[str, Decimal | int | None] = {
            **self.costs.figures(),
            "prompt_tokens": self.prompt_tokens,
            "generated_tokens": self.generated_tokens,
            "cached_tokens": self.cached_tokens,
            "requests": self.requests,
            "unknown_tokens_usd": _amount(self.costs, self.costs.allocated_usd - self.token_costs.allocated_usd),
            **(self.priced or self).least_unit_costs(weights),  # of GPUs with a price, the only ones
        }
        count = (self.prompt_tokens or 0) + (self.generated_tokens or 0)
        gpu_hours, energy_hours = self.token_costs.allocated_gpu_hours, self.token_costs.energy_gpu_hours
        has_energy = bool(energy_hours and self.token_costs.energy_kwh)
        return figures | {
            "tokens_per_gpu_second": quantize(Fraction(count * SCALE, gpu_hours * 3600)) if gpu_hours else None,
            # The tokens of the GPU-hours whose energy was measured.
            "tokens_per_kwh": quantize(Fraction(count * SCALE * energy_hours, gpu_hours * self.token_costs.energy_kwh))
            if gpu_hours and has_energy
            else None,
        }

    def least_unit_costs(self, weights: TokenWeights) -> dict[str, Decimal | None]:
        """Return the lowest unit costs that are possible: GPUs without a price add tokens, and no cost."""
        count = (self.prompt_tokens or 0) + (self.generated_tokens or 0)
        per_token = _per(self.token_costs, Fraction(count, MILLION))
        per_weight = _per(self.token_costs, self.weighted_tokens(weights) / MILLION)
        per_request = _per(self.request_costs, Fraction(self.requests or 0))
        kinds = {
            "prompt": (self.prompt_tokens, weights.prompt),
            "generated": (self.generated_tokens, weights.generated),
            "cached": (self.cached_tokens, weights.cached),
        }
        unit_costs: dict[str, Decimal | None] = {}
        for suffix, full_use in (("", False), ("_at_full_use", True)):
            factor = full_use_share(self.token_costs) if full_use else Fraction(1)
            request_factor = full_use_share(self.request_costs) if full_use else Fraction(1)
            unit_costs |= {
                f"usd_per_million_tokens{suffix}": _product(per_token, factor),
                **{
                    f"usd_per_million_{kind}_tokens{suffix}": _product(per_weight, factor, Fraction(weight))
                    if tokens
                    else None
                    for kind, (tokens, weight) in kinds.items()
                },
                f"usd_per_request{suffix}": _product(per_request, request_factor),
            }
        return unit_costs


class TokenLoad(NamedTuple):
    """Tokens and the GPU-hours in which they were processed."""

    tokens: int = 0
    gpu_hours: int = 0
    """A fixed-point amount."""

    def per_second(self) -> Decimal:
        """Return the tokens per GPU-second."""
        return quantize(Fraction(self.tokens * SCALE, self.gpu_hours * 3600))


LOAD_PERCENTILES = {"tokens_per_gpu_second_p50": 50, "tokens_per_gpu_second_p95": 95}


def load_percentiles(loads_by_hour: Iterable[TokenLoad]) -> dict[str, Decimal | None]:
    """Return percentiles of the tokens per GPU-second of hours, each hour once.

    By nearest rank: the load of an hour that is not exceeded in 50% or 95% of the hours. None without hours.

    Args:
        loads_by_hour: of hours whose tokens are known. An hour without tokens has the load 0.
    """
    rates = sorted(load.per_second() for load in loads_by_hour if load.gpu_hours)
    return {
        name: rates[-(-len(rates) * percent // 100) - 1] if rates else None
        for name, percent in LOAD_PERCENTILES.items()
    }


MILLION = 10**6


def _amount(costs: Costs, amount: int) -> Decimal | None:
    return to_decimal(amount) if costs.has_price() else None


def _per(costs: Costs, units: Fraction) -> Fraction | None:
    """Return the allocated cost per unit; None without units or price."""
    return Fraction(costs.allocated_usd, SCALE) / units if units and costs.has_price() else None


def full_use_share(costs: Costs) -> Fraction | None:
    """Return the part of the measured cost that was used; None if no use was measured."""
    measured = costs.effective_usd + costs.waste_usd
    return Fraction(costs.effective_usd, measured) if measured else None


def _product(*factors: Fraction | None) -> Decimal | None:
    product = Fraction(1)
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return quantize(product)
