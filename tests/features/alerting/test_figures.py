"""The figures that notifications of a kind show are among those that its findings and digests have."""

import ast
import inspect
import sys
from collections.abc import Iterable

import pytest

from gpucost.features.alerting.rule_kinds import ALERT_KINDS
from gpucost.features.alerting.rule_kinds.base import AlertKind


def _texts(nodes: Iterable[ast.AST | None]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _shown_in_sentence(node: ast.AST) -> set[str]:
    """Names that are passed to a `FigureFormatter`."""
    is_formatted = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("figures.")
    return _texts(node.args) if is_formatted and isinstance(node, ast.Call) else set()


def _made(node: ast.AST) -> set[str]:
    """Keys of a dict, and names in a tuple, by which figures of models are selected."""
    return _texts(node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Tuple) else ())


@pytest.mark.parametrize("kind", ALERT_KINDS, ids=lambda kind: kind.kind)
def test_figures_of_texts_are_figures_of_findings(kind: type[AlertKind]) -> None:
    nodes = [*ast.walk(ast.parse(inspect.getsource(sys.modules[kind.__module__])))]
    fields = {name for figure in kind.figures for name in (figure.name, figure.percent_name)} | {kind.amount_per_hour}
    shown = fields.union(*map(_shown_in_sentence, nodes)) - {""}
    assert {name.removesuffix("_at_full_use") for name in shown} <= set[str]().union(*map(_made, nodes))
