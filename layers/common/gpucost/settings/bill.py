"""Section `pricing.cur`: where the AWS bill is, and how its amounts are allocated."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpucost.core.pricing.bill_lines import Blend, ChargeKind
from gpucost.settings.section import ExternalId, Name, QueryRole, Region, Section, matching_pattern

OutputLocation = Annotated[
    str, matching_pattern(r"s3://[a-z0-9.-]{3,63}(/\S*)?", "an address like s3://bucket/prefix/")
]
GlueName = Annotated[
    str, matching_pattern(r"[a-z0-9_]{1,255}", "a name in the Glue catalog: up to 255 lower-case letters, digits and _")
]
"""The name of a database or table in the AWS Glue catalog."""
CHARGE_KINDS: tuple[ChargeKind, ...] = ("savings-plan", "reservation", "capacity-reservation")


class CurSettings(Section):
    """A Data Export in S3, hourly and with resource ids, read with Athena."""

    format: Literal["cur2", "focus-1.0", "focus-1.2"] = "cur2"
    """The format of the Data Export: AWS's Cost and Usage Report 2.0 or FOCUS."""
    database: GlueName
    """The export's database in the AWS Glue catalog."""
    table: GlueName
    """The export's table in the AWS Glue catalog."""
    workgroup: Annotated[str, matching_pattern(r"[A-Za-z0-9._-]{1,128}", "up to 128 letters, digits, ., _ and -")] = (
        "primary"
    )
    """The Athena workgroup that runs the queries."""
    output_location: (
        Annotated[str, matching_pattern(r"s3://[a-z0-9.-]{3,63}(/\S*)?", "an address like s3://bucket/prefix/")] | None
    ) = None
    """Where Athena writes its results. By default where the workgroup says."""
    region: Region | None = None
    """The workgroup's region. By default that of the deployment."""
    role_arn: QueryRole | None = None
    """The role to assume if the bill is in another account."""
    external_id: ExternalId | None = None
    """The external id that the role's trust policy requires."""
    amount: Literal["net_amortized", "amortized"] | None = None
    """For CUR 2.0 only; default net_amortized. An export has `net_` columns only if the account has private
    discounts. FOCUS has one amount, EffectiveCost, which is net."""
    blend: Blend = "instance_type"
    """Which instances pay the same hourly rate, although AWS applies Savings Plans to arbitrary ones.

    `instance_type`: the mean of all instances of a type; `node_pool`: the mean of a type in a node pool; `none`: each
    instance's own line on the bill."""
    unused_commitments: tuple[ChargeKind, ...] = CHARGE_KINDS
    """The kinds of unused commitments that are charged to a cluster. Other kinds are left out."""
    unused_commitments_to: Name | None = None
    """The cluster to which they are charged; required if there are several clusters."""
    refresh_days: Annotated[int, Field(ge=1, le=400)] = 45
    """Months within this many days are read again until their bill is closed."""

    @model_validator(mode="after")
    def _fits_the_format(self) -> "CurSettings":
        if self.external_id and not self.role_arn:
            raise ValueError("external_id is only allowed with role_arn")
        if self.amount and self.format != "cur2":
            raise ValueError("amount is only allowed with format: cur2; FOCUS has one amount, EffectiveCost")
        if self.unused_commitments_to and not self.unused_commitments:
            raise ValueError("unused_commitments_to requires unused_commitments, which is empty")
        if repeated := [kind for kind in self.unused_commitments if self.unused_commitments.count(kind) > 1]:
            raise ValueError(f"unused_commitments contains {repeated[0]} twice; name each kind once")
        return self

    def cluster_of_unused_commitments(self, clusters: tuple[str, ...]) -> str:
        """The cluster to which unused commitments are charged; "" if they are left out.

        Raises:
            ValueError: the settings name an unknown cluster, or none although there are several.
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
