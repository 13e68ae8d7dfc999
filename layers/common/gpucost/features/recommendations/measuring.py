"""What the look-back says of a workload in a few figures, and whether that is enough to advise anything."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from gpucost.features.recommendations.history import LookBack, WorkloadHistory, runs_of
from gpucost.features.recommendations.model import HOURS_OF_MONTH, About, Evidence, Saving, cents, ratio

LEAST_HOURS = 168
"""A week: shorter histories do not show what weekends are like."""
LEAST_COVERAGE = 0.9
"""Part of the GPU-hours held whose use must have been observed."""
LEAST_KNOWN = 0.9
"""Part of the hours since a workload was first seen that must have figures."""
LEAST_PRICED = 0.9
"""Part of the hours with figures that must have a price; the others are left out of money."""
NEWEST = 24
"""Hours that say what is held now."""
_WEEK, _DAY = 168, 24
_ENDED = 6
"""Hours without anything that held something a week before: it has ended, and is not at its night or weekend."""
_LESS = 0.8
"""Of what the same hours of earlier weeks would have saved; below, only what the newest day says is claimed."""
_WATCHED = 0.05
"""Hours of which less of what was held was observed say nothing about peaks."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload over the look-back."""

    history: WorkloadHistory
    first: int
    """Place of the first hour in which it held something."""
    hours: int
    """Hours with figures from there on."""
    holding: int
    """Of these, those in which it held something."""
    coverage: float
    mean: float | None
    """Use over what was observed."""
    peak: float | None
    """Of the busiest hour."""
    peak_gpus: float
    """Physical GPUs used in the hour in which most were, unobserved parts taken as the observed ones."""
    pod_peak: float
    """Mean utilization of the busiest pod in its busiest hour; -1 where nobody saw any."""
    now: float
    """Physical GPUs held in the newest day on average, or in the newest week where that day is always without; 0 where
    it has ended."""
    usd_hourly: float
    """Mean cost of an hour, of those that have a price."""
    priced: float
    """Part of the hours in which it held something of which all has a price."""

    @property
    def lacks(self) -> str:
        """Why nothing can be advised, in words; "" where something can."""
        if self.now <= 0:
            return "holds nothing any more"
        if self.hours < LEAST_HOURS:
            return f"seen for {self.hours} hours; advice needs {LEAST_HOURS}"
        if self.mean is None or self.coverage < LEAST_COVERAGE:
            return f"use was observed for {self.coverage:.0%} of what it held; advice needs {LEAST_COVERAGE:.0%}"
        if self.priced < LEAST_PRICED:
            return f"all of what it held has a price in {self.priced:.1%} of its hours; advice needs {LEAST_PRICED:.0%}"
        return ""


def measure(look: LookBack, history: WorkloadHistory, since: int = 0) -> Measured | None:
    """A workload's figures.

    Args:
        look: the look-back that it is of.
        history: the workload's.
        since: place of the first hour that counts: what was before an applied advice says nothing about now.

    Returns:
        None where it held nothing, or where too many hours since it was first seen have no figures.
    """
    span = runs_of(history.held[since:])
    if span is None:
        return None
    first = since + span[0]
    known = sum(look.known[first:])
    if known < LEAST_KNOWN * (look.hours - first):
        return None
    places = [place for place in range(first, look.hours) if history.held[place] > 0]
    held = sum(history.held[place] for place in places)
    observed = sum(history.observed[place] for place in places)
    used = sum(history.used[place] for place in places)
    peak, peak_gpus = None, 0.0
    for place in places:
        seen = history.observed[place]
        if seen > _WATCHED * history.held[place]:
            busy = history.used[place] / seen
            peak = busy if peak is None else max(peak, busy)
            peak_gpus = max(peak_gpus, busy * history.held[place])
    now = 0.0
    if not _has_ended(look, history.held, first):
        now = _newest(look, history.held, first, NEWEST) or _newest(look, history.held, first, _WEEK)
    priced = look.priced(history.unpriced, first)
    return Measured(
        history, first, known, len(places), min(1.0, observed / held), used / observed if observed > 0 else None,
        peak, peak_gpus, max(history.busiest[place] for place in places), now,
        sum(history.usd[place] for place in priced) / max(1, len(priced)),
        1 - sum(history.unpriced[place] for place in places) / len(places),
    )  # fmt: skip


def _newest(look: LookBack, held: Sequence[float], first: int, hours: int) -> float:
    newest = [place for place in range(max(first, look.hours - hours), look.hours) if look.known[place]]
    return sum(held[place] for place in newest) / len(newest) if newest else 0.0


def _has_ended(look: LookBack, held: Sequence[float], first: int) -> bool:
    """Whether the newest hours are without, though the same hours of the week before (or the newest day) were not."""
    last = max(place for place in range(first, look.hours) if held[place] > 0)
    lost = 0
    for place in range(last + 1, look.hours):
        if look.known[place]:
            before = (place - _WEEK, *range(place - _DAY, first - 1, -_DAY))
            lost += next((held[at] > 0 for at in before if first <= at <= last and look.known[at]), False)
    return lost >= _ENDED


def about_workload(cluster: str, history: WorkloadHistory) -> About:
    """A workload as what advice is about."""
    key = history.key
    return About(
        cluster, key.business_unit, key.namespace, key.kind, key.name, gpu_model=key.gpu_model, resource=key.resource
    )


def evidence_of(look: LookBack, measured: Measured, facts: dict[str, str]) -> Evidence:
    """What advice on a workload rests on."""
    return Evidence(
        look.moment(measured.first), look.moment(look.hours - 1), measured.holding,
        look.hours - measured.first - measured.hours, ratio(measured.coverage), ratio(measured.mean),
        ratio(measured.peak), facts | told_unpriced(sum(measured.history.unpriced[measured.first :]), measured.holding),
    )  # fmt: skip


def told_unpriced(without: int, hours: int) -> dict[str, str]:
    """How many hours are left out of money, where there are any."""
    return {"without a price": f"{without} of {hours} hours, left out of the saving"} if without else {}


def saving_of(
    look: LookBack,
    first: int,
    freed: Callable[[int], tuple[float, float]],
    cash: float | None,
    list_ratio: float | None,
    unpriced: Sequence[int],
) -> Saving:
    """What not spending a part of each hour comes to in a month.

    Args:
        look: the look-back.
        first: place of the first hour that counts.
        freed: USD and GPU-hours that an hour would not have cost, by its place.
        cash: the part of the money that is cash; None where it is not known.
        list_ratio: list price ÷ the rates charged; None where it is not known.
        unpriced: 1 for hours in which a part of the thing has no price; they do not count.

    What held more until lately, and shrank or ended, has less to save than the look-back's mean: then it is the mean
    in the proportion of the newest day to the same hours of earlier weeks.
    """
    places = look.priced(unpriced, first)
    hours = [freed(place) for place in places]
    if not hours:
        return Saving(cents(0), cents(0), cents(0), None, None, cents(0))
    left = _left(dict(zip(places, (usd for usd, _ in hours), strict=True)), look.hours)
    hours = [(usd * left, gpu * left) for usd, gpu in hours]
    monthly = sum(usd for usd, _ in hours) / len(hours) * HOURS_OF_MONTH
    gpu_hours = sum(gpu for _, gpu in hours) / len(hours) * HOURS_OF_MONTH
    error = 2 * _standard_error([usd for usd, _ in hours]) * HOURS_OF_MONTH
    low, high = monthly - error, monthly + error
    if monthly >= 0:
        low = max(0.0, low)
    return Saving(
        cents(monthly), cents(low), cents(high), None if list_ratio is None else cents(monthly * list_ratio),
        None if cash is None else cents(monthly * cash), cents(gpu_hours),
    )  # fmt: skip


def _left(usd: Mapping[int, float], end: int) -> float:
    """What the newest day frees over what the same hours of earlier weeks did; 1 where it is about as much or more."""
    newest = usual = 0.0
    for place in range(end - NEWEST, end):
        weeks = [usd[at] for at in range(place - _WEEK, -1, -_WEEK) if at in usd]
        if place in usd and weeks:
            newest += usd[place]
            usual += sum(weeks) / len(weeks)
    left = newest / usual if usual else 1.0
    return max(0.0, left) if left < _LESS else 1.0


def list_ratio_of(look: LookBack, history: WorkloadHistory) -> float | None:
    """List price ÷ what was charged for a workload; None where a price of its instance types is not known.

    A GPU of a node is taken at the node's list price ÷ the node's GPUs, as the default split does.
    """
    if history.cash.is_listed:
        return 1.0
    charged = sum(history.usd)
    listed = 0.0
    for pool, gpu_hours in history.pools.items():
        node_hour = look.list_prices.get(pool.instance_type)
        own = look.pools[pool]
        nodes = sum(own.nodes)
        if node_hour is None or not nodes or not sum(own.capacity):
            return None
        listed += gpu_hours / 1000 * node_hour * nodes / sum(own.capacity)
    listed *= 1 - history.unpriced_gpu_hours / sum(history.held)
    return listed / charged if charged and listed else None


def _standard_error(hours: Sequence[float]) -> float:
    """Of the mean hour, by whole days: hours of one day are not independent of each other."""
    days = [sum(hours[at : at + 24]) / len(hours[at : at + 24]) for at in range(0, len(hours), 24)]
    if len(days) <= 1:
        return 0.0
    mean = sum(days) / len(days)
    return sqrt(sum((day - mean) ** 2 for day in days) / (len(days) - 1) / len(days))
