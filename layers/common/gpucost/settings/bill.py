"""Section `pricing.cur`: where the bill is, and how its amounts are shared out."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpucost.core.pricing.bill_lines import Blend, ChargeKind
from gpucost.settings.section import ExternalId, Name, QueryRole, Region, Section, matching_pattern

OutputLocation = Annotated[str, matching_pattern(r"s3://[a-z0-9.-]{3,63}(/\S*)?", "an address like s3://bucket/prefix/")]
GlueName = Annotated[str, matching_pattern(r"[a-z0-9_]{1,255}", "a name of Glue's: up to 255 lower-case letters, digits and _")]
"""Of a database or table that Athena can name."""
CHARGE_KINDS: tuple[ChargeKind, ...] = ("savings-plan", "reservation", "capacity-reservation")


class CurSettings(Section):
    """A Data Export in S3, hourly and with resource ids, read with Athena."""

    format: Literal["cur2", "focus-1.0", "focus-1.2"] = "cur2"
    database: GlueName
    table: GlueName
    workgroup: Annotated[str, matching_pattern(r"[A-Za-z0-9._-]{1,128}", "up to 128 letters, digits, ., _ and -")] = "primary"
    output_location: (
        Annotated[str, matching_pattern(r"s3://[a-z0-9.-]{3,63}(/\S*)?", "an address like s3://bucket/prefix/")] | None
    ) = None
    """Where Athena leaves its results; None where the workgroup says so."""
    region: Region | None = None
    """Of the workgroup; None: the deployment's own."""
    role_arn: QueryRole | None = None
    """To assume, where the bill is another account's."""
    external_id: ExternalId | None = None
    """That the role's trust policy asks for."""
    amount: Literal["net_amortized", "amortized"] | None = None
    """CUR 2.0 only, net_amortized where not given. An export has columns with `net_` only where the account has
    private discounts. FOCUS has one amount, EffectiveCost, which is net."""
    blend: Blend = "instance_type"
    unused_commitments: tuple[ChargeKind, ...] = CHARGE_KINDS
    """Which of them are charged to a cluster; what is not named is left out."""
    unused_commitments_to: Name | None = None
    """The cluster that they are charged to; needed where there are several."""
    refresh_days: Annotated[int, Field(ge=1, le=400)] = 45
    """Months that the last so many days touch are read again until their bill is closed."""

    @model_validator(mode="after")
    def _fits_the_format(self) -> "CurSettings":
        if self.external_id and not self.role_arn:
            raise ValueError("external_id goes with role_arn only")
        if self.amount and self.format != "cur2":
            raise ValueError("amount goes with format: cur2; FOCUS has one amount, EffectiveCost")
        if self.unused_commitments_to and not self.unused_commitments:
            raise ValueError("unused_commitments_to goes with unused_commitments, which names none")
        if len(set(self.unused_commitments)) < len(self.unused_commitments):
            raise ValueError("unused_commitments names one twice")
        return self

    def cluster_of_unused(self, clusters: tuple[str, ...]) -> str:
        """Which cluster pays for commitments that nobody used; "" where they are left out.

        Raises:
            ValueError: none is named, and there are several; or one that is not there.
        """
        if not self.unused_commitments:
            return ""
        name = self.unused_commitments_to or (clusters[0] if len(clusters) == 1 else "")
        if name not in clusters:
            raise ValueError(
                f"pricing.cur: unused_commitments_to needs one of the clusters {', '.join(clusters)} "
                "(or `unused_commitments: []`)"
            )
        return name
