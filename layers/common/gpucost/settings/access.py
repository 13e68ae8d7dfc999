"""Access to figures: roles that are granted to IAM principals and JWT claims."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from gpucost.core.access import Caller, IamCaller, principal_of
from gpucost.settings.section import Name, Section, matching_pattern

Principal = Annotated[
    str,
    StringConstraints(max_length=2048),
    matching_pattern(
        r"arn:aws[a-z-]*:iam::\d{12}:(user|role)/([\w+=,.@-]+/)*[\w+=,.@-]+",
        "the ARN of an IAM user or role, such as arn:aws:iam::123456789012:role/finance",
    ),
]
Role = Annotated[str, matching_pattern(r"admin|viewer|bu:.{1,200}", "admin, viewer or bu: with a business unit's name")]


class ClaimSettings(Section):
    """A JWT claim with a value, or with a list that contains the value."""

    name: Name
    """The claim's name in the token."""
    value: Name
    """The value that the claim must have or contain."""


class GrantSettings(Section):
    """Roles of an IAM principal, or of every user whose token has a claim."""

    principal: Principal | None = None
    """ARN of an IAM user or role. A role's grant applies to its sessions."""
    claim: ClaimSettings | None = None
    """A claim of the users' tokens, with a JWT authorizer."""
    roles: Annotated[tuple[Role, ...], Field(min_length=1)]
    """`admin`, `viewer` (all business units), `bu:<name>`."""

    @model_validator(mode="after")
    def _has_exactly_a_principal_or_a_claim(self) -> "GrantSettings":
        if (self.principal is None) == (self.claim is None):
            raise ValueError("either principal or claim is required")
        return self

    def applies_to(self, caller: Caller) -> bool:
        """Whether the grant applies to a caller."""
        if isinstance(caller, IamCaller):
            return self.principal is not None and principal_of(self.principal) == caller.principal
        return self.claim is not None and self.claim.value in caller.claims.get(self.claim.name, ())
