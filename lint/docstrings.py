"""Finds docstrings that name parameters or code which does not exist: `python lint/docstrings.py`.

`Args:` names parameters of the function, or of the class's constructor. A name in backticks stands somewhere else in
the repository: in code, a template, a page or an example. Names that belong to others' software are exceptions.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence

from lint.sources import Source, sources

EXCEPTIONS = frozenset(
    [
        "GenerateKey",
        "WriteRequest",
        "credential_source",
        "kubernetes_sd_config",
        "label_a_io_cost_center",
        "nvidia_com_mig_1g_5gb_me",
    ]
)
"""Names of OpenCost, Prometheus and the AWS SDKs, and examples of labels and resources."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"`(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:\(\))?`")
_PARAMETERS = re.compile(r"^ {4}(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*):", re.MULTILINE)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.AST, ast.Expr, str]]:
    """Each text that stands alone, with the module, class or function that it documents, or itself."""
    owners = {node.body[0]: node for node in nodes if isinstance(node, Documented) and node.body}
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield owners.get(node, node), node, node.value.value


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


def without_docstrings(module: Source) -> str:
    """The source of a module, with its docstrings replaced by empty lines."""
    lines = module.text.splitlines()
    for _, node, _ in docstrings(module.nodes):
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines)


def check(files: Sequence[Source]) -> list[str]:
    """A line for each wrong name."""
    modules = [file for file in files if file.nodes]
    texts = [without_docstrings(module) for module in modules]
    texts += [file.text for file in files if file.name.endswith((".md", ".yaml", ".json", ".ts", ".tsx"))]
    names = {name for text in texts for name in _NAME.findall(text)} | EXCEPTIONS
    problems = []
    for module in modules:
        for owner, _, text in docstrings(module.nodes):
            location = f"{module.name}:{getattr(owner, 'lineno', 1)}"
            problems += [
                f"{location}: `Args:` names {name}, which is no parameter" for name in wrong_parameters(owner, text)
            ]
            problems += [
                f"{location}: `{name}` does not exist" for name in _REFERENCE.findall(text) if name not in names
            ]
    if problems:
        problems.append("Name what exists. Names of others' software belong in EXCEPTIONS.")
    return problems


def main() -> int:
    """Print every wrong name, and return the exit status."""
    problems = check(sources())
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
