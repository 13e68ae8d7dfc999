"""How fresh the price book is."""

from datetime import datetime

from gpucost.storage.price_book import PriceStore


def newest_price(book: PriceStore) -> datetime | None:
    """When spot prices were last fetched; None where none ever were. (Lists are fetched anew only when they change.)"""
    return max((one.fetched_at for one in book.newest("spot") if one.fetched_at is not None), default=None)
