"""Metered usage as compressed JSON: all that is needed to price and attribute an hour again without Prometheus.

Exact: times are milliseconds, amounts are fractions (`"300/7"`). By columns, which compress far better than rows; a
node's facts are kept once for all that refer to them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any

from gpucost.core.intervals import Interval
from gpucost.core.metering.gpu_shares import GpuNode, GpuShare
from gpucost.core.metering.observations import PodObservation
from gpucost.core.metering.usage import Holding, Measurement, NodeUsage, PodUsage, Usage
from gpucost.core.model import Coverage
from gpucost.core.pricing.prices import PRICE_LABELS

_NODE_FIELDS = (
    "name", "provider_id", "instance_type", "zone", "zone_id", "capacity_type", "node_pool", "gpu_model", "physical",
)  # fmt: skip
_AMOUNTS = (
    "total_gpu_ms", "unallocated_gpu_ms", "not_ready_gpu_ms", "geometry_gpu_ms", "unhealthy_gpu_ms",
    "unobserved_gpu_ms", "excess_gpu_ms",
)  # fmt: skip
_pod_fields = attrgetter("namespace", "pod", "uid", "workload_kind", "workload")


def usage_document(usage: Usage) -> dict[str, Any]:
    """An hour's usage, to be packed."""
    facts = _Facts()
    pods = [
        [
            *_pod_fields(one.holding.pod),
            dict(one.holding.pod.labels),
            facts.number(one.holding.node),
            one.holding.resource,
            one.holding.units,
            [_text(one.holding.share.gpus_per_unit), one.holding.share.source, one.holding.share.replicas],
            *_span(one.holding.held),
            *_span(one.holding.running),
            one.holding.last_sample_ms,
            one.measurement.source,
            None if one.measurement.utilization is None else _text(one.measurement.utilization),
            _text(one.measurement.observed_ms),
            _text(one.measurement.effective_gpu_ms),
            _text(one.measurement.used_beyond_allocation_gpu_ms),
        ]
        for one in usage.pods
    ]
    nodes = None
    if usage.nodes is not None:
        nodes = [
            [facts.number(one.node), *_span(one.present), *(_text(getattr(one, name)) for name in _AMOUNTS)]
            for one in usage.nodes
        ]
    return {
        "coverage": [usage.coverage.allocation, usage.coverage.utilization],
        "notes": usage.notes,
        "facts": facts.all,
        "namespaces": {
            one.holding.pod.namespace: dict(one.holding.pod.namespace_labels)
            for one in usage.pods
            if one.holding.pod.namespace_labels
        },
        "pods": _columns(pods),
        "nodes": None if nodes is None else _columns(nodes),
    }


def read_usage(cluster: str, hour: datetime, document: dict[str, Any]) -> Usage:
    """Back from `usage_document`."""
    nodes = [
        GpuNode(
            **dict(zip(_NODE_FIELDS[:-1], row[:-2], strict=True)),
            physical=Fraction(row[-2]) if isinstance(row[-2], str) else row[-2],
            labels=row[-1],
        )
        for row in document["facts"]
    ]
    allocation, utilization = document["coverage"]
    namespaces = document["namespaces"]
    accounts = document["nodes"]
    return Usage(
        cluster=cluster,
        hour=hour,
        coverage=Coverage(Decimal(allocation), None if utilization is None else Decimal(utilization)),
        pods=tuple(_pod(row, nodes, namespaces) for row in _rows(document["pods"])),
        nodes=None
        if accounts is None
        else tuple(
            NodeUsage(nodes[row[0]], Interval(row[1], row[2]), *map(Fraction, row[3:])) for row in _rows(accounts)
        ),
        notes=tuple(document["notes"]),
    )


def _pod(row: Sequence[Any], nodes: Sequence[GpuNode], namespaces: dict[str, dict[str, str]]) -> PodUsage:
    namespace, pod, uid, kind, workload, labels, node, resource, units, share, *rest = row
    held_start, held_end, run_start, run_end, sure_until, source, utilization, observed, effective, beyond = rest
    seen = PodObservation(
        namespace=namespace,
        pod=pod,
        uid=uid,
        node=nodes[node].name,
        requests=(),
        held=None,
        workload_kind=kind,
        workload=workload,
        labels=labels,
        namespace_labels=namespaces.get(namespace, {}),
    )
    holding = Holding(
        pod=seen,
        node=nodes[node],
        resource=resource,
        units=units,
        share=_share(*share),
        held=_interval(held_start, held_end),
        running=_interval(run_start, run_end),
        last_sample_ms=sure_until,
    )
    measurement = Measurement(
        source=source,
        utilization=None if utilization is None else Fraction(utilization),
        observed_ms=Fraction(observed),
        effective_gpu_ms=Fraction(effective),
        used_beyond_allocation_gpu_ms=Fraction(beyond),
    )
    return PodUsage(holding, measurement)


_interval = lru_cache(maxsize=256)(Interval)  # most pods of an hour are there all of it, by one share of a GPU


@lru_cache(maxsize=256)
def _share(of_gpu: int | str, source: str, replicas: int) -> GpuShare:
    return GpuShare(Fraction(of_gpu), source, replicas)


class _Facts:
    """Nodes' facts, kept once, by number."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []
        self._numbers: dict[str, int] = {}
        self._of_nodes: dict[int, int] = {}
        """Most nodes are one object for all of their pods."""

    def number(self, node: GpuNode) -> int:
        found = self._of_nodes.get(id(node))
        if found is None:
            labels = {name: value for name, value in sorted(node.labels.items()) if name in PRICE_LABELS}
            physical = None if node.physical is None else _text(node.physical)
            facts = [*(getattr(node, name) for name in _NODE_FIELDS[:-1]), physical, labels]
            found = self._of_nodes[id(node)] = self._numbers.setdefault(repr(facts), len(self.all))
            if found == len(self.all):
                self.all.append(facts)
        return found


def _columns(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _rows(columns: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True)


def _span(time: Interval) -> tuple[int, int]:
    return time.start, time.end


def _text(amount: Fraction | int) -> int | str:
    """A whole number as itself, a fraction as `n/d`."""
    numerator, denominator = amount.as_integer_ratio()
    return numerator if denominator == 1 else f"{numerator}/{denominator}"
