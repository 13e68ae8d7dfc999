"""What nodes cost at list price and on spot, as far as the price book knows; in USD, as AWS lists it."""

from datetime import UTC, datetime
from typing import Literal, Protocol

from gpucost.domain.prices import Price

_EVER = datetime(1, 1, 1, tzinfo=UTC)


class PriceLists(Protocol):
    """The price book, as far as advice reads it."""

    def newest(self, source: Literal["spot", "on-demand"]) -> list[Price]:
        """The newest known prices of a source."""
        ...


def node_list_prices(book: PriceLists) -> dict[str, float]:
    """USD per node-hour on demand, by instance type; a type whose regions differ in price is left out."""
    found: dict[str, set[float]] = {}
    for price in _of_nodes(book.newest("on-demand")):
        if price.valid_to is None:
            found.setdefault(price.applies_to["instance_type"], set()).add(float(price.amount))
    return {name: prices.pop() for name, prices in found.items() if len(prices) == 1}


def node_spot_prices(book: PriceLists) -> dict[str, float]:
    """USD per node-hour on spot, by instance type: the dearest zone's newest."""
    newest: dict[tuple[str, str, str], Price] = {}
    for price in _of_nodes(book.newest("spot")):
        facts = price.applies_to
        key = facts["instance_type"], facts.get("region", ""), facts.get("zone", "")
        known = newest.get(key)
        if known is None or (price.valid_from or _EVER) >= (known.valid_from or _EVER):
            newest[key] = price
    found: dict[str, float] = {}
    for (name, _, _), price in newest.items():
        found[name] = max(found.get(name, 0.0), float(price.amount))
    return found


def _of_nodes(prices: list[Price]) -> list[Price]:
    return [
        price
        for price in prices
        if price.unit == "node-hour" and price.currency == "USD" and "instance_type" in price.applies_to
    ]
