"""What OpenCost calls a piece of the fleet by: properties, and the names that an aggregation makes of them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from gpucost.core.model import Line
from gpucost.core.rollups import FactKey

NONE = "__unallocated__"
"""What OpenCost calls the absence of a controller or label."""
IDLE = "__idle__"
FINEST = ("cluster", "node", "namespace", "pod")
"""OpenCost's own default, without the container: containers are not told apart here."""
_KINDS = ("deployment", "statefulset", "daemonset", "job")
_ALIASES = {"department": "department", "environment": "env", "owner": "owner", "product": "app", "team": "team"}
_PLAIN = {"cluster", "node", "namespace", "pod", "controller", "controllerKind"}
AGGREGATIONS = ("all", *sorted(_PLAIN), *_KINDS, *_ALIASES, "label:<name>")
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


def properties_of(cluster: str, held: Line | FactKey) -> Properties:
    """Of a line, or of a fact, which knows no node and no pod."""
    labels = held.labels.items() if isinstance(held, Line) else held.labels
    return Properties(
        cluster,
        held.namespace,
        held.workload_kind.lower(),
        held.workload,
        held.node if isinstance(held, Line) else "",
        held.pod if isinstance(held, Line) else "",
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
        return FINEST
    if text == "all":
        return ()
    known = {name.lower(): name for name in (*_PLAIN, *_KINDS)}
    found = []
    for part in (part.strip() for part in text.split(",")):
        if part.startswith("label:"):
            name = label_of(part.removeprefix("label:"), cost_labels)
            found.append(f"label:{name}")
        elif part.lower() in _ALIASES:
            found.append(f"label:{label_of(_ALIASES[part.lower()], cost_labels)}")
        elif part.lower() in known:
            found.append(known[part.lower()])
        else:
            raise ValueError(f"cannot aggregate by {part!r}; allowed: {', '.join(AGGREGATIONS)}")
    return tuple(dict.fromkeys(found))


def label_of(name: str, cost_labels: Sequence[str]) -> str:
    """The sanitized name of a label that the ledger keeps.

    Raises:
        ValueError: it keeps none of that name.
    """
    kept = [sanitize(one) for one in cost_labels]
    if sanitize(name.strip()) not in kept:
        raise ValueError(f"label {name!r} is not kept; cost_labels of the settings: {', '.join(kept) or 'none'}")
    return sanitize(name.strip())


def needs_of(aggregate: Iterable[str]) -> set[str]:
    """Fields of `Properties` that an aggregation reads."""
    needs = set()
    for one in aggregate:
        if one.startswith("label:"):
            needs.add("labels")
        elif one == "controllerKind":
            needs.add("controller_kind")
        elif one in ("controller", *_KINDS):
            needs |= {"controller", "controller_kind"}
        else:
            needs.add(one)
    return needs


def key_of(held: Properties, aggregate: Sequence[str]) -> str:
    """The name of the allocation that a piece is part of (`GenerateKey` in allocationprops.go)."""
    return "/".join(_part(held, one) for one in aggregate)


def _part(held: Properties, one: str) -> str:
    if one.startswith("label:"):
        value = held.label(one.removeprefix("label:"))
        return NONE if value is None else value
    if one == "controllerKind":
        return held.controller_kind or NONE
    if one == "controller":
        name = f"{held.controller_kind}:{held.controller}" if held.controller_kind else held.controller
        return name if held.controller else NONE
    if one in _KINDS:
        return held.controller if held.controller and held.controller_kind == one else NONE
    return str(getattr(held, one))


def shared_by(pieces: Sequence[Properties]) -> Properties:
    """What all pieces of an allocation have in common."""
    first = pieces[0]
    same = {
        field.name: getattr(first, field.name)
        for field in fields(Properties)
        if field.name != "labels" and all(getattr(one, field.name) == getattr(first, field.name) for one in pieces)
    }
    labels = set(first.labels).intersection(*(one.labels for one in pieces))
    return Properties(same.pop("cluster", ""), **same, labels=tuple(sorted(labels)))
