"""How many random cases the tests try: all of them in the nightly run, a fifth of them in the others."""

import os

VARIABLE = "GPUCOST_ALL_CASES"
"""The option `--all-cases` of pytest sets it, for the processes that tests start, too."""
SHARE = 5


def tried(cases: int) -> int:
    """How many of a number of cases this run tries."""
    return cases if os.environ.get(VARIABLE) else max(1, cases // SHARE)
