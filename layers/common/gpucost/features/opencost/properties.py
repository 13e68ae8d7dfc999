"""OpenCost properties of costs, and the names of allocations that an aggregation makes from them."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gpucost.core.query.dimensions import LABEL_PREFIX, GroupKey

MISSING_VALUE = "__unallocated__"
"""OpenCost's name for a missing controller or label."""
IDLE_NAME = "__idle__"
DEFAULT_AGGREGATION = ("cluster", "node", "namespace", "pod")
"""OpenCost's default aggregation, without the container: the ledger has no containers."""
WORKLOAD_KINDS = ("deployment", "statefulset", "daemonset", "job")
LABEL_ALIASES = {"department": "department", "environment": "env", "owner": "owner", "product": "app", "team": "team"}
"""OpenCost's names for aggregation by a pod label, and the label."""
_PROPERTY_NAMES = {"cluster", "node", "namespace", "pod", "controller", "controllerKind"}
AGGREGATIONS = ("all", *sorted(_PROPERTY_NAMES), *WORKLOAD_KINDS, *LABEL_ALIASES, "label:<name>")
_ILLEGAL_LABEL_CHARACTERS = re.compile(r"[^a-zA-Z0-9_]")


class Properties(Struct, frozen=True, order=True):
    """Properties of a cost; "" for a property that the record does not have."""

    cluster: str
    namespace: str = ""
    controller_kind: str = ""
    controller: str = ""
    node: str = ""
    pod: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Sanitized name and value: `app.kubernetes.io/name` becomes `app_kubernetes_io_name`."""

    def label(self, name: str) -> str | None:
        """Return a label's value, or None."""
        return dict(self.labels).get(name)


def properties_of(dimensions: Sequence[str], key: GroupKey) -> Properties:
    """Return the properties of a report's costs; "" and a missing label are properties that the costs do not have."""
    values = dict(zip(dimensions, key, strict=True))
    labels = {
        sanitize_label(name.removeprefix(LABEL_PREFIX)): value
        for name, value in values.items()
        if name.startswith(LABEL_PREFIX) and value
    }
    return Properties(
        values["cluster"],
        values["namespace"],
        values.get("workload_kind", "").lower(),
        values.get("workload", ""),
        values.get("node", ""),
        values.get("pod", ""),
        tuple(sorted(labels.items())),
    )


def sanitize_label(label: str) -> str:
    """Return a label name as Prometheus and OpenCost write it."""
    return _ILLEGAL_LABEL_CHARACTERS.sub("_", label)


def parse_aggregate(text: str, cost_labels: Sequence[str]) -> tuple[str, ...]:
    """Parse an aggregation such as `namespace,label:team`; "" means `DEFAULT_AGGREGATION`, `all` means one sum.

    Args:
        text: the parameter `aggregate`.
        cost_labels: the labels that the ledger stores.

    Raises:
        ValueError: an unknown property. The message says what is allowed.
    """
    if not text:
        return DEFAULT_AGGREGATION
    if text == "all":
        return ()
    canonical_names = {name.lower(): name for name in (*_PROPERTY_NAMES, *WORKLOAD_KINDS)}
    dimensions = []
    for part in (part.strip() for part in text.split(",")):
        if part.startswith("label:"):
            name = find_label(part.removeprefix("label:"), cost_labels)
            dimensions.append(f"label:{name}")
        elif part.lower() in LABEL_ALIASES:
            dimensions.append(f"label:{find_label(LABEL_ALIASES[part.lower()], cost_labels)}")
        elif part.lower() in canonical_names:
            dimensions.append(canonical_names[part.lower()])
        else:
            raise ValueError(f"cannot aggregate by {part!r}; allowed: {', '.join(AGGREGATIONS)}")
    return tuple(dict.fromkeys(dimensions))


def find_label(name: str, cost_labels: Sequence[str]) -> str:
    """Return the sanitized name of a label that the ledger stores.

    Raises:
        ValueError: the ledger does not store this label.
    """
    label_names = [sanitize_label(label) for label in cost_labels]
    if sanitize_label(name.strip()) not in label_names:
        raise ValueError(
            f"label {name!r} is not stored. cost_labels in the settings: {', '.join(label_names) or 'none'}"
        )
    return sanitize_label(name.strip())


def properties_needed(aggregate: Iterable[str]) -> set[str]:
    """Return the fields of `Properties` that an aggregation reads."""
    needed = set()
    for dimension in aggregate:
        if dimension.startswith("label:"):
            needed.add("labels")
        elif dimension == "controllerKind":
            needed.add("controller_kind")
        elif dimension in ("controller", *WORKLOAD_KINDS):
            needed |= {"controller", "controller_kind"}
        else:
            needed.add(dimension)
    return needed


def allocation_name(properties: Properties, aggregate: Sequence[str]) -> str:
    """Return the name of the allocation that a cost belongs to (`GenerateKey` in OpenCost's allocationprops.go)."""
    return "/".join(_name_part(properties, dimension) for dimension in aggregate)


def _name_part(properties: Properties, dimension: str) -> str:
    if dimension.startswith("label:"):
        value = properties.label(dimension.removeprefix("label:"))
        return MISSING_VALUE if value is None else value
    if dimension == "controllerKind":
        return properties.controller_kind or MISSING_VALUE
    if dimension == "controller":
        name = (
            f"{properties.controller_kind}:{properties.controller}"
            if properties.controller_kind
            else properties.controller
        )
        return name if properties.controller else MISSING_VALUE
    if dimension in WORKLOAD_KINDS:
        return (
            properties.controller
            if properties.controller and properties.controller_kind == dimension
            else MISSING_VALUE
        )
    return str(getattr(properties, dimension))


def common_properties(all_properties: Sequence[Properties]) -> Properties:
    """Return the properties that all costs of an allocation have in common."""
    first = all_properties[0]
    same = {
        name: getattr(first, name)
        for name in Properties.__struct_fields__
        if name != "labels" and all(getattr(properties, name) == getattr(first, name) for properties in all_properties)
    }
    labels = set(first.labels).intersection(*(properties.labels for properties in all_properties))
    return Properties(same.pop("cluster", ""), **same, labels=tuple(sorted(labels)))
