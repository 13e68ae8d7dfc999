"""Finds docstrings that name parameters or code which does not exist: `python lint/docstrings.py`.

`Args:` names parameters of the function, or of the class's constructor. A name in backticks stands somewhere else in
the repository: in code, a template, a page or an example. Names that belong to others' software are exceptions.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXCEPTIONS = frozenset(
    ["GenerateKey", "WriteRequest", "credential_source", "kubernetes_sd_config", "label_a_io_cost_center", "nvidia_com_mig_1g_5gb_me"]
)
"""Names of OpenCost, Prometheus and the AWS SDKs, and examples of labels and resources."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"`(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:\(\))?`")
_PARAMETERS = re.compile(r"^ {4}(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*):", re.MULTILINE)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Each text that stands alone, with the module, class or function that it documents, or itself."""
    owners = {}
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            owners[node.body[0]] = node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield owners.get(node, node), node.value.value


def wrong_parameters(node: ast.AST, text: str) -> Iterator[str]:
    """Names under `Args:` that are no parameters."""
    if "Args:\n" not in text or not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    section = re.split(r"\n\s*\n", text.partition("Args:\n")[2])[0]
    indent = len(section) - len(section.lstrip(" "))
    lines = "\n".join("    " + line[indent:] if len(line) > indent else line for line in section.splitlines())
    lines = "\n".join(line for line in lines.splitlines() if not line.startswith("     "))
    allowed = parameters(node)
    for names in _PARAMETERS.findall(lines):
        yield from (name for name in names.replace("*", "").split(", ") if name not in allowed)


def parameters(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters of a function, or those of a class's constructor and its fields."""
    if isinstance(node, ast.ClassDef):
        fields = {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
        functions = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        return fields.union(*map(parameters, functions))
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in named if argument is not None}


def without_docstrings(source: str, tree: ast.AST) -> str:
    """The source of a module, with its docstrings replaced by empty lines."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines)


def main() -> int:
    """Print every wrong name, and return the exit status."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    paths = [path for path in (REPOSITORY / name for name in listed) if path.exists()]
    modules = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py"}
    trees = {path: ast.parse(source) for path, source in modules.items()}
    texts = [without_docstrings(source, trees[path]) for path, source in modules.items()]
    texts += [
        path.read_text(encoding="utf-8") for path in paths if path.suffix in {".md", ".yaml", ".json", ".ts", ".tsx"}
    ]
    names = {name for text in texts for name in _NAME.findall(text)} | EXCEPTIONS
    problems = []
    for path, tree in trees.items():
        for node, text in docstrings(tree):
            location = f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}"
            problems += [
                f"{location}: `Args:` names {name}, which is no parameter" for name in wrong_parameters(node, text)
            ]
            problems += [
                f"{location}: `{name}` does not exist" for name in _REFERENCE.findall(text) if name not in names
            ]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        print("Name what exists. Names of others' software belong in EXCEPTIONS.", file=sys.stderr)
    return 1 if problems else 0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
