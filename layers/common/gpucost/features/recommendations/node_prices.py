"""Prices of nodes on spot capacity or with a commitment."""

from typing import NamedTuple


class SpotPrice(NamedTuple):
    """Spot price of an instance type over the look-back in USD per node-hour, in the most expensive zone on average."""

    usd: float
    """Mean over time."""
    low: float
    high: float


class ReservedPrice(NamedTuple):
    """The price of an instance type with a commitment."""

    usd: float
    """USD per node-hour."""
    scope: str
    """The commitment's scope: the instance type, or its family such as `g5.*`."""
    basis: str = ""
    """The percentage of a built-in list price that it is, with the price's day and region."""
