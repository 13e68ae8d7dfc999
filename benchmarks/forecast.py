"""Share of held-out sums inside the 80% interval, and its width, by kind of series, history and horizon.

`python -m benchmarks.forecast [TRIES]` (default: 40 of each). If statsmodels is installed, its Holt-Winters
smoothing (multiplicative hours of the week, no trend, 200 simulated futures) is measured, too. Nothing else depends on
it (requirements/forecast.txt):

    scripts/setup.sh forecast && PYTHONPATH=layers/common .tools/forecast/bin/python -m benchmarks.forecast 8

Series are simulated (tests/spend_series.py): four kinds of noise, and six in the shape of public GPU traces, each with
its source.
"""

import random
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from gpucost.features.recommendations.forecasts import forecast
from tests.spend_series import DAY, KINDS, SHAPES, START, WEEK

Answer = tuple[float, float, float]
"""(expected, low, high)."""


def ours(history: list[float], ahead: int) -> Answer | None:
    """The product's forecast."""
    prediction = forecast(history, START, ahead)
    return None if prediction is None else (prediction.expected, prediction.low, prediction.high)


def holt_winters(history: list[float], ahead: int) -> Answer | None:
    """The forecast of statsmodels."""
    smoothing = import_module("statsmodels.tsa.holtwinters").ExponentialSmoothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = smoothing([max(1e-3, value) for value in history], seasonal="mul", seasonal_periods=WEEK)
        fit = model.fit(optimized=True, use_brute=False)
        sums = sorted(fit.simulate(ahead, repetitions=200, error="mul", rng=1).sum(axis=0))
    return float(fit.forecast(ahead).sum()), float(sums[20]), float(sums[179])


def main(tries: int) -> None:
    """Measure and print."""
    methods: dict[str, Callable[[list[float], int], Answer | None]] = {"ours": ours}
    if find_spec("statsmodels"):
        methods["Holt-Winters"] = holt_winters
    for kind in (*KINDS, *SHAPES):
        for weeks, days in ((4, 7), (4, 15), (8, 7), (8, 15), (8, 28)):
            for name, method in methods.items():
                inside, width, error, began = 0, 0.0, 0.0, time.process_time()
                for seed in range(tries):
                    series = [value or 0.0 for value in kind(random.Random(seed), weeks * WEEK + days * DAY)]
                    prediction = method(series[: weeks * WEEK], days * DAY)
                    if prediction is None:
                        continue
                    expected, low, high = prediction
                    actual = sum(series[weeks * WEEK :])
                    inside += low <= actual <= high
                    width += (high - low) / 2 / expected / tries
                    error += abs(actual / expected - 1) / tries
                seconds = (time.process_time() - began) / tries
                case = f"{kind.__name__:<12} {weeks} weeks of history, {days:>2} days ahead, {name}"
                figures = f"{inside / tries:4.0%} inside ± {width:.1%}, mean error {error:.1%}, {seconds:.2f} s"
                print(f"{case}: {figures}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
