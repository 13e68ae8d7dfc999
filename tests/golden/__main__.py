"""Record golden answers, and check that the product still gives them.

python -m tests.golden record [NAME ...]                # inputs and answers, again
python -m tests.golden record --inputs-only [NAME ...]  # Prometheus' answers to today's queries; answers must stay
python -m tests.golden record --answers-only [NAME ...] # our answers to the recorded inputs; prints what changed
python -m tests.golden check [NAME ...] [--texts]       # compare; --texts: sentences for people, too
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.golden import adapter, recording, summary
from tests.golden.compare import Difference
from tests.golden.scenarios import NAMES


def main() -> int:
    """Exit status 0: all answers are equal, or were recorded."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="record again")
    kept = record.add_mutually_exclusive_group()
    kept.add_argument("--inputs-only", action="store_true", help="keep the recorded answers, and check them")
    kept.add_argument("--answers-only", action="store_true", help="keep the recorded inputs, and print what changed")
    check = commands.add_parser("check", help="compare with what is recorded")
    check.add_argument("--texts", action="store_true", help="compare sentences for people, too")
    check.add_argument("--root", type=Path, default=adapter.REPOSITORY, help="a copy of the repository to check")
    check.add_argument("--most", type=int, default=40, help="differences to print of each scenario")
    counted = commands.add_parser("summary", help="count what the recorded answers cover")
    for command in (record, check, counted):
        command.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all where not given")
        command.add_argument("--jobs", type=int, default=2, help="scenarios at once")
        command.add_argument("--steps", action="store_true", help="print each step as it begins")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"{sorted(unknown)[0]!r} is not a scenario; there are {', '.join(NAMES)}")
    names = options.names or NAMES
    if options.command == "summary":
        print("\n".join(map(summary.text, names)))
        return 0

    def run(name: str) -> tuple[float, list[Difference]]:
        def log(step: str) -> None:
            if options.steps:
                print(f"{name}: {step}", flush=True)

        began = time.monotonic()
        if options.command == "record" and options.answers_only:
            changes = recording.record_answers(name, dynamodb, log=log)
        elif options.command == "record":
            changes = recording.record(name, dynamodb, inputs_only=options.inputs_only, log=log)
        else:
            changes = recording.check(name, dynamodb, root=options.root, texts=options.texts, log=log)
        return time.monotonic() - began, changes

    failed = False
    verb = "recorded" if options.command == "record" else "checked"
    with adapter.running_dynamodb() as dynamodb, ThreadPoolExecutor(options.jobs) as pool:
        for name, (seconds, changes) in zip(names, pool.map(run, names), strict=True):
            failed |= bool(changes) and not getattr(options, "answers_only", False)
            print(recording.report(changes, getattr(options, "most", 1000)), end="")
            print(f"{name}: {verb} in {seconds:.0f} s, {len(changes)} differences", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
