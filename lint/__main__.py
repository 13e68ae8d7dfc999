"""Checks that read the sources, in one process that reads each file once: `python -m lint`."""

import sys

from lint import docstrings, language, patches
from lint.sources import sources


def main() -> int:
    """Print every problem, and return the exit status."""
    files = sources()
    problems = [problem for module in (language, patches, docstrings) for problem in module.check(files)]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
