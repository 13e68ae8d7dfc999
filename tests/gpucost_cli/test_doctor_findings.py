"""The doctor's findings are grouped by cause: each with one line to change, and with what follows from it."""

import re

from gpucost_cli.doctor import ClusterReport, render
from gpucost_cli.doctor.checks import Check
from gpucost_cli.doctor.checks.model import Severity
from gpucost_cli.doctor.findings import group_by_cause
from gpucost_cli.doctor.queries import requested_resources


def check(
    name: str, change: str | None = "fix it", severity: Severity = "recommended", *, explained_by: str = ""
) -> Check:
    causes = explained_by.split()
    return Check(
        name,
        "",
        "missing",
        severity,
        finding=f"{name} is gone",
        change=change,
        effect=f"no {name}",
        explained_by=causes,
    )


def test_explained_finding_is_named_with_its_cause_and_not_for_itself() -> None:
    (finding,) = group_by_cause([check("labels", "flag"), check("zone", "flag, feature", explained_by="labels")])
    assert finding.cause.name == "labels"
    assert [consequence.name for consequence in finding.consequences] == ["zone"]


def test_cause_of_a_cause_has_all_that_follows() -> None:
    checks = [
        check("server", "a"),
        check("labels", "b", explained_by="server"),
        check("zone", "c", explained_by="labels"),
    ]
    (finding,) = group_by_cause(checks)
    assert finding.cause.name == "server"
    assert [consequence.name for consequence in finding.consequences] == ["labels", "zone"]


def test_problems_with_one_line_to_change_are_one_finding_of_the_most_severe() -> None:
    (finding,) = group_by_cause([check("times", severity="optional"), check("owners", severity="recommended")])
    assert finding.cause.name == "owners"
    assert [same.name for same in finding.same_change] == ["times"]


def test_most_severe_findings_come_first_and_notes_last() -> None:
    checks = [
        check("note", None),
        check("detail", "a", "optional"),
        check("labels", "b"),
        check("clock", "c", "optional"),
        check("figures", "d", "required", explained_by="clock"),
    ]
    assert [finding.cause.name for finding in group_by_cause(checks)] == ["clock", "labels", "detail", "note"]


def test_table_shows_cause_consequences_and_line() -> None:
    checks = [check("labels", "flag"), check("zone", "flag", explained_by="labels"), check("owners", "flag")]
    lines = "\n".join(map(str, render.as_tables([ClusterReport("demo", checks, [])]))).splitlines()
    assert lines[:7] == [
        "demo: attribution is possible",
        "recommended: labels is gone",
        "    the same change fixes:",
        "      - no owners",
        "    what follows:",
        "      - no zone",
        "    → flag",
    ]


def test_requests_of_a_scheduler_of_another_domain_are_read() -> None:
    pattern = requested_resources({"acme_com_gpu_cores", "nvidia_com_gpucores"})
    assert all(re.fullmatch(pattern, name) for name in ("nvidia_com_gpu", "nvidia_com_gpucores", "acme_com_gpu_cores"))
    assert not re.fullmatch(requested_resources({"nvidia_com_gpucores"}), "acme_com_gpu_cores")
