"""A plugin of mypy that refuses `Decimal(text)` and `Fraction(text)`: text from outside has no bounds.

`1e-999999999` is a Decimal of thirteen characters, and a Fraction of a billion digits. `gpucost.core.decimals` parses
text within bounds, and is the only module that does. Values of unknown types may be text, so they are refused, too.
Literals are not: whoever writes them sees them.
"""

from collections.abc import Callable
from pathlib import Path

from mypy.nodes import StrExpr
from mypy.plugin import FunctionContext, Plugin
from mypy.types import AnyType, Instance, Type, TypeOfAny, UnionType, get_proper_type

REPOSITORY = Path(__file__).resolve().parents[1]
REFUSAL = "text becomes a number without bounds: use gpucost.core.decimals"
CONSTRUCTORS = frozenset(["decimal.Decimal", "fractions.Fraction"])
PARSER = "layers/common/gpucost/core/decimals.py"
UNCHECKED = (PARSER, "authoring/", "benchmarks/", "gpucost_devstack/", "scripts/", "tests/")
"""What this repository contains besides the package, and the parser."""


def may_be_text(argument_type: Type) -> bool:
    """Whether a value of a type may be text."""
    proper = get_proper_type(argument_type)
    if isinstance(proper, AnyType):
        return proper.type_of_any != TypeOfAny.from_error
    if isinstance(proper, UnionType):
        return any(map(may_be_text, proper.items))
    return isinstance(proper, Instance) and proper.type.fullname in {"builtins.str", "builtins.object"}


def _check_call(context: FunctionContext) -> Type:
    arguments = [
        (argument, argument_type)
        for arguments, types in zip(context.args, context.arg_types, strict=True)
        for argument, argument_type in zip(arguments, types, strict=True)
    ]
    if context.api.path.removeprefix(f"{REPOSITORY}/").startswith(UNCHECKED):
        return context.default_return_type
    if any(may_be_text(argument_type) and not isinstance(argument, StrExpr) for argument, argument_type in arguments):
        context.api.fail(REFUSAL, context.context)
    return context.default_return_type


class NumbersPlugin(Plugin):
    """Checks every call of the constructors in the package."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return the check of a constructor's calls."""
        return _check_call if fullname in CONSTRUCTORS else None


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; mypy calls this."""
    return NumbersPlugin
