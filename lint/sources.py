"""The files of the repository, each read and parsed once for all checks."""

import ast
import gc
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SUFFIXES = {".css", ".html", ".j2", ".json", ".mako", ".md", ".py", ".sh", ".toml", ".ts", ".tsx", ".yaml", ".yml"}


@dataclass(frozen=True)
class Source:
    """A text file.

    Attributes:
        name: its path in the repository.
        text: its contents.
        nodes: all nodes of a Python module, the module first; () for other files.
    """

    name: str
    text: str
    nodes: Sequence[ast.AST] = ()


def parse(text: str, name: str = "module.py") -> Source:
    """A Python module."""
    return Source(name, text, list(ast.walk(ast.parse(text, name))))


def sources() -> list[Source]:
    """All text files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    gc.disable()  # it would search a million nodes again and again, and find nothing
    return [_source(name) for name in listed.splitlines() if (REPOSITORY / name).is_file()]


def _source(name: str) -> Source:
    path = REPOSITORY / name
    if path.suffix not in SUFFIXES:
        return Source(name, "")
    text = path.read_text(encoding="utf-8")
    return parse(text, name) if path.suffix == ".py" else Source(name, text)
