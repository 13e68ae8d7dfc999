"""Bounds the names of models and consumers, which any pod with counters may invent.

Names beyond the bounds count together under one name, so that no tokens and no costs are lost.
"""

from collections.abc import Iterable, Mapping

OTHERS = "(others)"
MAX_LENGTH = 200
"""Characters of a name. A path of a model on a disk is shorter."""
MAX_NAMES_OF_POD = 50
"""Models of a pod, and consumers of its models, that are named."""
MAX_NAMES_OF_UNIT = 500
"""Models of a business unit, and its consumers, that are named in an hour."""


def bounded_names(weights: Iterable[tuple[str, int]], count: int) -> Mapping[str, str] | None:
    """Return the name that each name counts under; None if all of them are within the bounds.

    Args:
        weights: names with what they count for; those with the largest sums keep their name.
        count: how many keep their name.
    """
    sums: dict[str, int] = {}
    for name, weight in weights:
        sums[name] = sums.get(name, 0) + weight
    short = [name for name in sums if len(name) <= MAX_LENGTH]
    if len(short) == len(sums) <= count:
        return None
    kept = set(sorted(short, key=lambda name: (-sums[name], name))[:count])
    return {name: name if name in kept else OTHERS for name in sums}
