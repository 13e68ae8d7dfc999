"""`python -m tests.contract [EXAMPLES]`: schemathesis, all checks, as admin and as one business unit."""

import sys
import time

from local.dynamodb_local import running_dynamodb
from tests.contract.running import ADMIN, RESEARCH, running_api
from tests.contract.schemathesis_run import run


def main(arguments: list[str]) -> int:
    """Exit status 0: nothing found."""
    examples = int(arguments[0]) if arguments else 1_500
    with running_dynamodb() as url:
        began = time.monotonic()
        with running_api(url) as address:
            print(f"a month is there after {time.monotonic() - began:.1f} s")
            whole, status = 0, 0
            for who, count in ((ADMIN, examples), (RESEARCH, examples // 5)):
                began = time.monotonic()
                done = run(address, who, examples=count)
                took = time.monotonic() - began
                print(done.output, f"{who}: {done.cases:,} cases in {took:.0f} s, exit status {done.status}", sep="\n")
                whole, status = whole + done.cases, status or done.status
    print(f"{whole:,} cases")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
