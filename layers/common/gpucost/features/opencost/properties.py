"""What OpenCost calls a piece of the fleet by: properties, and the names that an aggregation makes of them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from gpucost.core.model import Line
from gpucost.core.rollups import FactKey

NONE = "__unallocated__"
"""What OpenCost calls the absence of a controller or label."""
IDLE = "__idle__"
DEFAULT_AGGREGATION = ("cluster", "node", "namespace", "pod")
"""OpenCost's own default, without the container: containers are not told apart here."""
_WORKLOAD_KINDS = ("deployment", "statefulset", "daemonset", "job")
_ALIASES = {"department": "department", "environment": "env", "owner": "owner", "product": "app", "team": "team"}
_PROPERTY_NAMES = {"cluster", "node", "namespace", "pod", "controller", "controllerKind"}
AGGREGATIONS = ("all", *sorted(_PROPERTY_NAMES), *_WORKLOAD_KINDS, *_ALIASES, "label:<name>")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, order=True)
class Properties:
    """Where a cost belongs; "" where the ledger (or the way it was read) does not say."""

    cluster: str
    namespace: str = ""
    controller_kind: str = ""
    controller: str = ""
    node: str = ""
    pod: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """By sanitized name: `app.kubernetes.io/name` is `app_kubernetes_io_name`."""

    def label(self, name: str) -> str | None:
        """A label's value."""
        return dict(self.labels).get(name)


def properties_of(cluster: str, record: Line | FactKey) -> Properties:
    """Of a line, or of a fact, which knows no node and no pod."""
    labels = record.labels.items() if isinstance(record, Line) else record.labels
    return Properties(
        cluster,
        record.namespace,
        record.workload_kind.lower(),
        record.workload,
        record.node if isinstance(record, Line) else "",
        record.pod if isinstance(record, Line) else "",
        tuple(sorted((sanitize(name), value) for name, value in labels)),
    )


def sanitize(label: str) -> str:
    """A label's name as Prometheus, and so OpenCost, writes it."""
    return _ILLEGAL.sub("_", label)


def parse_aggregate(text: str, cost_labels: Sequence[str]) -> tuple[str, ...]:
    """Read `namespace,label:team`; "" is the finest, `all` is one sum.

    Args:
        text: as in the parameter `aggregate`.
        cost_labels: the labels that the ledger keeps.

    Raises:
        ValueError: what cannot be aggregated by; says what can.
    """
    if not text:
        return DEFAULT_AGGREGATION
    if text == "all":
        return ()
    canonical_names = {name.lower(): name for name in (*_PROPERTY_NAMES, *_WORKLOAD_KINDS)}
    dimensions = []
    for part in (part.strip() for part in text.split(",")):
        if part.startswith("label:"):
            name = find_label(part.removeprefix("label:"), cost_labels)
            dimensions.append(f"label:{name}")
        elif part.lower() in _ALIASES:
            dimensions.append(f"label:{find_label(_ALIASES[part.lower()], cost_labels)}")
        elif part.lower() in canonical_names:
            dimensions.append(canonical_names[part.lower()])
        else:
            raise ValueError(f"cannot aggregate by {part!r}; allowed: {', '.join(AGGREGATIONS)}")
    return tuple(dict.fromkeys(dimensions))


def find_label(name: str, cost_labels: Sequence[str]) -> str:
    """The sanitized name of a label that the ledger keeps.

    Raises:
        ValueError: it keeps none of that name.
    """
    label_names = [sanitize(one) for one in cost_labels]
    if sanitize(name.strip()) not in label_names:
        raise ValueError(f"label {name!r} is not kept; cost_labels of the settings: {', '.join(label_names) or 'none'}")
    return sanitize(name.strip())


def properties_needed(aggregate: Iterable[str]) -> set[str]:
    """Fields of `Properties` that an aggregation reads."""
    needed = set()
    for one in aggregate:
        if one.startswith("label:"):
            needed.add("labels")
        elif one == "controllerKind":
            needed.add("controller_kind")
        elif one in ("controller", *_WORKLOAD_KINDS):
            needed |= {"controller", "controller_kind"}
        else:
            needed.add(one)
    return needed


def allocation_name(properties: Properties, aggregate: Sequence[str]) -> str:
    """The name of the allocation that a piece is part of (`GenerateKey` in allocationprops.go)."""
    return "/".join(_name_part(properties, one) for one in aggregate)


def _name_part(properties: Properties, dimension: str) -> str:
    if dimension.startswith("label:"):
        value = properties.label(dimension.removeprefix("label:"))
        return NONE if value is None else value
    if dimension == "controllerKind":
        return properties.controller_kind or NONE
    if dimension == "controller":
        name = f"{properties.controller_kind}:{properties.controller}" if properties.controller_kind else properties.controller
        return name if properties.controller else NONE
    if dimension in _WORKLOAD_KINDS:
        return properties.controller if properties.controller and properties.controller_kind == dimension else NONE
    return str(getattr(properties, dimension))


def common_properties(all_properties: Sequence[Properties]) -> Properties:
    """What all pieces of an allocation have in common."""
    first = all_properties[0]
    same = {
        field.name: getattr(first, field.name)
        for field in fields(Properties)
        if field.name != "labels" and all(getattr(one, field.name) == getattr(first, field.name) for one in all_properties)
    }
    labels = set(first.labels).intersection(*(one.labels for one in all_properties))
    return Properties(same.pop("cluster", ""), **same, labels=tuple(sorted(labels)))
