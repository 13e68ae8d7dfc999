"""Who may see what: callers, roles, and the scope that a caller's roles add up to."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpucost.core.errors import AccessDeniedError

RequiredRole = Literal["public", "bu", "viewer", "admin"]
"""What a route asks of its caller: nothing, a role for some business unit, for all of them, or `admin`."""

BU_PREFIX = "bu:"
_ASSUMED = re.compile(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([^/]+)/[^/]+")
_NAMED = re.compile(r"arn:(aws[a-z-]*):iam::(\d{12}):(role|user)/(?:[^/]+/)*([^/]+)")


@dataclass(frozen=True, slots=True)
class Scope:
    """What one caller may see."""

    units: frozenset[str] | None
    """The business units; None: the whole fleet, with what nobody held."""
    is_admin: bool = False

    @property
    def is_fleet(self) -> bool:
        """Whether the caller may see the whole fleet."""
        return self.units is None

    def covers(self, business_unit: str) -> bool:
        """Whether the caller may see a business unit."""
        return self.units is None or business_unit in self.units

    def require(self, business_unit: str) -> None:
        """Refuse to speak of a unit that the caller may not see, whether there is one or not.

        Raises:
            AccessDeniedError: the scope does not cover it.
        """
        if not self.covers(business_unit):
            raise AccessDeniedError("your roles do not cover this business unit")

    def satisfies(self, need: RequiredRole) -> bool:
        """Whether a route may be asked by this caller."""
        if need == "admin":
            return self.is_admin
        return need != "viewer" or self.is_fleet


FULL_ACCESS = Scope(None, is_admin=True)


def scope_of_roles(roles: Iterable[str]) -> Scope | None:
    """What roles add up to: `admin`, `viewer`, `bu:<name>`; None where there are none."""
    held = frozenset(roles)
    if not held:
        return None
    if held & {"admin", "viewer"}:
        return Scope(None, is_admin="admin" in held)
    return Scope(frozenset(role.removeprefix(BU_PREFIX) for role in held))


@dataclass(frozen=True, slots=True)
class IamCaller:
    """Somebody whose signature AWS checked."""

    principal: str
    """As `principal_of` writes it."""


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """Somebody whose JWT API Gateway checked."""

    claims: Mapping[str, tuple[str, ...]]
    """Every claim's values: one of a plain claim, many of a list, none where they cannot be told."""


Caller = IamCaller | TokenCaller


def principal_of(arn: str) -> str:
    """An IAM user or role as settings and callers are compared: without path, and a session as its role.

    STS leaves a role's path out of a session's ARN, so that comparing with it would never match a role of IAM Identity
    Center. Names are unique in an account whatever their path. Anything else (root, federated users) stays as it is.
    """
    if session := _ASSUMED.fullmatch(arn):
        partition, account, name = session.groups()
        return f"arn:{partition}:iam::{account}:role/{name}"
    if named := _NAMED.fullmatch(arn):
        partition, account, kind, name = named.groups()
        return f"arn:{partition}:iam::{account}:{kind}/{name}"
    return arn
