"""What a caller may see, by the settings' `access` section. Nobody may see anything until something says so."""

from gpucost.core.access import EVERYTHING, Caller, IamCaller, Scope, scope_of
from gpucost.core.errors import AccessDeniedError
from gpucost.storage.ports import SettingsStore

_ASK = "an administrator gives roles in the settings' section access"


class AccessPolicy:
    """Reads roles from the settings in force.

    Args:
        settings_store: its document names who holds which roles.
    """

    def __init__(self, settings_store: SettingsStore) -> None:
        self._settings_store = settings_store

    def scope_of(self, caller: Caller | None) -> Scope:
        """What a caller may see.

        Where the settings have no `access` section, a caller whom IAM let in may see everything: the policy that allows
        `execute-api:Invoke` is the grant. A token says who somebody is and grants nothing by itself.

        Raises:
            AccessDeniedError: nothing; says what is missing, and names nobody.
            SettingsMissingError: no settings yet.
        """
        if caller is None:
            raise AccessDeniedError("the request says nothing of who sent it; sign it (SigV4), or send a bearer token")
        grants = self._settings_store.current().settings.access
        if grants is None:
            if isinstance(caller, IamCaller):
                return EVERYTHING
            raise AccessDeniedError(f"a token alone grants nothing, and the settings have no section access; {_ASK}")
        scope = scope_of(role for grant in grants if grant.is_for(caller) for role in grant.roles)
        if scope is None:
            who = "your IAM user or role" if isinstance(caller, IamCaller) else "none of your token's claims"
            raise AccessDeniedError(f"{who} has {'no' if isinstance(caller, IamCaller) else 'a'} role here; {_ASK}")
        return scope
