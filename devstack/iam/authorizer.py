"""Decides whether a principal may do what it asks for, and remembers what was asked and denied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from devstack.iam.calls import Athena, Call
from devstack.iam.encryption import key_calls
from devstack.iam.policies import Policies
from devstack.iam.simulator import simulator
from gpucost.core.errors import GpuCostError

ADMINISTRATOR = "local"
"""Access key of the person who runs the embedded AWS, and of its own parts: nothing is denied to it."""


@dataclass(frozen=True, slots=True)
class Access:
    """A permission that somebody needed.

    Attributes:
        principal: ARN of a role, or a service such as `sns.amazonaws.com`.
        call: what it asked for.
    """

    principal: str
    call: Call


class AccessDeniedError(GpuCostError):
    """A principal was denied what it asked for."""

    def __init__(self, access: Access, name: str = "") -> None:
        self.access = access
        who = f"{name} ({access.principal})" if name else access.principal
        context = "".join(f", {key}: {', '.join(values)}" for key, values in access.call.context)
        super().__init__(
            f"access denied: {who} may not call {access.call.action} on {access.call.resource}{context}; "
            "allow it in a policy of the template, or do not call it"
        )


class Authorizer:
    """IAM for one deployment.

    Args:
        policies: those that are in force at first.
        table_location: where the data of a Glue table is, by database and table.
        keys: customer managed keys of the deployment, by the resources that they encrypt: ARNs.

    Attributes:
        keys: those, and the keys of resources that exist beside the deployment.
        athena: what is known of queries.
        accesses: everything that was asked for, allowed or not.
        denials: what was denied, in order.
        names: how messages name roles, by their ARNs: by their functions.
    """

    def __init__(
        self,
        policies: Policies,
        table_location: Callable[[str, str], str] | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self._policies = policies
        self.keys = dict(keys or {})
        self.athena = Athena(table_location or _no_table)
        self.accesses: set[Access] = set()
        self.denials: list[Access] = []
        self.names: dict[str, str] = {}
        self._roles: dict[str, str] = {}
        self._decisions: dict[Access, bool] = {}
        self._lock = Lock()

    @property
    def policies(self) -> Policies:
        """Those in force."""
        return self._policies

    def add(self, policies: Policies) -> None:
        """Put further policies in force, as those of another account."""
        with self._lock:
            self._policies = self._policies.joined(policies)
            self._decisions.clear()

    def access_key(self, role_arn: str) -> str:
        """An access key id with which requests are those of a role."""
        key = "LOCAL" + "".join(filter(str.isalnum, role_arn.rpartition("/")[2]))
        self.register(key, role_arn)
        return key

    def register(self, access_key: str, role_arn: str) -> None:
        """Let requests with an access key be those of a role: what STS does when a role is assumed."""
        self._roles[access_key] = role_arn

    def role(self, access_key: str) -> str | None:
        """Whose key it is; None where it is nobody's."""
        return self._roles.get(access_key)

    def require(self, principal: str, calls: Iterable[Call]) -> None:
        """Check that a principal has all permissions that it needs, those on keys included.

        Raises:
            AccessDeniedError: it lacks one. This is remembered in `denials`.
            GpuCostError: it is not known what a call needs of a key.
        """
        accesses = [Access(principal, part) for call in calls for part in (call, *key_calls(call, self.keys))]
        with self._lock:
            self.accesses.update(accesses)
            unknown = [access for access in accesses if access not in self._decisions]
            self._decisions.update(zip(unknown, evaluate(self.policies, unknown), strict=True))
            denied = next((access for access in accesses if not self._decisions[access]), None)
            if denied is not None:
                self.denials.append(denied)
                raise self._denied(denied)

    def allows(self, principal: str, call: Call) -> bool:
        """Whether a principal has a permission, without remembering that it was asked."""
        return evaluate(self.policies, [Access(principal, call)])[0]

    def _denied(self, access: Access) -> AccessDeniedError:
        return AccessDeniedError(access, self.names.get(access.principal, ""))

    def raise_denied(self) -> None:
        """Fail where something was denied.

        Raises:
            AccessDeniedError: about the first denial.
        """
        if self.denials:
            raise self._denied(self.denials[0])


def evaluate(policies: Policies, accesses: Sequence[Access]) -> list[bool]:
    """Which of these are allowed."""
    return simulator().allows([simulation(policies, access) for access in accesses]) if accesses else []


def simulation(policies: Policies, access: Access) -> dict[str, Any]:
    """A request in the simulator's format."""
    principal, call = access.principal, access.call
    resource_policy = [statement.body for statement in policies.of_resource(call.resource)]
    account = call.resource.split(":")[4] if call.resource.count(":") > 4 else ""
    variables: dict[str, str | list[str]] = {"aws:SecureTransport": "true"}
    if principal.startswith("arn:"):
        variables["aws:PrincipalArn"] = principal
        account = account or principal.split(":")[4]
    variables |= {key: values[0] if _is_single(key) else list(values) for key, values in call.context}
    return {
        "request": {
            "principal": principal,
            "action": call.action,
            "resource": {"resource": call.resource, "accountId": account},
            "contextVariables": variables,
        },
        "identityPolicies": [
            {"name": statement.title, "policy": {"Version": "2012-10-17", "Statement": [statement.body]}}
            for statement in policies.of_role(principal)
        ],
        "resourcePolicy": {"Version": "2012-10-17", "Statement": _without_ids(resource_policy)}
        if resource_policy
        else None,
        "serviceControlPolicies": [],
        "resourceControlPolicies": [],
    }


MULTIVALUED = {"dynamodb:LeadingKeys", "dynamodb:EnclosingOperation"}


def _is_single(key: str) -> bool:
    return key not in MULTIVALUED


def _without_ids(bodies: Sequence[Any]) -> list[dict[str, Any]]:
    """Several resources of a template may make one document: statement ids would be there twice."""
    return [{name: value for name, value in body.items() if name != "Sid"} for body in bodies]


def _no_table(database: str, table: str) -> str:
    raise GpuCostError(f"Glue has no table {database}.{table}")
