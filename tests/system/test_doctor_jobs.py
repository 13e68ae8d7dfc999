"""`gpucost doctor` lists the jobs of each source, and recommends to name the trusted one if there are several."""

from collections.abc import Callable
from typing import Any

from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from tests.system.doctor_cluster import Recent, healthy
from tests.system.doctor_findings import document, faults, named

FORGED = {"job": "tenant", "instance": "10.9.9.9:8080"}


def examined(prometheus: Callable[[str], str], cluster: Recent, sources: str = "") -> ClusterReport:
    url = prometheus(cluster.text())
    clusters = f'[{{name: demo, prometheus: {{url: "{url}"}}, {sources}}}]'
    settings = parse_settings(document(url, clusters=clusters))
    return examine_cluster(settings.clusters[0], settings, cluster.now)


def with_a_tenant() -> Recent:
    cluster = healthy(2)
    cluster.up(job="tenant", instance="10.9.9.9:8080")
    labels: dict[str, Any] = {"namespace": "team", "pod": "ghost", "uid": "uid-ghost", **FORGED}
    cluster.add(
        "kube_pod_container_resource_requests",
        container="main",
        node="n1",
        resource="nvidia_com_gpu",
        unit="integer",
        **labels,
    )
    return cluster


def test_jobs_of_each_source_are_listed(prometheus: Callable[[str], str]) -> None:
    report = examined(prometheus, healthy(2))
    statuses = {check.name: (check.metric, check.status) for check in report.checks if check.name.startswith("jobs of")}
    assert statuses == {
        "jobs of kube-state-metrics": ("job: kube-state-metrics", "found"),
        "jobs of dcgm-exporter": ("job: dcgm-exporter", "found"),
    }


def test_several_jobs_of_a_source_are_a_finding(prometheus: Callable[[str], str]) -> None:
    check = faults(examined(prometheus, with_a_tenant()))["jobs of kube-state-metrics"]
    assert check.metric == "job: kube-state-metrics, tenant"
    assert "series of kube_state_metrics come from 2 jobs" in (check.finding or "")
    assert "tenant (1 series)" in (check.finding or "")
    assert check.change == (
        'settings, cluster demo: sources: {kube_state_metrics: {job: "kube-state-metrics"}}, or a list of jobs'
    )


def test_job_that_the_settings_exclude_is_a_note(prometheus: Callable[[str], str]) -> None:
    report = examined(prometheus, with_a_tenant(), "sources: {kube_state_metrics: {job: kube-state-metrics}}")
    assert faults(report) == {}
    check = named(report, "jobs of kube-state-metrics")
    assert check.finding == "ignored because of the settings: job tenant"
    assert named(report, "kube_pod_container_resource_requests").series == 4, "the others' series are not counted"


def test_configured_job_without_series_is_a_finding(prometheus: Callable[[str], str]) -> None:
    report = examined(prometheus, healthy(1), "sources: {kube_state_metrics: {job: ksm}}")
    check = faults(report)["jobs of kube-state-metrics"]
    assert "has job ksm; the jobs with series are kube-state-metrics" in (check.finding or "")
    assert not report.possible
