"""Reads what a caller may see from the settings' `access` section. Without a grant, access is denied."""

from gpucost.core.access import FULL_ACCESS, Caller, IamCaller, Scope, scope_of_roles
from gpucost.core.errors import AccessDeniedError
from gpucost.storage.ports import SettingsStore

_HOW_TO_GET_A_ROLE = "Ask an administrator for one."


class AccessPolicy:
    """Maps callers to scopes, with the grants of the current settings.

    Args:
        settings_store: source of the settings document with the grants.
    """

    def __init__(self, settings_store: SettingsStore) -> None:
        self._settings_store = settings_store

    def scope_of(self, caller: Caller | None) -> Scope:
        """Return what a caller may see.

        If the settings have no `access` section, every IAM caller sees everything: the policy that allows
        `execute-api:Invoke` is the grant. A token identifies a caller and grants nothing by itself.

        Raises:
            AccessDeniedError: the caller has no role. The message says what is missing and contains no identity.
            SettingsMissingError: no settings yet.
        """
        if caller is None:
            raise AccessDeniedError("the request has no identity. Sign it with SigV4, or send a bearer token.")
        grants = self._settings_store.current().settings.access
        if grants is None:
            if isinstance(caller, IamCaller):
                return FULL_ACCESS
            raise AccessDeniedError(
                "a bearer token grants no access without roles, and the settings have no access section. "
                + _HOW_TO_GET_A_ROLE
            )
        scope = scope_of_roles(role for grant in grants if grant.applies_to(caller) for role in grant.roles)
        if scope is None:
            is_iam = isinstance(caller, IamCaller)
            reason = "your IAM user or role has no role" if is_iam else "none of your token's claims has a role"
            raise AccessDeniedError(f"{reason} in the settings' access section. {_HOW_TO_GET_A_ROLE}")
        return scope
