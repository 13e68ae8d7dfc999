"""What nodes cost at list price, as far as the price book knows."""

from typing import Literal, Protocol

from gpucost.domain.prices import Price


class PriceLists(Protocol):
    """The price book, as far as advice reads it."""

    def newest(self, source: Literal["spot", "on-demand"]) -> list[Price]:
        """The newest known prices of a source."""
        ...


def node_list_prices(book: PriceLists) -> dict[str, float]:
    """USD per node-hour on demand, by instance type; a type whose regions differ in price is left out."""
    found: dict[str, set[float]] = {}
    for price in book.newest("on-demand"):
        if price.unit == "node-hour" and price.valid_to is None and "instance_type" in price.applies_to:
            found.setdefault(price.applies_to["instance_type"], set()).add(float(price.amount))
    return {name: prices.pop() for name, prices in found.items() if len(prices) == 1}
