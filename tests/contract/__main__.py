"""`python -m tests.contract [EXAMPLES [PROCESSES]]`: schemathesis, all checks, as admin and as one business unit."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from local.dynamodb_local import running_dynamodb
from tests.contract.running import ADMIN, RESEARCH, running_api
from tests.contract.schemathesis_run import Done, run

EXAMPLES = 450
"""Of each operation in each run: some 23,000 cases in all."""
RUNS = [(ADMIN, 1), (ADMIN, 2), (RESEARCH, 3), (ADMIN, 4)]
"""Whose, and the seed. Making up cases takes longer than answering them: several processes make them up."""


def main(arguments: list[str]) -> int:
    """Exit status 0: nothing found."""
    examples = int(arguments[0]) if arguments else EXAMPLES
    processes = int(arguments[1]) if len(arguments) > 1 else os.cpu_count() or 1
    with running_dynamodb() as url:
        began = time.monotonic()
        with running_api(url) as address, ThreadPoolExecutor(processes) as pool:
            print(f"a month is there after {time.monotonic() - began:.0f} s", flush=True)

            def one(who: str, seed: int) -> Done:
                started = time.monotonic()
                done = run(address, who, examples=examples, seed=seed)
                took = time.monotonic() - started
                print(done.output, f"{who}, seed {seed}: {done.cases:,} cases in {took:.0f} s, exit status {done.status}",
                      sep="\n", flush=True)  # fmt: skip
                return done

            found = list(pool.map(lambda job: one(*job), RUNS))
    print(f"{sum(done.cases for done in found):,} cases in {time.monotonic() - began:.0f} s")
    return max(done.status for done in found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
