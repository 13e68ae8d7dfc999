"""`gpucost doctor` without access to Prometheus, and how `attribution` follows from required checks."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpucost.core.errors import MetricsResponseError
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.client import PrometheusClient, QueryResponse
from gpucost_cli.doctor import ClusterReport, examine_cluster
from gpucost_cli.doctor.checks import Check
from tests.gpucost_command import gpucost
from tests.system.doctor_cluster import healthy
from tests.system.doctor_findings import document, only

WORKSPACE = "https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-1"
ROLE = "arn:aws:iam::210987654321:role/gpucost-query-x"


def doctor(tmp_path: Path, text: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    done = gpucost("doctor", "--settings", str(path), *arguments, COLUMNS="140", **environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all sources of credentials for boto3."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    "auth",
    [
        f"{{url: {WORKSPACE}, auth: sigv4, region: us-west-2}}",
        f"{{url: {WORKSPACE}, auth: sigv4, region: us-west-2, role_arn: '{ROLE}'}}",
        '{url: "http://127.0.0.1:9", auth: bearer, secret: gpucost/token}',
    ],
    ids=["sigv4", "role", "bearer"],
)
@pytest.mark.usefixtures("without_credentials")
def test_missing_aws_credentials_are_a_finding(tmp_path: Path, auth: str) -> None:
    text = document("", clusters=f"[{{name: demo, prometheus: {auth}}}]")
    status, out, error = doctor(tmp_path, text, AWS_DEFAULT_REGION="us-west-2")
    assert status == 1
    assert "no AWS credentials" in out
    assert "aws sso login" in out
    assert "settings, cluster" not in out
    assert error == "gpucost: attribution is impossible for cluster demo\n"


@pytest.mark.usefixtures("without_credentials")
def test_unknown_aws_profile_is_a_finding(tmp_path: Path) -> None:
    text = document("", clusters=f"[{{name: demo, prometheus: {{url: {WORKSPACE}, auth: sigv4, region: us-west-2}}}}]")
    status, out, error = doctor(tmp_path, text, AWS_PROFILE="nope")
    assert status == 1
    assert "The config profile (nope) could not be found" in " ".join(out.split())
    assert "unexpected" not in error


def test_unreachable_prometheus_of_several_clusters_is_reported_once(tmp_path: Path, refused_url: str) -> None:
    url = refused_url
    clusters = (
        f'[{{name: a, prometheus: {{url: "{url}"}}}}, {{name: b, prometheus: {{url: "{url}"}}, selector: {{c: b}}}}]'
    )
    status, out, error = doctor(tmp_path, document("", clusters=clusters))
    assert status == 1
    assert (out + error).count("could not be reached") == 1
    assert "query:" not in out + error
    assert out.startswith("a, b: attribution is impossible\n")
    assert error == "gpucost: attribution is impossible for clusters a, b\n"

    _, out, error = doctor(tmp_path, document("", clusters=clusters), "--format", "json")
    assert [cluster["attribution"] for cluster in json.loads(out)["clusters"]] == ["impossible", "impossible"]
    assert error.count("could not be reached") == 1


def test_faulty_required_check_is_never_under_the_title_possible(
    tmp_path: Path, prometheus: Callable[[str], str]
) -> None:
    """Percentages under a scale of 1: every figure would be a hundred times too high."""
    cluster = healthy()
    cluster.device(85, gpu=9)
    text = document(prometheus(cluster.text()))
    status, out, error = doctor(tmp_path, text)
    assert status == 1
    assert "demo: attribution would give wrong or incomplete figures" in out
    assert "attribution is possible" not in out
    assert error == "gpucost: attribution would give wrong or incomplete figures for cluster demo\n"
    _, out, error = doctor(tmp_path, text, "--format", "json")
    (report,) = json.loads(out)["clusters"]
    assert (report["possible"], report["attribution"]) == (False, "wrong")
    assert "utilization is overstated" in error


@pytest.mark.parametrize(
    ("statuses", "attribution"),
    [
        ([("found", "required"), ("missing", "recommended"), ("faulty", "optional")], "possible"),
        ([("faulty", "required"), ("found", "required")], "wrong"),
        ([("faulty", "required"), ("missing", "required")], "impossible"),
    ],
)
def test_attribution_follows_from_required_checks(statuses: list[tuple[str, str]], attribution: str) -> None:
    checks = [Check(f"c{i}", "m", status, severity) for i, (status, severity) in enumerate(statuses)]
    report = ClusterReport("demo", checks, [])
    assert (report.attribution, report.possible) == (attribution, attribution == "possible")


@pytest.mark.parametrize("refuses", [True, False])
def test_server_that_refuses_long_queries_is_named(prometheus: Callable[[str], str], refuses: bool) -> None:
    """Prometheus accepts any length. VictoriaMetrics with its default, as in `make compat`, refuses long queries."""
    cluster, limit = healthy(), 16384
    settings = parse_settings(document(prometheus(cluster.text())))

    class RefusedClient(PrometheusClient):
        def _send_query(self, path: str, form: Mapping[str, str]) -> QueryResponse:
            if refuses and len(form["query"]) > limit:
                raise MetricsResponseError(f"too long query; mustn't exceed `-search.maxQueryLen={limit}` bytes")
            return super()._send_query(path, form)

    report = examine_cluster(settings.clusters[0], settings, cluster.now, client=RefusedClient)
    if refuses:
        only(report, "length of queries", says="refuses long queries", change="-search.maxQueryLen=1MB")
    else:
        assert "length of queries" not in {check.name for check in report.checks}
    assert report.attribution == "possible"
