"""An hour of a cluster in which a tenth of the pods serve models with vLLM, with and without their tokens (make bench).

Instructions of our own code are counted, and so repeat on every machine with the same Python.
"""

from functools import partial

from benchmarks.core import instructions
from benchmarks.figures import Figure, against, in_turns, stand_alone
from benchmarks.hour import ROUNDS, attribute, cluster, recorded_queries

SERVER_SHARE = 10
"""One of so many pods serves a model."""


def figures(quick: bool) -> list[Figure]:
    """Figures of one cluster."""
    pods = 1_000 if quick else 10_000
    with cluster(pods, servers=pods // SERVER_SHARE) as (url, hour):
        with_tokens, without = (partial(attribute, url, hour, inference=enabled) for enabled in (True, False))
        queries, floor = (len(recorded_queries(url, hour, inference=enabled)) for enabled in (True, False))
        executed, executed_without = instructions(with_tokens), instructions(without)
        seconds, seconds_without = in_turns(with_tokens, without, 3 if quick else ROUNDS)
    subject = f"hour of {pods:,} pods, of which {pods // SERVER_SHARE:,} serve models"
    return [
        Figure(f"{subject}: queries", queries, aim=floor + 1),
        Figure(f"{subject}: instructions, ÷ without tokens", executed, floor=executed_without, aim=1.05),
        against(f"{subject}: time, ÷ without tokens", seconds, seconds_without, None),
    ]


if __name__ == "__main__":
    stand_alone(figures, __doc__)
