"""Hourly spend of a business unit: simulated noise, and the shapes of public GPU traces.

Shapes are not the traces, and not fitted to them: medians, tails and cycles are the published ones as far as named
below; arrivals are drawn. The traces themselves are too large to carry, and their licenses differ.

- `pai`: Alibaba PAI (Weng et al., MLaaS in the Wild, NSDI 2022): two months, over 6,500 GPUs; run times have a median
  of 23 minutes and a 90th percentile of 4.5 hours; submissions follow the day; most tasks have one GPU or a part of it.
- `philly`: Microsoft Philly (Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads,
  ATC 2019): training from minutes to weeks, 0.5% of jobs longer than a week, gangs of up to 16 GPUs and more.
- `azure`: Azure LLM inference (Stojkovic et al., DynamoLLM, HPCA 2025): demand that follows the working day and the
  week, with bursts of minutes; replicas are scaled to it.
- `launch`, `growth`, `campaign`: what such clusters do besides: a service that comes to stay, 1% more every day, and
  training that runs for some weeks and ends. The start and the end of such a phase cannot be foreseen.
"""

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime

START = datetime(2026, 9, 1, tzinfo=UTC)
DAY, WEEK = 24, 168
Series = list[float | None]


def weekly(hour: int) -> float:
    """High spend during weekdays. 1 September 2026 is a Tuesday."""
    day, clock = (hour // DAY + 1) % 7, hour % DAY
    return 160.0 if day < 5 and 8 <= clock < 20 else 100.0


def independent(rng: random.Random, hours: int) -> Series:
    """Independent noise for each hour."""
    return [weekly(hour) * (1 + rng.gauss(0, 0.1)) for hour in range(hours)]


def correlated(rng: random.Random, hours: int) -> Series:
    """Autocorrelated days, as caused by jobs and releases."""
    series: Series = []
    day = 0.0
    for hour in range(hours):
        day = 0.7 * day + rng.gauss(0, 0.08) if hour % DAY == 0 else day
        series.append(max(0.0, weekly(hour) * (1 + day + rng.gauss(0, 0.05))))
    return series


def wandering(rng: random.Random, hours: int) -> Series:
    """A level that follows a random walk of 3% a day."""
    level, series = 1.0, Series()
    for hour in range(hours):
        level *= math.exp(rng.gauss(0, 0.03)) if hour % DAY == 0 else 1.0
        series.append(level * weekly(hour))
    return series


def bursts(rng: random.Random, hours: int) -> Series:
    """Spot batches: now and then an hour costs four times as much (heavy tails, as public GPU cluster traces show)."""
    return [weekly(hour) * (4 if rng.random() < 0.02 else 1) for hour in range(hours)]


KINDS: list[Callable[[random.Random, int], Series]] = [independent, correlated, wandering, bursts]


# Shapes of public traces


def _cycle(hour: int, night: float, weekend: float) -> float:
    """Part of the busiest hour's demand; 1 September 2026, the series' first day, is a Tuesday."""
    clock, weekday = hour % DAY, (hour // DAY + 1) % 7
    by_day = night + (1 - night) * max(0.0, math.sin(math.pi * (clock - 6) / 16)) if 6 <= clock <= 22 else night
    return by_day * (weekend if weekday >= 5 else 1.0)


def _jobs(
    rng: random.Random,
    hours: int,
    hourly: float,
    median: float,
    sigma: float,
    gpus: dict[float, float],
    night: float,
    weekend: float,
) -> Series:
    """GPU-hours of jobs that come as the day has it and run lognormally long; a month of jobs runs before the start."""
    series = [0.0] * hours
    before = 4 * WEEK
    sizes, weights = list(gpus), list(gpus.values())
    for hour in range(-before, hours):
        mean = hourly * _cycle(hour % WEEK, night, weekend)
        for _ in range(_poisson(rng, mean)):
            begin = hour + rng.random()
            end = begin + min(median * math.exp(sigma * rng.gauss(0, 1)), 4.0 * WEEK)
            size = rng.choices(sizes, weights)[0]
            for busy_hour in range(max(0, math.floor(begin)), min(hours, math.ceil(end))):
                series[busy_hour] += size * (min(end, busy_hour + 1) - max(begin, busy_hour))
    return list(series)


def _poisson(rng: random.Random, mean: float) -> int:
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count


def pai(rng: random.Random, hours: int) -> Series:
    """ln(4.5 h ÷ 23 min) ÷ 1.2816 = 1.92."""
    return _jobs(rng, hours, 20, 23 / 60, 1.92, {0.25: 2, 0.5: 3, 1: 4, 2: 1}, 0.4, 0.7)


def philly(rng: random.Random, hours: int) -> Series:
    """A median of 15 minutes and a week at 99.5%: ln(672) ÷ 2.576 = 2.53."""
    return _jobs(rng, hours, 8, 0.25, 2.53, {1: 75, 2: 9, 4: 9, 8: 5, 16: 2}, 0.6, 0.8)


def azure(rng: random.Random, hours: int) -> Series:
    """Replicas follow demand, with bursts that last part of an hour."""
    series: Series = []
    for hour in range(hours):
        demand = 40 * _cycle(hour, 0.3, 0.5) * (1 + rng.gauss(0, 0.05))
        burst = 40 * rng.uniform(0.1, 0.5) * rng.random() if rng.random() < 0.03 else 0.0
        series.append(max(2.0, math.ceil(demand) + burst))
    return series


def launch(rng: random.Random, hours: int) -> Series:
    """A service of half the size starts at some time and stays."""
    at = rng.randint(2 * WEEK, hours)
    return [(usd or 0) + (20.0 if hour >= at else 0.0) for hour, usd in enumerate(azure(rng, hours))]


def growth(rng: random.Random, hours: int) -> Series:
    """1% more every day."""
    return [(usd or 0) * 1.01 ** (hour / DAY) for hour, usd in enumerate(azure(rng, hours))]


def campaign(rng: random.Random, hours: int) -> Series:
    """64 GPUs for one to three weeks at a time."""
    series = philly(rng, hours)
    at = rng.randint(0, 3 * WEEK)
    while at < hours:
        length = rng.randint(WEEK, 3 * WEEK)
        for hour in range(at, min(hours, at + length)):
            series[hour] = (series[hour] or 0) + 64
        at += length + rng.randint(2 * WEEK, 6 * WEEK)
    return series


SHAPES: list[Callable[[random.Random, int], Series]] = [pai, philly, azure, launch, growth, campaign]
