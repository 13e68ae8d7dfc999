"""One cluster's review: every kind of advice on one look-back, and how every workload stands."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from gpucost.domain.advice.history import LookBack
from gpucost.domain.advice.model import Review
from gpucost.domain.advice.packing import consolidate
from gpucost.domain.advice.rightsizing import judge
from gpucost.domain.advice.slicing import plan_slices
from gpucost.domain.hours import HOUR


def review(look: LookBack, now: datetime, since: Mapping[str, int]) -> Review:
    """What to change, and how everything stands.

    Args:
        look: the look-back.
        now: the time.
        since: by id of advice, place of the first hour after it was applied.

    Returns:
        Without advice where the hours are of several currencies: their sums mean nothing.
    """
    judged, measured, advice = judge(look, since)
    advice += plan_slices(look, measured, {one.about for one in advice})
    advice += consolidate(look)
    currency = next(iter(look.currencies)) if len(look.currencies) == 1 else ""
    found = [replace(one, currency=currency) for one in advice] if currency else []
    return Review(
        look.cluster, look.start, look.start + HOUR * look.hours, now, sum(look.known), tuple(found), tuple(judged),
        currency or "USD",
    )  # fmt: skip
