"""Writes an hour's usage as JSON types: all that is needed to rate and attribute it again without Prometheus.

Nothing is rounded: times are in milliseconds, amounts are fractions (`"300/7"`). Columns compress far better than rows.
A node's facts are stored once and referred to by number.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple, replace

from gpucost.core.decimals import parse_decimal, parse_fraction
from gpucost.core.hour_record import Coverage
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.core.metering.observations import ClaimedDevice, PodObservation
from gpucost.core.metering.usage import Energy, NodeEnergy, NodeUsage, PodUsage, Usage, Use
from gpucost.core.pricing.prices import PRICE_LABELS

_NODE_FIELDS = (
    "name",
    "provider_id",
    "instance_type",
    "zone",
    "zone_id",
    "capacity_type",
    "node_pool",
    "gpu_model",
    "physical_gpus",
)
_NODE_AMOUNTS = (
    "total_gpu_ms",
    "unallocated_gpu_ms",
    "not_ready_gpu_ms",
    "geometry_gpu_ms",
    "unhealthy_gpu_ms",
    "unobserved_gpu_ms",
    "excess_gpu_ms",
)
_DOMAIN_AMOUNT = "domain_gpu_ms"
"""The last amount, which only documents of clusters with `nvlink_domains` have."""
_pod_fields = attrgetter("namespace", "pod", "uid", "workload_kind", "workload")


def usage_document(usage: Usage) -> dict[str, Any]:
    """Return an hour's usage as JSON types."""
    facts = _NumberedNodes()
    pods = [
        [
            *_pod_fields(pod_usage.pod),
            dict(pod_usage.pod.labels),
            facts.index_of(pod_usage.node),
            pod_usage.resource,
            pod_usage.units,
            [_fraction_text(pod_usage.share.gpus_per_unit), pod_usage.share.source, pod_usage.share.replicas],
            *_bounds(pod_usage.held),
            *_bounds(pod_usage.running),
            pod_usage.last_sample_ms,
            pod_usage.use.source,
            None if pod_usage.use.utilization is None else _fraction_text(pod_usage.use.utilization),
            _fraction_text(pod_usage.use.observed_ms),
            _fraction_text(pod_usage.use.effective_gpu_ms),
            _fraction_text(pod_usage.use.beyond_allocation_gpu_ms),
        ]
        for pod_usage in usage.pods
    ]
    nodes = None
    if usage.nodes is not None:
        has_domains = any(account.domain_gpu_ms for account in usage.nodes)
        amounts = (*_NODE_AMOUNTS, _DOMAIN_AMOUNT) if has_domains else _NODE_AMOUNTS
        nodes = [
            [
                facts.index_of(account.node),
                *_bounds(account.present),
                *(_fraction_text(getattr(account, name)) for name in amounts),
            ]
            for account in usage.nodes
        ]
    document = {
        "coverage": [usage.coverage.allocation, usage.coverage.utilization],
        "notes": usage.notes,
        "facts": facts.all,
        **facts.type_sources,
        "namespaces": {
            pod_usage.pod.namespace: dict(pod_usage.pod.namespace_labels)
            for pod_usage in usage.pods
            if pod_usage.pod.namespace_labels
        },
        "pods": _columns(pods),
        **_claims(usage.pods),
        "nodes": None if nodes is None else _columns(nodes),
    }
    return document | _energy_document(usage) | _served_document(usage)


def _served_document(usage: Usage) -> dict[str, Any]:
    """Return what inference servers processed; nothing where no server was seen.

    Consumers are the last column, only where there are some.
    """
    columns = _columns(map(astuple, usage.served)) if usage.served else []
    if columns and not any(columns[-1]):
        del columns[-1]
    return {"served": columns} if usage.served else {}


def _energy_document(usage: Usage) -> dict[str, Any]:
    """Return the energy of pods and nodes, by their position; nothing where none was measured."""
    pods = [
        [index, _fraction_text(pod.energy.joules), _fraction_text(pod.energy.gpu_ms)]
        for index, pod in enumerate(usage.pods)
        if pod.energy is not None
    ]
    nodes = [
        [
            index,
            _fraction_text(node.energy.joules),
            _fraction_text(node.energy.idle_joules),
            node.energy.measured_gpu_ms,
        ]
        for index, node in enumerate(usage.nodes or ())
        if node.energy is not None
    ]
    return {"energy": {"pods": _columns(pods), "nodes": _columns(nodes)}} if pods or nodes else {}


def _with_energy(pods: list[PodUsage], columns: Sequence[Sequence[Any]]) -> list[PodUsage]:
    for index, joules, gpu_ms in _rows(columns):
        pods[index] = replace(pods[index], energy=Energy(parse_fraction(joules), parse_fraction(gpu_ms)))
    return pods


def read_usage(cluster: str, hour: datetime, document: dict[str, Any]) -> Usage:
    """Read what `usage_document` returned."""
    type_sources = document.get("type_sources", {})
    nodes = [
        GpuNode(
            **dict(zip(_NODE_FIELDS[:-1], row[:-2], strict=True)),
            physical_gpus=parse_fraction(row[-2]) if isinstance(row[-2], str) else row[-2],
            labels=row[-1],
            instance_type_source=type_sources.get(str(number), ""),
        )
        for number, row in enumerate(document["facts"])
    ]
    allocation, utilization = document["coverage"]
    namespaces = document["namespaces"]
    energy = document.get("energy", {"pods": [], "nodes": []})
    pods = _with_energy([_pod(row, nodes, namespaces) for row in _rows(document["pods"])], energy["pods"])
    accounts = document["nodes"]
    usages = None if accounts is None else tuple(_node_usage(row, nodes) for row in _rows(accounts))
    for index, joules, idle_joules, measured_gpu_ms in _rows(energy["nodes"]):
        if usages is not None:
            usages[index].energy = NodeEnergy(parse_fraction(joules), parse_fraction(idle_joules), measured_gpu_ms)
    return Usage(
        cluster=cluster,
        hour=hour,
        coverage=Coverage(
            parse_decimal(str(allocation)), None if utilization is None else parse_decimal(str(utilization))
        ),
        pods=_with_claims(pods, document.get("claims", [])),
        nodes=usages,
        notes=tuple(document["notes"]),
        served=tuple(ServedTokens(*row) for row in _rows(document.get("served", []))),
    )


def _node_usage(row: Sequence[Any], nodes: Sequence[GpuNode]) -> NodeUsage:
    amounts: dict[str, Any] = dict(zip((*_NODE_AMOUNTS, _DOMAIN_AMOUNT), map(parse_fraction, row[3:]), strict=False))
    return NodeUsage(nodes[row[0]], IntervalMs(row[1], row[2]), **amounts)


def _claims(pods: Sequence[PodUsage]) -> dict[str, Any]:
    """Return what pods hold through claims, by the pods' position; nothing if there is none."""
    claims = [
        [position, claimed.claim, claimed.driver]
        for position, claimed in enumerate(pod_usage.pod.claimed_device for pod_usage in pods)
        if claimed is not None
    ]
    return {"claims": _columns(claims)} if claims else {}


def _with_claims(pods: list[PodUsage], columns: Sequence[Sequence[Any]]) -> tuple[PodUsage, ...]:
    for position, claim, driver in _rows(columns):
        pod = pods[position].pod
        claimed = ClaimedDevice(claim, pod.node, uuid="", mig_instance="", driver=driver)
        pods[position] = replace(pods[position], pod=replace(pod, claimed_device=claimed))
    return tuple(pods)


def _pod(row: Sequence[Any], nodes: Sequence[GpuNode], namespaces: dict[str, dict[str, str]]) -> PodUsage:
    namespace, pod, uid, kind, workload, labels, node, resource, units, share, *rest = row
    held_start, held_end, run_start, run_end, last_sample_ms, source, utilization, observed, effective, beyond = rest
    seen = PodObservation(
        namespace=namespace,
        pod=pod,
        uid=uid,
        node=nodes[node].name,
        requests=(),
        held_samples=None,
        workload_kind=kind,
        workload=workload,
        labels=labels,
        namespace_labels=namespaces.get(namespace, {}),
    )
    return PodUsage(
        pod=seen,
        node=nodes[node],
        resource=resource,
        units=units,
        share=_share(*share),
        held=_interval(held_start, held_end),
        running=_interval(run_start, run_end),
        last_sample_ms=last_sample_ms,
        use=Use(
            source,
            None if utilization is None else parse_fraction(utilization),
            parse_fraction(observed),
            parse_fraction(effective),
            parse_fraction(beyond),
        ),
    )


_interval = lru_cache(maxsize=256)(
    IntervalMs
)  # most pods of an hour run for all of it and hold the same share of a GPU


@lru_cache(maxsize=256)
def _share(gpus_per_unit: int | str, source: str, replicas: int) -> GpuShare:
    return GpuShare(parse_fraction(gpus_per_unit), source, replicas)


class _NumberedNodes:
    """Collects the facts of nodes, each once, and numbers them."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []
        self._type_sources: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._numbers_by_object: dict[int, int] = {}
        """By `id()`, because pods of the same node mostly share one object."""

    def index_of(self, node: GpuNode) -> int:
        """Return the number of a node's facts."""
        number = self._numbers_by_object.get(id(node))
        if number is None:
            labels = {name: label for name, label in sorted(node.labels.items()) if name in PRICE_LABELS}
            physical = None if node.physical_gpus is None else _fraction_text(node.physical_gpus)
            facts = [*(getattr(node, name) for name in _NODE_FIELDS[:-1]), physical, labels]
            number = self._numbers_by_object[id(node)] = self._numbers.setdefault(repr(facts), len(self.all))
            if number == len(self.all):
                self.all.append(facts)
                if node.instance_type_source:
                    self._type_sources[str(number)] = node.instance_type_source
        return number

    @property
    def type_sources(self) -> dict[str, dict[str, str]]:
        """By number, what says the instance types of nodes without labels; nothing if all have labels."""
        return {"type_sources": self._type_sources} if self._type_sources else {}


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _rows(columns: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True)


def _bounds(time: IntervalMs) -> tuple[int, int]:
    return time.start, time.end


def _fraction_text(amount: Fraction | int) -> int | str:
    """Write an integer as itself and a fraction as `n/d`."""
    numerator, denominator = amount.as_integer_ratio()
    return numerator if denominator == 1 else f"{numerator}/{denominator}"
