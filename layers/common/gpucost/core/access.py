"""Access control: callers, their roles, and the scope of data that these roles grant."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from gpucost.core.errors import AccessDeniedError

RequiredRole = Literal["public", "bu", "viewer", "admin"]
"""The role that a route requires: none, a role for at least one business unit, for all of them, or `admin`."""

BUSINESS_UNIT_ROLE_PREFIX = "bu:"
_ASSUMED_ROLE = re.compile(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([^/]+)/[^/]+")
_ROLE_OR_USER = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):(role|user)/(?:[^/]+/)*([^/]+)")


class Scope(Struct, frozen=True):
    """The data that one caller may read."""

    business_units: frozenset[str] | None
    """The business units; None grants the whole fleet, idle capacity included."""
    is_admin: bool = False

    @property
    def is_fleet(self) -> bool:
        """Whether the caller may see the whole fleet."""
        return self.business_units is None

    def covers(self, business_unit: str) -> bool:
        """Whether the caller may see a business unit."""
        return self.business_units is None or business_unit in self.business_units

    def sorted_units(self) -> list[str] | None:
        """Return the business units in order of name; None for the whole fleet."""
        return None if self.business_units is None else sorted(self.business_units)

    def require(self, business_unit: str) -> None:
        """Raise unless the scope covers a business unit; whether the unit exists makes no difference.

        Raises:
            AccessDeniedError: the scope does not cover the business unit.
        """
        if not self.covers(business_unit):
            raise AccessDeniedError(f"your roles do not cover business unit {business_unit!r}")

    @property
    def widest_role(self) -> Literal["bu", "viewer", "admin"]:
        """The role that opens most routes to the caller."""
        return "admin" if self.is_admin else "viewer" if self.is_fleet else "bu"

    def satisfies(self, required: RequiredRole) -> bool:
        """Whether the caller may use a route that requires a role."""
        if required == "admin":
            return self.is_admin
        return required != "viewer" or self.is_fleet


FULL_ACCESS = Scope(None, is_admin=True)


def scope_of_roles(roles: Iterable[str]) -> Scope | None:
    """Combine roles (`admin`, `viewer`, `bu:<name>`) into one scope; None without any role."""
    distinct_roles = frozenset(roles)
    if not distinct_roles:
        return None
    if distinct_roles & {"admin", "viewer"}:
        return Scope(None, is_admin="admin" in distinct_roles)
    return Scope(frozenset(role.removeprefix(BUSINESS_UNIT_ROLE_PREFIX) for role in distinct_roles))


class IamCaller(Struct, frozen=True):
    """A caller whose SigV4 signature API Gateway verified."""

    principal: str
    """The IAM user or role, as `principal_of` returns it."""


class TokenCaller(Struct, frozen=True):
    """A caller whose JWT API Gateway verified."""

    claims: Mapping[str, tuple[str, ...]]
    """The values of each claim: one for a string, several for a list, none where the claim cannot be parsed."""


Caller = IamCaller | TokenCaller


def principal_of(arn: str) -> str:
    """Normalize an IAM ARN, so that settings and callers compare equal: without path, and a session as its role.

    STS leaves the role's path out of a session's ARN. With the path, roles of IAM Identity Center would never match.
    Names are unique in an account whatever their path. Other ARNs (root, federated users) are returned unchanged.
    """
    if session := _ASSUMED_ROLE.fullmatch(arn):
        partition, account, name = session.groups()
        return f"arn:{partition}:iam::{account}:role/{name}"
    if role_or_user := _ROLE_OR_USER.fullmatch(arn):
        partition, account, kind, name = role_or_user.groups()
        return f"arn:{partition}:iam::{account}:{kind}/{name}"
    return arn
