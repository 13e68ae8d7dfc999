"""How many held-out sums fall inside the 80% interval, by kind of series, history and horizon; and how wide it is.

`python -m benchmarks.forecast [TRIES]` (40 of each where not given).
"""

import random
import sys

from gpucost.domain.advice.forecast import forecast
from tests.domain.advice.test_forecast import DAY, KINDS, START, WEEK


def main(tries: int) -> None:
    """Try and say."""
    for kind in KINDS:
        for weeks, ahead in ((4, 7), (4, 15), (8, 7), (8, 15), (8, 28)):
            inside, width, error = 0, 0.0, 0.0
            for seed in range(tries):
                series = kind(random.Random(seed), weeks * WEEK + ahead * DAY)
                found = forecast(series[: weeks * WEEK], START, ahead * DAY)
                if found is None:
                    continue
                actual = sum(value or 0.0 for value in series[weeks * WEEK :])
                inside += found.low <= actual <= found.high
                width += (found.high - found.low) / 2 / found.expected / tries
                error += abs(actual / found.expected - 1) / tries
            print(
                f"{kind.__name__:<12} {weeks} weeks known, {ahead:>2} days ahead: {inside / tries:4.0%} inside "
                f"± {width:.1%}, mean error {error:.1%}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
