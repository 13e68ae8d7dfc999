"""The dimensions by which figures are grouped and filtered, and which of the ledger's records have them."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import Line, ModelKey
from gpucost.core.rollups import FactKey

DIMENSIONS: Final = (
    "business_unit",
    "cluster",
    "namespace",
    "workload_kind",
    "workload",
    "node_pool",
    "instance_type",
    "capacity_type",
    "gpu_model",
    "resource",
    "zone",
    "pod",
    "node",
    "resource_claim",
    "dra_driver",
)
"""In addition, `label:<name>` is a dimension for each of the settings' `cost_labels`."""
LABEL_PREFIX: Final = "label:"
LINE_DIMENSIONS: Final = frozenset({"pod", "node", "resource_claim", "dra_driver"})
"""Dimensions that only an hour's lines have; day facts have the others, too."""
DAY_DIMENSIONS: Final = frozenset({"business_unit", "cluster"})
SUMMARY_DIMENSIONS: Final = DAY_DIMENSIONS | {"namespace"}
MODEL_DIMENSIONS: Final = ("cluster", *ModelKey._fields)
"""The dimensions of costs by model."""

GroupKey = tuple[str, ...]


def parse_group_by(text: str, labels: Sequence[str], names: Sequence[str] = DIMENSIONS) -> tuple[str, ...]:
    """Parse `business_unit,label:team`; "" is no grouping.

    Args:
        text: the parameter.
        labels: the settings' `cost_labels`.
        names: the other dimensions.

    Raises:
        ParameterError: a dimension that is unknown or repeated.
    """
    dimensions: list[str] = []
    allowed = (*names, *(f"{LABEL_PREFIX}{name}" for name in labels))
    for part in (part.strip() for part in text.split(",") if part.strip()):
        if part not in allowed:
            more = (
                ""
                if labels or names is not DIMENSIONS
                else f"; {LABEL_PREFIX}<name> for cost_labels of the settings, of which there are none"
            )
            raise ParameterError("group_by", f"{part!r} is not a dimension; allowed: {', '.join(allowed)}{more}")
        if part in dimensions:
            raise ParameterError("group_by", f"{part!r} is named twice; name it once")
        dimensions.append(part)
    return tuple(dimensions)


def key_of_names(dimensions: Sequence[str], cluster: str) -> Callable[[tuple[str, str]], GroupKey]:
    """Return a function that reads dimensions of an hour's summary from a business unit and a namespace."""
    return cache(
        lambda names: tuple(
            {"cluster": cluster, "business_unit": names[0], "namespace": names[1]}[name] for name in dimensions
        )
    )


def key_of_line(dimensions: Sequence[str], cluster: str) -> Callable[[Line], GroupKey]:
    """Return a function that reads dimensions from a line; a missing label is ""."""
    return lambda line: tuple(
        cluster
        if name == "cluster"
        else line.labels.get(name[len(LABEL_PREFIX) :], "")
        if name.startswith(LABEL_PREFIX)
        else getattr(line, name)
        for name in dimensions
    )


def key_of_fact(dimensions: Sequence[str], cluster: str) -> Callable[[FactKey], GroupKey]:
    """Return a function that reads dimensions from a day fact; a missing label is ""."""
    positions = {name: position for position, name in enumerate(FactKey._fields)}

    def reader_of(name: str) -> Callable[[FactKey], str]:
        if name == "cluster":
            return lambda _: cluster
        if name.startswith(LABEL_PREFIX):
            label = name[len(LABEL_PREFIX) :]
            return lambda fact: next((value for label_name, value in fact.labels if label_name == label), "")
        position = positions[name]
        return lambda fact: str(fact[position])

    readers = [reader_of(name) for name in dimensions]
    return lambda fact: tuple(reader(fact) for reader in readers)
