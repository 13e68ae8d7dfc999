"""Removes statements, and parts of them, from policies, and lists those that no access needs."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gpucost_devstack.iam.authorizer import PermissionUse, evaluate, simulation
from gpucost_devstack.iam.policies import Policies, Statement
from gpucost_devstack.iam.simulator import simulator


def unnoticed_statements(policies: Policies, accesses: Sequence[PermissionUse]) -> list[str]:
    """Titles of statements that can be removed without changing the evaluation of any access.

    AWS's managed policies are left out: the template names them, but does not write their statements.
    """
    removals = [
        (statement.title, statement, policies.without(statement))
        for statement in policies.statements
        if not statement.is_managed
    ]
    return _unnoticed(policies, accesses, removals)


def unnoticed_parts(policies: Policies, accesses: Sequence[PermissionUse]) -> list[str]:
    """The same for single actions, resources, services and condition values of statements with several."""
    removals = [
        (f"{statement.title} without {part}", statement, policies.replacing(statement, body))
        for statement in policies.statements
        if not statement.is_managed
        for part, body in _smaller(statement.body)
    ]
    return _unnoticed(policies, accesses, removals)


def _unnoticed(
    policies: Policies, accesses: Sequence[PermissionUse], removals: Sequence[tuple[str, Statement, Policies]]
) -> list[str]:
    before = dict(zip(accesses, evaluate(policies, accesses), strict=True))
    concerned = [[access for access in accesses if _concerns(statement, access)] for _, statement, _ in removals]
    after = iter(
        simulator().allows(
            [
                simulation(changed, access)
                for (_, _, changed), affected in zip(removals, concerned, strict=True)
                for access in affected
            ]
        )
    )
    unused = []
    for (title, _, _), affected in zip(removals, concerned, strict=True):
        decisions = [(before[access], next(after)) for access in affected]
        if all(old == new for old, new in decisions):
            unused.append(title)
    return unused


def _concerns(statement: Statement, access: PermissionUse) -> bool:
    """Whether an access may be evaluated differently without a statement."""
    actions = statement.body.get("Action", "*")
    patterns = [actions] if isinstance(actions, str) else actions
    if not any(fnmatchcase(access.call.action.lower(), pattern.lower()) for pattern in patterns):
        return False
    if statement.is_resource_policy:
        return access.call.resource.startswith(statement.holder)
    return access.principal == statement.holder


def _smaller(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(description of a value, body without it) for each value of a statement with several."""
    for name in ("Action", "Resource"):
        for value, remaining in _each_removed(body.get(name)):
            yield value, {**body, name: remaining}
    principal = body.get("Principal")
    if isinstance(principal, dict):
        for service, remaining in _each_removed(principal.get("Service")):
            yield service, {**body, "Principal": {**principal, "Service": remaining}}
    for operator, keys in body.get("Condition", {}).items():
        for key, values in keys.items():
            for value, remaining in _each_removed(values):
                yield f"{key} {value}", {**body, "Condition": {**body["Condition"], operator: {**keys, key: remaining}}}


def _each_removed(values: object) -> Iterator[tuple[str, list[str]]]:
    if isinstance(values, list) and len(values) > 1:
        for value in values:
            yield value, [other for other in values if other != value]
