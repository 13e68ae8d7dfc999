"""Evaluates the permissions of principals, and records all accesses and denials."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from gpucost.core.errors import GpuCostError
from gpucost_devstack.iam.calls import AthenaState, PermissionNeeded
from gpucost_devstack.iam.encryption import key_calls
from gpucost_devstack.iam.policies import Policies
from gpucost_devstack.iam.simulator import simulator
from gpucost_devstack.signatures import SigningKey

ADMINISTRATOR = "local"
"""Access key of the embedded AWS's user and of its own parts. It has all permissions."""
SECRET_KEY = "local"
"""The secret of `ADMINISTRATOR` and of the functions' access keys."""
LOCAL_KEY = SigningKey(SECRET_KEY)


@dataclass(frozen=True, slots=True)
class PermissionUse:
    """A permission that a principal's request needed, allowed or not.

    Attributes:
        principal: ARN of a role, or a service such as `sns.amazonaws.com`.
        call: the permission.
    """

    principal: str
    call: PermissionNeeded


class PermissionDeniedError(GpuCostError):
    """A principal lacks a permission that its request needs."""

    def __init__(self, access: PermissionUse, name: str = "") -> None:
        self.access = access
        principal = f"{name} ({access.principal})" if name else access.principal
        context = "".join(f", {key}: {', '.join(values)}" for key, values in access.call.context)
        super().__init__(
            f"access denied: {principal} may not call {access.call.action} on {access.call.resource}{context}; "
            "allow it in a policy of the template, or do not call it"
        )


class Authorizer:
    """IAM for one deployment.

    Args:
        policies: the initial policies.
        table_location: where the data of a Glue table is, by database and table.
        keys: ARNs of the deployment's customer managed keys, by the ARNs of the resources that they encrypt.

    Attributes:
        keys: these keys, and those of resources outside the deployment.
        athena: state of Athena's queries.
        accesses: all requested permissions, allowed or not.
        denials: denied accesses, in order.
        names: function names for messages, by role ARN.
    """

    def __init__(
        self,
        policies: Policies,
        table_location: Callable[[str, str], str] | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self._policies = policies
        self.keys = dict(keys or {})
        self.athena = AthenaState(table_location or _no_table)
        self.accesses: set[PermissionUse] = set()
        self.denials: list[PermissionUse] = []
        self.names: dict[str, str] = {}
        self._roles: dict[str, str] = {}
        self._signing_keys = {ADMINISTRATOR: LOCAL_KEY}
        self._decisions: dict[PermissionUse, bool] = {}
        self._lock = Lock()

    @property
    def policies(self) -> Policies:
        """The policies in force."""
        return self._policies

    def add(self, policies: Policies) -> None:
        """Add policies, for example those of another account."""
        with self._lock:
            self._policies = self._policies.joined_with(policies)
            self._decisions.clear()

    def access_key(self, role_arn: str) -> str:
        """An access key ID whose requests have a role's permissions."""
        key = "LOCAL" + "".join(filter(str.isalnum, role_arn.rpartition("/")[2]))
        self.register(key, role_arn)
        return key

    def register(self, access_key: str, role_arn: str, key: SigningKey = LOCAL_KEY) -> None:
        """Assign an access key to a role, as STS does when a role is assumed."""
        self._roles[access_key] = role_arn
        self._signing_keys[access_key] = key

    def signing_key(self, access_key: str) -> SigningKey | None:
        """The secret of an access key, or None if the key is unknown."""
        return self._signing_keys.get(access_key)

    def role(self, access_key: str) -> str | None:
        """The role of an access key, or None if the key is unknown."""
        return self._roles.get(access_key)

    def require(self, principal: str, calls: Iterable[PermissionNeeded]) -> None:
        """Check that a principal has all permissions that its calls need, including those on keys.

        Raises:
            AccessDeniedError: it lacks one. The access is recorded in `denials`.
            GpuCostError: the permissions that a call needs on a key are not declared.
        """
        accesses = [PermissionUse(principal, part) for call in calls for part in (call, *key_calls(call, self.keys))]
        with self._lock:
            self.accesses.update(accesses)
            unknown = [access for access in accesses if access not in self._decisions]
            self._decisions.update(zip(unknown, evaluate(self.policies, unknown), strict=True))
            denied = next((access for access in accesses if not self._decisions[access]), None)
            if denied is not None:
                self.denials.append(denied)
                raise self._denied(denied)

    def allows(self, principal: str, call: PermissionNeeded) -> bool:
        """Whether a principal has a permission. This is not recorded as an access."""
        return evaluate(self.policies, [PermissionUse(principal, call)])[0]

    def _denied(self, access: PermissionUse) -> PermissionDeniedError:
        return PermissionDeniedError(access, self.names.get(access.principal, ""))

    def raise_denied(self) -> None:
        """Raise if any access was denied.

        Raises:
            AccessDeniedError: the first denial.
        """
        if self.denials:
            raise self._denied(self.denials[0])


def evaluate(policies: Policies, accesses: Sequence[PermissionUse]) -> list[bool]:
    """Whether each access is allowed."""
    return simulator().allows([simulation(policies, access) for access in accesses]) if accesses else []


def simulation(policies: Policies, access: PermissionUse) -> dict[str, Any]:
    """A request in the simulator's format."""
    principal, call = access.principal, access.call
    resource_policy = [statement.body for statement in policies.of_resource(call.resource)]
    account = call.resource.split(":")[4] if call.resource.count(":") > 4 else ""
    variables: dict[str, str | list[str]] = {"aws:SecureTransport": "true"}
    if principal.startswith("arn:"):
        variables["aws:PrincipalArn"] = principal
        account = account or principal.split(":")[4]
    variables |= {key: values[0] if _is_single_valued(key) else list(values) for key, values in call.context}
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


MULTIVALUED_CONTEXT_KEYS = {"dynamodb:LeadingKeys", "dynamodb:EnclosingOperation"}


def _is_single_valued(key: str) -> bool:
    return key not in MULTIVALUED_CONTEXT_KEYS


def _without_ids(bodies: Sequence[Any]) -> list[dict[str, Any]]:
    """Drop statement IDs, which may collide when several resources of a template form one policy."""
    return [{name: value for name, value in body.items() if name != "Sid"} for body in bodies]


def _no_table(database: str, table: str) -> str:
    raise GpuCostError(f"Glue has no table {database}.{table}")
