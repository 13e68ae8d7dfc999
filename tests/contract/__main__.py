"""`python -m tests.contract [EXAMPLES [PROCESSES]]`: schemathesis, all checks, as admin and as one business unit."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from gpucost_devstack.dynamodb_local import running_dynamodb
from tests.contract.running import ADMIN, RESEARCH, running_api
from tests.contract.schemathesis_run import Done, run

EXAMPLES = 150
"""Cases per operation and run, more than 20,000 in total."""
RUNS = [
    (ADMIN, "examples,coverage,fuzzing,stateful"),
    (RESEARCH, "examples,coverage,fuzzing,stateful"),
    *((ADMIN, "fuzzing") for _ in range(8)),
    *((RESEARCH, "fuzzing") for _ in range(3)),
]
"""Whose, and the phases; each has a seed of its own. What the coverage phase tries is the same each time: once is enough.
"""


def main(arguments: list[str]) -> int:
    """Exit with 0 if nothing was found."""
    examples = int(arguments[0]) if arguments else EXAMPLES
    processes = int(arguments[1]) if len(arguments) > 1 else os.cpu_count() or 1
    with running_dynamodb() as url:
        began = time.monotonic()
        with running_api(url) as address, ThreadPoolExecutor(processes) as pool:
            print(f"a month is there after {time.monotonic() - began:.0f} s", flush=True)

            def run_once(seed: int, identity: str, phases: str) -> Done:
                started = time.monotonic()
                done = run(address, identity, examples=examples, phases=phases, seed=seed)
                summary = f"{done.cases:,} cases in {time.monotonic() - started:.0f} s, exit status {done.status}"
                print(
                    done.output if done.status else "",
                    f"{identity}, {phases}, seed {seed}: {summary}",
                    sep="\n",
                    flush=True,
                )
                return done

            runs = list(pool.map(lambda job: run_once(job[0], *job[1]), enumerate(RUNS, 1)))
    print(f"{sum(done.cases for done in runs):,} cases in {time.monotonic() - began:.0f} s")
    return max(done.status for done in runs)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
