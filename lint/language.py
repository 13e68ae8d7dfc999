"""Counts names and words that a new colleague would stumble over, and refuses more of them than there were.

Two figures are kept in `lint/language.json`: the bound names (variables, parameters, functions, classes, attributes)
that say nothing, and the words that only this project's authors used. `python lint/language.py` fails when a count
has grown; `--update` records smaller ones. `--show WORD` lists where a word stands.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
BASELINE = REPOSITORY / "lint" / "language.json"
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
COINED_WORDS = frozenset(
    [
        "advice",
        "advise",
        "advised",
        "advises",
        "advising",
        "anew",
        "beside",
        "coined",
        "dear",
        "dearer",
        "desk",
        "freeze",
        "freezes",
        "freezing",
        "frozen",
        "historian",
        "judged",
        "keeper",
        "kit",
        "ladder",
        "likewise",
        "mend",
        "mended",
        "mending",
        "mends",
        "nobody",
        "offender",
        "offenders",
        "owed",
        "patience",
        "poison",
        "quanta",
        "rung",
        "rungs",
        "seal",
        "sealed",
        "sightings",
        "standing",
        "standings",
        "tell",
        "tells",
        "telling",
        "told",
        "undamaged",
        "unfreeze",
        "untold",
        "verdict",
        "verdicts",
        "wording",
    ]
)
PHRASES = ("put aside", "put right", "cannot be had", "can be had", "design §", "wants to", "worst offenders")
FIELD_NAMES = frozenset(
    ["what_if", "known_until", "hours_known"]  # a what-if analysis; fields of the API's answers
)
"""Names that hold such a word and say what they are."""
EXCEPTIONS: tuple[tuple[str, str], ...] = (
    (r".*former name of.*|.*\"ladder\".*|.*`ladder`.*|.*utilization[.:].*ladder.*", "the former name of a setting"),
    (r"\{ladder: \[", "the same, in YAML"),
    (r'script\.(invoke|command)\("(advise|freeze|unfreeze)"', "former names in the golden recording"),
    (r'"currency", "standing"', "a former field in the golden recording"),
    (r"frozen=True", "Python's own word for immutable dataclasses and pydantic models"),
    (r'"frozen": True', "the same, as a setting of pydantic"),
    (r"get_frozen_credentials", "a function of botocore"),
    (r"gc\.(freeze|unfreeze)\(\)", "functions of Python's garbage collector"),
    (r"\bnpm [a-z ]*--frozen|frozenset|frozendict", "Python's and npm's own words"),
)
TEXT_SUFFIXES = {".py", ".md", ".ts", ".tsx", ".css", ".html", ".yaml", ".yml", ".toml", ".sh", ".mako", ".j2"}
SKIPPED = ("lint/language", "CHANGELOG.md", "docs/decisions/archive/", "tests/golden/recorded/")
FORMER_NAMES = ("tests/golden/renamed.yaml",)
"""Tables of former names, whose words do not count."""


def tracked_files() -> list[Path]:
    """Files that git tracks, without generated and archived ones."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout  # noqa: S607
    return [REPOSITORY / name for name in listed.splitlines() if not name.startswith((*SKIPPED, *FORMER_NAMES))]


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a module binds, once for each time that it does."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name


def words_of(text: str) -> Iterator[str]:
    """The words of a text in lower case; identifiers are split at `_` and at capitals."""
    for run in re.finditer(r"[A-Za-z]+", text):
        for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", run.group()):
            yield part.lower()


def coined_words(text: str) -> Counter[str]:
    """How often each coined word and phrase stands in a text, exceptions left out."""
    for pattern, _ in EXCEPTIONS:
        text = re.sub(pattern, " ", text)
    counts = Counter(word for word in words_of(text) if word in COINED_WORDS)
    lower = text.lower()
    return counts + Counter({phrase: lower.count(phrase) for phrase in PHRASES})


def measure(files: list[Path]) -> dict[str, dict[str, int]]:
    """Counts by name of the figure: bound names, filler, swaps and coined words."""
    names: Counter[str] = Counter()
    coined: Counter[str] = Counter()
    for path in files:
        if path.suffix in TEXT_SUFFIXES and path.exists():
            text = path.read_text()
            coined += coined_words(text)
            if path.suffix == ".py":
                names.update(bound_names(ast.parse(text)))
    filler: Counter[str] = Counter()
    for name, count in names.items():
        for word in FILLER_NAMES.intersection(name.lower().split("_")) if name not in FIELD_NAMES else ():
            filler[word] += count
    return {
        "filler_names": {word: filler[word] for word in sorted(filler)},
        "swaps": {name: names[name] for name in SWAPS},
        "coined_words": {word: coined[word] for word in sorted(coined)},
        "bound_names": {"all": names.total()},
    }


def grown(counts: dict[str, dict[str, int]], baseline: dict[str, dict[str, int]]) -> list[str]:
    """A sentence for each figure that is larger than the recorded one."""
    sentences = []
    for figure in ("filler_names", "swaps", "coined_words"):
        for word, count in counts[figure].items():
            allowed = baseline.get(figure, {}).get(word, 0)
            if count > allowed:
                sentences.append(
                    f"{word!r} ({figure}): {count} times, {allowed} allowed. Use the field's term (the glossary); "
                    f"find it with: python lint/language.py --show {word!r}"
                )
    return sentences


def show(word: str, files: list[Path]) -> None:
    """Print the lines in which a word stands, as a word of text or as part of a name."""
    for path in files:
        if path.suffix in TEXT_SUFFIXES and path.exists():
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                if (word in coined_words(line) and coined_words(line)[word]) or word in words_of(line):
                    print(f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}")


def main() -> int:
    """Compare with the baseline, or record a new one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="record the counts, none of which may have grown")
    parser.add_argument("--show", metavar="WORD", help="list where a word stands")
    options = parser.parse_args()
    files = tracked_files()
    if options.show:
        show(options.show, files)
        return 0
    counts = measure(files)
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else counts
    filler, total = sum(counts["filler_names"].values()), counts["bound_names"]["all"]
    print(
        f"names that say nothing: {filler} of {total} ({filler / total:.1%}); "
        f"coined words: {sum(counts['coined_words'].values())}"
    )
    if sentences := grown(counts, baseline):
        print("\n".join(sentences), file=sys.stderr)
        return 1
    if options.update or not BASELINE.exists():
        BASELINE.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
