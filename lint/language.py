"""Counts names that say nothing, and refuses more of them than there were.

`lint/language.json` has the counts of bound names (variables, parameters, functions, classes, attributes).
`python -m lint.language` fails when a count has grown, and warns where it has grown in tests. `--update` records the
counts. `--show WORD` lists where a word stands. Words of texts are checked by codespell, with `lint/terms.txt`.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lint.sources import Source, sources

BASELINE = Path(__file__).with_name("language.json")
FILLER_NAMES = frozenset(
    [
        "one",
        "own",
        "found",
        "known",
        "place",
        "given",
        "told",
        "asked",
        "had",
        "who",
        "what",
        "half",
        "news",
        "thing",
        "stuff",
        "obj",
    ]  # say nothing
)
SWAPS = ("item", "value", "data")
"""Names that are right for a DynamoDB item or a sample's value, and filler anywhere else: their count may not grow."""
FIELD_NAMES = frozenset(
    ["what_if", "known_until", "hours_known"]  # a what-if analysis; fields of the API's answers
)
"""Names that hold such a word and say what they are."""
SUFFIXES = (".py", ".md", ".ts", ".tsx", ".css", ".html", ".yaml", ".yml", ".toml", ".sh", ".mako", ".j2")
SKIPPED = ("lint/language", "CHANGELOG.md", "tests/golden/recorded/")

Counts = dict[str, dict[str, int]]


def counted(files: Iterable[Source]) -> list[Source]:
    """The texts that people wrote, without generated and archived ones."""
    return [file for file in files if file.name.endswith(SUFFIXES) and not file.name.startswith(SKIPPED)]


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every name that a module binds, once for each time that it does."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def words_of(text: str) -> Iterator[str]:
    """The words of a text in lower case; identifiers are split at `_` and at capitals."""
    for run in re.finditer(r"[A-Za-z]+", text):
        for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", run.group()):
            yield part.lower()


def measure(files: Iterable[Source]) -> Counts:
    """Counts by name of the figure: bound names, filler and swaps."""
    names: Counter[str] = Counter()
    for file in files:
        names.update(bound_names(file.nodes))
    filler: Counter[str] = Counter()
    for name, count in names.items():
        for word in FILLER_NAMES.intersection(name.lower().split("_")) if name not in FIELD_NAMES else ():
            filler[word] += count
    return {
        "filler_names": {word: filler[word] for word in sorted(filler)},
        "swaps": {name: names[name] for name in SWAPS},
        "bound_names": {"all": names.total()},
    }


def grown(counts: Counts, baseline: Counts) -> list[str]:
    """A sentence for each figure that is larger than the recorded one."""
    sentences = []
    for figure in ("filler_names", "swaps"):
        for word, count in counts[figure].items():
            allowed = baseline.get(figure, {}).get(word, 0)
            if count > allowed:
                sentences.append(
                    f"{word!r} ({figure}): {count} times, {allowed} allowed. Use the field's term (the glossary); "
                    f"find it with: python -m lint.language --show {word!r}"
                )
    return sentences


def show(word: str, files: Iterable[Source]) -> None:
    """Print the lines in which a word stands, as a word of text or as part of a name."""
    for file in files:
        for number, line in enumerate(file.text.splitlines(), start=1):
            if word in words_of(line):
                print(f"{file.name}:{number}: {line.strip()}")


def measure_all(files: Sequence[Source]) -> dict[str, Counts]:
    """The counts of tests, and of everything else."""
    return {
        "product": measure(file for file in files if not file.name.startswith("tests/")),
        "tests": measure(file for file in files if file.name.startswith("tests/")),
    }


def check(files: Iterable[Source]) -> list[str]:
    """A sentence for each count that has grown. Prints those of tests, which are only warnings."""
    counts, baseline = measure_all(counted(files)), json.loads(BASELINE.read_text())
    filler, total = (
        sum(sum(part[key].values()) for part in counts.values()) for key in ("filler_names", "bound_names")
    )
    print(f"names that say nothing: {filler} of {total} ({filler / max(total, 1):.1%})")
    for sentence in grown(counts["tests"], baseline["tests"]):
        print(f"warning: in tests, {sentence}", file=sys.stderr)
    return grown(counts["product"], baseline["product"])


def main() -> int:
    """Compare with the baseline, or record a new one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="record the counts; those of tests may have grown")
    parser.add_argument("--show", metavar="WORD", help="list where a word stands")
    options = parser.parse_args()
    files = sources()
    if options.show:
        show(options.show, counted(files))
        return 0
    problems = check(files)
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    if options.update and not problems:
        BASELINE.write_text(json.dumps(measure_all(counted(files)), indent=1, sort_keys=True) + "\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
