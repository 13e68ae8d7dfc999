"""Conditions of the ledger's table: on the stored item for a write, and on the sort keys of a query.

`storage/dynamodb_table.py` renders them as DynamoDB's expressions; `storage/sqlite_table.py` checks them itself.
"""

from typing import Literal

from msgspec import Struct


class Missing(Struct, frozen=True):
    """No item has the key."""


class Present(Struct, frozen=True):
    """An item has the key."""


class Comparison(Struct, frozen=True):
    """An attribute of the stored item, compared with a string or an integer.

    As in DynamoDB, a missing attribute, or one of another type, differs from every value and is neither smaller nor
    larger.
    """

    attribute: str
    operator: Literal["=", "<>", "<", "<="]
    operand: str | int

    @property
    def attribute_value(self) -> dict[str, str]:
        """The operand as DynamoDB's API writes it."""
        return {"S": self.operand} if isinstance(self.operand, str) else {"N": str(self.operand)}


class AllOf(Struct, frozen=True):
    """Every comparison holds."""

    comparisons: tuple[Comparison, ...]


class MissingOr(Struct, frozen=True):
    """No item has the key, or the comparison holds."""

    comparison: Comparison


Condition = Missing | Present | Comparison | AllOf | MissingOr
MISSING = Missing()
PRESENT = Present()


def equals(attribute: str, operand: str | int) -> Comparison:
    """The attribute has this value."""
    return Comparison(attribute, "=", operand)


class Between(Struct, frozen=True):
    """Sort keys from `first` to `last`, both included."""

    first: str
    last: str


class StartsWith(Struct, frozen=True):
    """Sort keys with a prefix."""

    prefix: str


class Before(Struct, frozen=True):
    """Sort keys smaller than `sort_key`."""

    sort_key: str


SortKeys = Between | StartsWith | Before
