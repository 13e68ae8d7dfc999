"""Counts how large and how divided the code is, as a table in Markdown: `python -m scripts.figures [FOLDER ...]`.

Each folder is a work tree with one column, this repository by default. Only files that git tracks count.

- Modules of the layer: the files `*.py` below `layers/common`, with `__init__.py`.
- Imported by one module: those of them, without `__init__.py`, that exactly one other module imports, wherever in that
  module the import is. Modules of tests do not count. `from a import b` imports `a.b` if that is a module, else `a`.
- Lines of Python: of the files `*.py` below `layers`, `functions`, `gpucost_cli`, `gpucost_devstack` and `tests`, with
  blank lines, comments and docstrings. None of these files is generated.
- `fmt: skip`: lines of the files `*.py` of the whole repository that contain it.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path

LAYER = "layers/common/"
COUNTED = ("layers/", "functions/", "gpucost_cli/", "gpucost_devstack/", "tests/")


def main(folders: Sequence[str]) -> None:
    """Print a table with a column for each work tree."""
    columns = [figures(Path(folder)) for folder in folders or ["."]]
    print(f"| figure |{''.join(f' {folder} |' for folder in folders or ['now'])}")
    print(f"| --- |{' ---: |' * len(columns)}")
    for figure in columns[0]:
        print(f"| {figure} |{''.join(f' {column[figure]} |' for column in columns)}")


def figures(repository: Path) -> dict[str, int]:
    """The figures of a work tree by their titles."""
    command = ["git", "-C", str(repository), "ls-files", "*.py"]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    sources = {file: (repository / file).read_text(encoding="utf-8") for file in files if (repository / file).is_file()}
    modules = {module_name(file): text for file, text in sources.items() if not file.startswith("tests/")}
    importers = Counter(imported for name, text in modules.items() for imported in imports(name, text, modules))
    layer = [file for file in sources if file.startswith(LAYER)]
    return {
        "modules of the layer": len(layer),
        "of them imported by one module": sum(
            importers[module_name(file)] == 1 for file in layer if not file.endswith("__init__.py")
        ),
        "lines of Python": sum(text.count("\n") for file, text in sources.items() if file.startswith(COUNTED)),
        "lines of Python in tests": sum(
            text.count("\n") for file, text in sources.items() if file.startswith("tests/")
        ),
        "`fmt: skip`": sum("fmt: skip" in line for text in sources.values() for line in text.splitlines()),
    }


def module_name(file: str) -> str:
    """The name by which a file is imported."""
    return file.removeprefix(LAYER).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(name: str, text: str, modules: Container[str]) -> set[str]:
    """The other modules of the repository that a module imports."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                imported.add(submodule if submodule in modules else node.module)
    return imported - {name}


if __name__ == "__main__":
    main(sys.argv[1:])
