"""`gpucost init` writes both files or none, against a real Prometheus with simulated GPUs."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import boto3
import pytest
import yaml
from moto import mock_aws

from gpucost.core.hours import format_timestamp
from gpucost.settings_document import parse_settings
from gpucost_cli.init_command import _is_reachable_from_lambda, list_workspaces, render_settings
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.fleet.scenarios.units_owners_and_claims import worked_example
from gpucost_devstack.loopback import LoopbackServer, serving_in_background
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.template import REPOSITORY
from tests import forked_gpucost, terminal
from tests.gpucost_command import GPUCOST, gpucost

pytestmark = pytest.mark.tools

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
REGION = "eu-central-1"
WITHOUT_AWS = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_PROFILE": "",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_REGION": "",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "",
}
ANSWERS = ("--region", REGION, "--cluster", "prod")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with an hour of a simulated node, whose pods are in the namespace `team`."""
    metrics = tmp_path_factory.mktemp("fleet") / "metrics.om"
    openmetrics.write([worked_example()], HOUR, metrics)
    with running_prometheus(metrics) as url:
        yield url


class _Amp(BaseHTTPRequestHandler):
    """AMP's API with a workspace whose metrics are those of a local Prometheus."""

    prometheus: str

    def do_GET(self) -> None:
        workspace = {"workspaceId": "ws-1", "alias": "metrics", "prometheusEndpoint": f"{self.prometheus}/"}
        is_described = self.path.rstrip("/").endswith("/ws-1")
        body = json.dumps({"workspace": workspace} if is_described else {"workspaces": [workspace]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def amp(fleet: str) -> Iterator[dict[str, str]]:
    """The environment of a command that finds credentials and the workspace."""
    server = LoopbackServer(0, type("Amp", (_Amp,), {"prometheus": fleet}))
    with serving_in_background(server):
        yield {"AWS_ENDPOINT_URL_AMP": server.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def init(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **WITHOUT_AWS, **environment}
    return forked_gpucost.run("init", "--out", folder, *arguments, env=variables)


def converse(folder: Path, *answers: tuple[str, str], **environment: str) -> tuple[int, str]:
    """Run `gpucost init` on a pseudo terminal."""
    variables = {**os.environ, **WITHOUT_AWS, **environment}
    return terminal.converse([GPUCOST, "init", "--out", folder], answers, env=variables)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_options_and_yes_write_both_files_without_a_terminal(fleet: str, tmp_path: Path) -> None:
    result = init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--yes")
    assert result.returncode == 0, result.stderr
    settings = parse_settings((tmp_path / "settings.yaml").read_text())
    assert settings.clusters[0].name == "prod"
    assert settings.clusters[0].prometheus.url == fleet
    assert settings.pricing.is_automatic
    assert [(unit.name, unit.namespaces) for unit in settings.business_units] == [("team", ("team",))]
    stack = tomllib.loads((tmp_path / "samconfig.toml").read_text())["dev"]["deploy"]["parameters"]
    assert (stack["stack_name"], stack["region"]) == ("gpucost-dev", REGION)
    assert {"SpotPrices=true", "OnDemandPrices=true"} <= set(stack["parameter_overrides"])
    assert files(tmp_path) == ["samconfig.toml", "settings.yaml"]
    for command in ("gpucost doctor", "gpucost attribute", "make deploy", "gpucost settings push"):
        assert command in result.stdout
    assert f"note: {fleet} works for commands on this machine." in result.stdout


@pytest.mark.parametrize(
    ("url", "is_reachable"),
    [
        ("http://127.0.0.1:9090", False),
        ("http://[::1]:9090", False),
        ("http://localhost:9090", False),
        ("http://prometheus-server.monitoring.svc", False),
        ("http://prometheus-server.monitoring.svc.cluster.local:80/prometheus", False),
        ("https://prometheus.internal.example.net", True),
        ("http://10.0.3.7:9090", True),
        ("https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1", True),
    ],
)
def test_addresses_of_this_machine_and_of_a_cluster_are_unreachable_from_lambda(url: str, is_reachable: bool) -> None:
    assert _is_reachable_from_lambda(url) is is_reachable


def test_attribute_runs_on_the_written_settings(fleet: str, tmp_path: Path) -> None:
    assert init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--gpu-hourly-usd", "3", "--yes").returncode == 0
    hours = ("--hour", format_timestamp(HOUR), "--format", "csv")
    result = gpucost("attribute", "--settings", str(tmp_path / "settings.yaml"), *hours, **WITHOUT_AWS)
    assert result.returncode == 0, result.stderr
    assert "team" in result.stdout


def test_every_question_can_be_answered_on_a_terminal(fleet: str, tmp_path: Path) -> None:
    status, text = converse(
        tmp_path,
        ("AWS region", "europe"),
        ("AWS region", REGION),
        ("Name of the EKS cluster", ""),
        ("Name of the EKS cluster", "prod"),
        ("URL of the cluster's Prometheus", ""),
        ("URL of the cluster's Prometheus", fleet),
        ("Authentication", ""),
        ("Price of a GPU-hour", "2.5"),
        ("Write one business unit for each?", "y"),
        ("Name of the stack", "gpucost-eu"),
        ("Email address", "finops@example.com"),
        ("API access", "https://issuer.example.com"),
        ("Audience", "gpucost"),
    )
    assert status == 0, text
    assert "'europe' must be an AWS region" in text
    assert text.count("an answer is required") == 2
    settings = parse_settings((tmp_path / "settings.yaml").read_text())
    assert str(settings.pricing.gpu_hourly_usd) == "2.5"
    assert settings.business_units[0].name == "team"
    assert [(rule.kind, rule.for_hours) for rule in settings.alerts.rules] == [("waste", 3)]
    assert [receiver.type for receiver in settings.alerts.receivers] == ["email"]
    stack = tomllib.loads((tmp_path / "samconfig.toml").read_text())["dev"]["deploy"]["parameters"]
    assert stack["stack_name"] == "gpucost-eu"
    assert set(stack["parameter_overrides"]) == {
        "AlertEmail=finops@example.com",
        "JwtIssuer=https://issuer.example.com",
        "JwtAudience=gpucost",
        "LogLevel=DEBUG",
        "LogRetentionDays=7",
    }


def test_refused_proposal_of_units_writes_none(fleet: str, tmp_path: Path) -> None:
    status, text = converse(
        tmp_path,
        ("AWS region", REGION),
        ("Name of the EKS", "prod"),
        ("URL of", fleet),
        ("Authentication", ""),
        ("Price of", ""),
        ("Write one", "n"),
        ("Name of the stack", ""),
        ("Email", ""),
        ("API access", ""),
    )
    assert status == 0, text
    assert parse_settings((tmp_path / "settings.yaml").read_text()).business_units == ()


def test_passed_units_replace_the_proposed_ones(fleet: str, tmp_path: Path) -> None:
    units = ("--business-unit", "research=team,research-*", "--business-unit", "ops=ops")
    assert init(tmp_path, *ANSWERS, "--prometheus-url", fleet, *units, "--yes").returncode == 0
    settings = parse_settings((tmp_path / "settings.yaml").read_text())
    assert [(unit.name, unit.namespaces) for unit in settings.business_units] == [
        ("research", ("team", "research-*")),
        ("ops", ("ops",)),
    ]


@pytest.mark.parametrize(
    ("existing", "text", "sentence"),
    [
        ("settings.yaml", "mine", "settings.yaml exists already"),
        (
            "samconfig.toml",
            '[dev.deploy.parameters]\nstack_name = "mine"\n',
            "has a stack for the environment dev already",
        ),
    ],
)
def test_existing_file_is_not_overwritten(fleet: str, tmp_path: Path, existing: str, text: str, sentence: str) -> None:
    (tmp_path / existing).write_text(text)
    result = init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--yes")
    assert (result.returncode, (tmp_path / existing).read_text(), files(tmp_path)) == (2, text, [existing])
    assert_sentence(result.stderr, sentence, "--out")
    assert "make deploy ENV=dev" in result.stderr
    other = tmp_path / "other"
    assert init(other, *ANSWERS, "--prometheus-url", fleet, "--yes").returncode == 0


def test_stack_is_added_to_the_samconfig_of_a_clone(fleet: str, tmp_path: Path) -> None:
    before = (REPOSITORY / "samconfig.toml").read_text()
    (tmp_path / "samconfig.toml").write_text(before)
    assert init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--yes").returncode == 0
    text = (tmp_path / "samconfig.toml").read_text()
    assert text.startswith(before)
    document = tomllib.loads(text)
    assert document["default"] == tomllib.loads(before)["default"]
    assert document["dev"]["deploy"]["parameters"]["stack_name"] == "gpucost-dev"


def test_samconfig_that_cannot_be_written_leaves_no_settings(fleet: str, tmp_path: Path) -> None:
    (tmp_path / "samconfig.toml").mkdir()
    result = init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--yes")
    assert (result.returncode, files(tmp_path)) == (1, ["samconfig.toml"])
    assert_sentence(result.stderr, "samconfig.toml")


def test_unwritable_folder_gets_neither_file(fleet: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = init(tmp_path / "file" / "below", *ANSWERS, "--prometheus-url", fleet, "--yes")
    assert result.returncode == 1
    assert_sentence(result.stderr, "cannot be written")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((), "--region, --cluster and --prometheus-url"),
        (("--region", REGION), "--cluster and --prometheus-url"),
        (("--region", REGION, "--prometheus-url", "http://127.0.0.1:1"), "--cluster"),
        (ANSWERS, "--prometheus-url"),
        ((*ANSWERS, "--prometheus-url", "http://127.0.0.1:1"), "--auth"),
    ],
)
def test_missing_answer_without_a_terminal_names_the_option(
    tmp_path: Path, arguments: tuple[str, ...], option: str
) -> None:
    result = init(tmp_path, *arguments)
    assert (result.returncode, files(tmp_path)) == (2, [])
    assert_sentence(result.stderr, option, "no terminal")


@pytest.mark.parametrize(
    "workspace",
    [
        ("--amp-workspace", "metrics"),
        ("--prometheus-url", f"https://aps-workspaces.{REGION}.amazonaws.com/workspaces/ws-1"),
    ],
)
def test_amp_without_credentials_is_refused(tmp_path: Path, workspace: tuple[str, str]) -> None:
    result = init(tmp_path, *ANSWERS, *workspace, "--yes")
    assert (result.returncode, files(tmp_path)) == (1, [])
    assert_sentence(result.stderr, "no AWS credentials")


def test_region_of_the_environment_is_the_default(fleet: str, tmp_path: Path) -> None:
    result = init(tmp_path, "--cluster", "prod", "--prometheus-url", fleet, "--yes", AWS_REGION="eu-west-1")
    assert result.returncode == 0, result.stderr
    assert 'region = "eu-west-1"' in (tmp_path / "samconfig.toml").read_text()


def test_missing_profile_is_reported_where_aws_is_called(fleet: str, tmp_path: Path) -> None:
    result = init(tmp_path, *ANSWERS, "--amp-workspace", "ws-1", "--yes", AWS_PROFILE="missing")
    assert (result.returncode, files(tmp_path)) == (2, [])
    assert_sentence(result.stderr, "'missing' does not exist")
    result = init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--yes", AWS_PROFILE="missing")
    assert result.returncode == 0, result.stderr


def test_prometheus_that_does_not_answer_is_named(tmp_path: Path, refused_url: str) -> None:
    result = init(tmp_path, *ANSWERS, "--prometheus-url", refused_url, "--yes")
    assert (result.returncode, files(tmp_path)) == (1, [])
    assert_sentence(result.stderr, refused_url, "could not be reached", "Nothing was written")


def test_prometheus_without_gpu_metrics_is_refused(tmp_path: Path) -> None:
    with running_prometheus() as url:
        result = init(tmp_path, *ANSWERS, "--prometheus-url", url, "--yes")
        assert (result.returncode, files(tmp_path)) == (1, [])
        assert_sentence(result.stderr, url, "no GPU metrics", "docs/how-to/existing-cluster.md", "gpucost doctor")
        (settings,) = re.findall(r"of this line: (clusters: .*); then gpucost doctor", result.stderr)
        (tmp_path / "settings.yaml").write_text(settings)
        done = gpucost("doctor", "--settings", str(tmp_path / "settings.yaml"))
    assert "gpucost manifests render" in done.stdout


@pytest.mark.parametrize(
    ("option", "text", "allowed"),
    [
        ("--cluster", "my cluster", "letters, digits"),
        ("--prometheus-url", "prometheus:9090", "http:// or https://"),
        ("--prometheus-url", "http://user:secret@prometheus", "credentials"),
        ("--region", "europe", "eu-central-1"),
        ("--gpu-hourly-usd", "-1", "greater than 0"),
        ("--stack-name", "1st", "the first a letter"),
        ("--alert-email", "finops", "an email address"),
        ("--jwt-issuer", "http://issuer", "https"),
        ("--business-unit", "research", "NAME=NAMESPACE"),
    ],
)
def test_invalid_answer_names_option_and_allowed_values(tmp_path: Path, option: str, text: str, allowed: str) -> None:
    result = init(tmp_path, option, text)
    assert (result.returncode, files(tmp_path)) == (2, [])
    assert_sentence(result.stderr, option, text, allowed)


def node_info(cluster: str) -> str:
    seconds = datetime.now(UTC).timestamp()
    return "".join(
        f'kube_node_info{{cluster="{cluster}",node="n1"}} 1 {seconds - 30 * ago:.0f}\n'
        f'kube_node_status_capacity{{cluster="{cluster}",node="n1",resource="nvidia_com_gpu"}} 8 '
        f"{seconds - 30 * ago:.0f}\n"
        for ago in range(4, -1, -1)
    )


def exposition(*clusters: str) -> str:
    """The nodes of several clusters that share a Prometheus, grouped by metric as OpenMetrics requires."""
    lines = [line for cluster in clusters for line in node_info(cluster).splitlines()]
    return (
        "".join(
            f"# TYPE {metric} gauge\n" + "".join(f"{line}\n" for line in lines if line.startswith(metric))
            for metric in ("kube_node_info", "kube_node_status_capacity")
        )
        + "# EOF\n"
    )


def test_shared_prometheus_gets_the_cluster_as_selector(prometheus: Callable[[str], str], tmp_path: Path) -> None:
    url = prometheus(exposition("prod", "test"))
    result = init(tmp_path / "prod", *ANSWERS, "--prometheus-url", url, "--yes")
    assert result.returncode == 0, result.stderr
    settings = parse_settings((tmp_path / "prod" / "settings.yaml").read_text())
    assert settings.clusters[0].selector == {"cluster": "prod"}
    result = init(tmp_path / "other", "--region", REGION, "--cluster", "other", "--prometheus-url", url, "--yes")
    assert result.returncode == 2
    assert_sentence(result.stderr, "prod, test", "--selector")


def test_typed_name_of_no_cluster_is_refused_and_repeated(prometheus: Callable[[str], str], tmp_path: Path) -> None:
    url = prometheus(exposition("prod", "test"))
    status, text = converse(
        tmp_path,
        ("AWS region", REGION),
        ("Name of the EKS", "prd"),
        ("URL of", url),
        ("Authentication", ""),
        ("Name of the EKS", "prod"),
        ("Price of", ""),
        ("Name of the stack", ""),
        ("Email", ""),
        ("API access", ""),
    )
    assert status == 0, text
    assert "none is named 'prd'" in text
    settings = parse_settings((tmp_path / "settings.yaml").read_text())
    assert (settings.clusters[0].name, settings.clusters[0].selector) == ("prod", {"cluster": "prod"})


def test_older_samples_count_as_clusters_of_the_prometheus(tmp_path: Path) -> None:
    """Business units are proposed from the last seven days, so that the clusters of these days count, too."""
    metrics = tmp_path / "metrics.om"
    openmetrics.write([replace(worked_example(), name=name) for name in ("prod", "test")], HOUR, metrics)
    with running_prometheus(metrics) as url:
        result = init(tmp_path / "other", "--region", REGION, "--cluster", "other", "--prometheus-url", url, "--yes")
        assert result.returncode == 2
        assert_sentence(result.stderr, "prod, test", "--selector")
        result = init(tmp_path / "prod", *ANSWERS, "--prometheus-url", url, "--yes")
    settings = parse_settings((tmp_path / "prod" / "settings.yaml").read_text())
    assert settings.clusters[0].selector == {"cluster": "prod"}, result.stderr


def test_workspaces_of_the_region_are_listed() -> None:
    with mock_aws():
        client = boto3.client("amp", region_name=REGION, aws_access_key_id="key", aws_secret_access_key="secret")
        identities = {
            alias: client.create_workspace(alias=alias)["workspaceId"]
            for alias in [f"workspace-{number}" for number in range(3)]
        }
        assert list_workspaces(client) == {identity: alias for alias, identity in identities.items()}


@pytest.mark.parametrize("name", ["ws-1", "metrics"])
def test_workspace_is_named_by_id_or_alias(fleet: str, amp: dict[str, str], tmp_path: Path, name: str) -> None:
    result = init(tmp_path, *ANSWERS, "--amp-workspace", name, "--yes", **amp)
    assert result.returncode == 0, result.stderr
    (cluster,) = parse_settings((tmp_path / "settings.yaml").read_text()).clusters
    assert (cluster.prometheus.url, cluster.prometheus.auth, cluster.prometheus.region) == (fleet, "sigv4", REGION)


def test_workspace_that_does_not_exist_is_refused(amp: dict[str, str], tmp_path: Path) -> None:
    result = init(tmp_path, *ANSWERS, "--amp-workspace", "ws-2", "--yes", **amp)
    assert (result.returncode, files(tmp_path)) == (2, [])
    assert_sentence(result.stderr, "'ws-2'", "ws-1 metrics")


def test_workspace_is_chosen_from_a_list_on_a_terminal(fleet: str, amp: dict[str, str], tmp_path: Path) -> None:
    status, text = converse(
        tmp_path,
        ("AWS region", REGION),
        ("Name of the EKS", "prod"),
        ("AMP workspace [1]", ""),
        ("Price of", ""),
        ("Write one", ""),
        ("Name of the stack", ""),
        ("Email", ""),
        ("API access", ""),
        **amp,
    )
    assert status == 0, text
    assert "1  ws-1  metrics" in text
    (cluster,) = parse_settings((tmp_path / "settings.yaml").read_text()).clusters
    assert (cluster.prometheus.url, cluster.prometheus.auth) == (fleet, "sigv4")


def test_amp_workspace_is_written_with_sigv4() -> None:
    url = f"https://aps-workspaces.{REGION}.amazonaws.com/workspaces/ws-1"
    text = render_settings("prod", {"url": url, "auth": "sigv4", "region": REGION}, {}, "", {}, has_schema=True)
    (cluster,) = parse_settings(text).clusters
    assert (cluster.prometheus.auth, cluster.prometheus.region) == ("sigv4", REGION)
    assert text.startswith("# yaml-language-server: $schema=settings.schema.json\n")


def test_pages_in_written_settings_are_those_of_the_repository() -> None:
    text = render_settings("prod", {"url": "http://127.0.0.1:9090"}, {}, "", {}, has_email=True)
    sentences = text.replace("\n# ", " ").split("docs/how-to/")[1:]
    assert [sentence.partition(" of gpucost's repository.")[0] for sentence in sentences] == ["pricing.md", "alerts.md"]


@pytest.mark.parametrize("name", ["no", "123", "1e3", "0x1f", "2026-11-19"])
def test_names_that_yaml_takes_for_other_types_stay_texts(name: str) -> None:
    text = render_settings(name, {"url": "http://127.0.0.1:9090"}, {}, "", {name: [name]})
    assert parse_settings(text).clusters[0].name == name
    assert yaml.safe_load(text)["business_units"] == [{"name": name, "namespaces": [name]}]


def test_settings_of_an_example_are_refused(tmp_path: Path) -> None:
    result = init(tmp_path, *ANSWERS, "--prometheus-url", "http://prometheus.example.com", "--yes")
    assert result.returncode == 2
    assert_sentence(result.stderr, "placeholder")


def assert_sentence(stderr: str, *parts: str) -> None:
    line = stderr.strip().splitlines()[-1]
    assert line.startswith("gpucost: ")
    assert "Traceback" not in stderr
    for part in parts:
        assert part in line


def test_production_stack_gets_the_parameters_of_production(fleet: str, tmp_path: Path) -> None:
    result = init(tmp_path, *ANSWERS, "--prometheus-url", fleet, "--environment", "prod", "--yes")
    assert result.returncode == 0, result.stderr
    document = tomllib.loads((tmp_path / "samconfig.toml").read_text())
    assert document.keys() == {"version", "prod"}
    parameters = document["prod"]["deploy"]["parameters"]
    assert parameters["confirm_changeset"] is True
    assert "LogRetentionDays=90" in parameters["parameter_overrides"]
    assert "make deploy ENV=prod" in result.stdout
