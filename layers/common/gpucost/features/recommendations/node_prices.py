"""What nodes would cost otherwise: on spot, or with a commitment."""

from typing import NamedTuple


class SpotPrice(NamedTuple):
    """USD per node-hour of an instance type on spot over the look-back, in the zone that was dearest on average."""

    usd: float
    """By time."""
    low: float
    high: float


class ReservedPrice(NamedTuple):
    """What a commitment charges for an instance type."""

    usd: float
    """Per node-hour."""
    scope: str
    """What is committed to: the instance type, or its family as `g5.*`."""
