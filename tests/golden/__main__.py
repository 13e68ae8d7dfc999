"""Record golden answers, and check that the product still gives them.

    python -m tests.golden record [NAME ...]                # inputs and answers, anew
    python -m tests.golden record --inputs-only [NAME ...]  # Prometheus' answers to today's queries; answers must stay
    python -m tests.golden check [NAME ...] [--texts]       # compare; --texts: sentences for people, too
"""

import argparse
import sys
import time
from pathlib import Path

from tests.golden import adapter, recording
from tests.golden.scenarios import NAMES


def main() -> int:
    """Exit status 0: all answers are equal, or were recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="record again")
    record.add_argument("--inputs-only", action="store_true", help="keep the recorded answers, and check them")
    check = commands.add_parser("check", help="compare with what is recorded")
    check.add_argument("--texts", action="store_true", help="compare sentences for people, too")
    check.add_argument("--root", type=Path, default=adapter.REPOSITORY, help="a copy of the repository to check")
    check.add_argument("--most", type=int, default=40, help="differences to print of each scenario")
    for command in (record, check):
        command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all where not given")
        command.add_argument("--steps", action="store_true", help="print each step as it begins")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"{sorted(unknown)[0]!r} is not a scenario; there are {', '.join(NAMES)}")
    tell = print if options.steps else lambda _: None
    failed = False
    with adapter.running_dynamodb() as dynamodb:
        for name in options.names or NAMES:
            began = time.monotonic()
            if options.command == "record":
                found = recording.record(name, dynamodb, inputs_only=options.inputs_only, tell=tell)
                verb = "recorded"
            else:
                found = recording.check(name, dynamodb, root=options.root, texts=options.texts, tell=tell)
                verb = "checked"
            failed |= bool(found)
            print(recording.report(found, getattr(options, "most", 40)), end="")
            print(f"{name}: {verb} in {time.monotonic() - began:.0f} s, {len(found)} differences", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
