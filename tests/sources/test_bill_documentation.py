"""The worked example and the columns in docs/how-to/bill.md, compared with the statements."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from gpucost.core.amounts import to_decimal
from gpucost.core.pricing.bill import BillSharing, build_bill
from gpucost.settings_document import parse_settings
from gpucost.sources.bill import sql_statement
from gpucost_devstack.bill.columns import CUR2
from gpucost_devstack.bill.export import write_export
from gpucost_devstack.bill.items import on_demand, savings_plan_covered
from gpucost_devstack.template import REPOSITORY
from tests.bill_export import NOW, DuckDbBill, cur_settings

DOCUMENT = (REPOSITORY / "docs" / "how-to" / "bill.md").read_text()
HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)


def columns_of(**form: Any) -> set[str]:
    """The columns that a statement reads."""
    parsed = sqlglot.parse_one(sql_statement(cur_settings(**form), HOUR, HOUR, now=NOW), read="athena")
    lines = parsed.find(exp.CTE)
    assert lines is not None
    return {column.name for column in lines.this.find_all(exp.Column)} - {"billing_period"}


def listed(name: str) -> set[str]:
    """The columns under a marker in the document."""
    match = re.search(rf"<!-- columns of {name} -->\n(.*)\n", DOCUMENT)
    assert match is not None
    return set(re.findall(r"`(\w+)`", match[1]))


def test_documented_columns_are_those_of_the_statements() -> None:
    assert listed("cur2") == columns_of(amount="amortized")
    assert listed("cur2") | listed("cur2_net") == columns_of(amount="net_amortized")
    assert columns_of(amount="net_amortized") <= set(CUR2.names)


def test_worked_example_is_correct(tmp_path: Path) -> None:
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "56"),
        *savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "30", listed="56", plan="arn:plan"),
        on_demand("i-0c", "p5.48xlarge", HOUR, "56"),
        on_demand("i-0d", "p5.48xlarge", HOUR, "14", hours="0.25"),
    ]
    write_export(tmp_path, items)
    bill = build_bill(DuckDbBill(tmp_path, cur_settings()).lines(HOUR, HOUR + timedelta(hours=1)), BillSharing())
    computed = [
        (
            name,
            str(instance.billed_ms // 60_000),
            f"${to_decimal(instance.unblended_amount or 0):.2f}",
            f"${to_decimal(instance.amount):.2f}",
        )
        for name, instance in bill.instances.items()
    ]
    rows = re.findall(r"^\| (i-0\w) \| [^|]+ \| (\d+) \| (\S+) \| (\S+) \|$", DOCUMENT, re.MULTILINE)
    assert computed == rows


def test_documented_settings_are_valid() -> None:
    shown = re.search(r"```yaml\n(pricing:\n.*?)```", DOCUMENT, re.DOTALL)
    assert shown is not None
    section = shown[1].replace("[capacity-block, cur, spot, on-demand, constant]", "[cur, spot, on-demand]")
    clusters = "".join(f"  - {{name: {name}, prometheus: {{url: http://p}}}}\n" for name in ("serving", "training"))
    settings = parse_settings(f"clusters:\n{clusters}{section}")
    assert settings.pricing.cur is not None
    assert settings.pricing.cur.cluster_of_unused_commitments(("serving", "training")) == "training"
