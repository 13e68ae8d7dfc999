"""Section `pricing.cur`: valid settings, and the errors of invalid ones."""

import pytest

from gpucost.core.errors import SettingsError
from gpucost.settings import CoreSettings
from gpucost.settings_document import parse_settings


def parsed(cur: str, *, clusters: tuple[str, ...] = ("demo",), sources: str = "[cur, constant]") -> CoreSettings:
    names = ", ".join(f'{{name: {name}, prometheus: {{url: "http://127.0.0.1:9090"}}}}' for name in clusters)
    section = f"cur: {{{cur}}}" if cur else ""
    return parse_settings(f"clusters: [{names}]\npricing:\n  sources: {sources}\n  gpu_hourly_usd: 12\n  {section}\n")


def test_defaults() -> None:
    cur = parsed("database: billing, table: cur2_daily").pricing.cur
    assert cur is not None
    assert (cur.format, cur.workgroup, cur.blend, cur.refresh_days) == ("cur2", "primary", "instance_type", 45)
    assert (cur.output_location, cur.region, cur.role_arn, cur.amount) == (None, None, None, None)
    assert cur.cluster_of_unused_commitments(("demo",)) == "demo"


def test_all_keys() -> None:
    cur = parsed(
        "format: cur2, amount: amortized, database: billing, table: bill, workgroup: finops, "
        "output_location: 's3://results-bucket/athena/', region: us-east-1, "
        "role_arn: 'arn:aws:iam::999988887777:role/gpucost-query-billing', external_id: 'a-1+=,.@:/_', "
        "blend: node_pool, "
        "unused_commitments: [savings-plan], unused_commitments_to: b, refresh_days: 70",
        clusters=("a", "b"),
    ).pricing.cur
    assert cur is not None
    assert cur.cluster_of_unused_commitments(("a", "b")) == "b"


@pytest.mark.parametrize(
    ("cur", "sentence"),
    [
        ("table: bill", "pricing.cur.database: is required"),
        ("database: b, table: 'bill; DROP'", "pricing.cur.table: must be a name in the Glue catalog"),
        ("database: b, table: t, output_location: 'http://x'", "output_location: must be an address like s3:"),
        ("database: b, table: t, role_arn: 'arn:aws:iam::1:role/admin'", "role_arn: must be the ARN of a role"),
        ("database: b, table: t, external_id: secret", "external_id is only allowed with role_arn"),
        (
            "database: b, table: t, role_arn: 'arn:aws:iam::999988887777:role/gpucost-query-b', external_id: 'a b'",
            "pricing.cur.external_id: must be 2 to 1224 letters",
        ),
        ("database: b, table: t, format: focus", "pricing.cur.format: must be 'cur2', 'focus-1.0' or"),
        ("database: b, table: t, format: focus-1.2, amount: amortized", "amount is only allowed with format: cur2"),
        ("database: b, table: t, blend: pods", "pricing.cur.blend: must be 'none', 'instance_type'"),
        (
            "database: b, table: t, unused_commitments_to: nowhere",
            "unused_commitments_to needs one of the clusters demo",
        ),
        ("database: b, table: t, unused_commitments: [], unused_commitments_to: demo", "which is empty"),
        ("database: b, table: t, unused_commitments: [reservation, reservation]", "contains reservation twice"),
        ("database: b, table: t, refresh_days: 0", "pricing.cur.refresh_days: must be greater than"),
        ("database: b, table: t, bucket: x", "unknown key 'pricing.cur.bucket'; allowed there: format, database"),
    ],
)
def test_invalid_settings_are_refused(cur: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parsed(cur)
    assert sentence in str(caught.value)


def test_unused_commitments_need_a_cluster_if_there_are_several() -> None:
    both = ("a", "b")
    with pytest.raises(SettingsError, match="unused_commitments_to needs one of the clusters a, b"):
        parsed("database: b, table: t", clusters=both)
    left_out = parsed("database: b, table: t, unused_commitments: []", clusters=both).pricing.cur
    assert left_out is not None
    assert left_out.cluster_of_unused_commitments(both) == ""


@pytest.mark.parametrize(
    ("cur", "sources", "sentence"),
    [
        ("", "[cur, constant]", "cur is required with source cur"),
        ("database: b, table: t", "[constant]", "cur requires source cur, which is not in sources"),
    ],
)
def test_section_requires_source_cur(cur: str, sources: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parsed(cur, sources=sources)
