"""The age of the price book."""

from datetime import datetime

from gpucost.storage.price_book import PriceStore


def last_spot_fetch(book: PriceStore) -> datetime | None:
    """Return when spot prices were last fetched; None if never. (Price lists are stored only when they change.)"""
    return max((price.fetched_at for price in book.newest("spot") if price.fetched_at is not None), default=None)
