"""The doctor's report as `gpucost serve` answers it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gpucost_cli.doctor import ClusterReport
from gpucost_cli.doctor.checks import Check
from gpucost_cli.doctor.summary import Summary
from gpucost_cli.served_doctor import ServedDoctor

NOW = datetime(2026, 11, 19, 10, 20, 30, 500_000, UTC)
ALLOW_LIST = "kube-state-metrics: --metric-labels-allowlist=nodes=[topology.kubernetes.io/zone]"


def check(name: str, severity: str, finding: str | None = None, change: str | None = None) -> Check:
    return Check(name, "", "missing" if finding else "found", severity, finding=finding, change=change)  # type: ignore[arg-type]


def served(checks: Sequence[Check], summary: Summary | None = None) -> ServedDoctor:
    return ServedDoctor(lambda _: [ClusterReport("demo", checks, [], None, summary)], "--settings s.yaml", lambda: NOW)


def test_findings_have_one_change_each_by_weight() -> None:
    checks = [
        check("Prometheus", "required"),
        check("zone", "optional", "lines have no zone", ALLOW_LIST),
        check("energy", "optional", "energy is unknown"),
        check("labels", "recommended", "nodes have no labels", ALLOW_LIST),
    ]
    document = served(checks, Summary("1 pod holds 1 GPUs", "measured", "known")).document()
    assert (document["examined_at"], document["command"]) == (
        NOW.replace(microsecond=0),
        "gpucost doctor --settings s.yaml",
    )
    (report,) = document["clusters"]
    assert report["conclusion"] == "attribution is possible"
    assert report["summary"] == Summary("1 pod holds 1 GPUs", "measured", "known")
    first, second = report["findings"]
    assert (first["severity"], first["finding"], first["change"]) == ("recommended", "nodes have no labels", ALLOW_LIST)
    assert first["same_change"] == ["lines have no zone"]
    assert (second["finding"], second["change"]) == ("energy is unknown", None)


def test_prometheus_that_does_not_answer_is_the_only_finding() -> None:
    checks = [check("Prometheus", "required", "Prometheus at http://x refuses connections", "check that it runs")]
    (report,) = served(checks).document()["clusters"]
    assert (report["conclusion"], report["summary"]) == ("attribution is impossible", None)
    (finding,) = report["findings"]
    assert (finding["severity"], finding["change"]) == ("required", "check that it runs")


def test_held_gpus_are_unknown_where_attribution_is_impossible() -> None:
    checks = [
        check("kube-state-metrics", "required", "kube-state-metrics has no series", "install it"),
        check("x", "optional"),
    ]
    (report,) = served(checks, Summary("no pod requests GPUs now", "no GPU to measure now", "known")).document()[
        "clusters"
    ]
    assert report["summary"].holding == "unknown, see below"


def test_pages_share_a_report_of_half_a_minute() -> None:
    times: list[datetime] = []
    now = [NOW]

    def examine(at: datetime) -> Sequence[ClusterReport]:
        times.append(at)
        return []

    doctor = ServedDoctor(examine, "", lambda: now[0])
    for seconds in (0, 29, 30, 31, 20):  # the clock was set back
        now[0] = NOW + timedelta(seconds=seconds)
        doctor.document()
    assert [(at - NOW).total_seconds() for at in times] == [0, 30, 20]
