"""Each mistake of a first hour with gpucost is answered in one sentence that says what to do."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpucost.container import Container
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_cli.main import main
from gpucost_cli.report_command import FILTERS
from gpucost_devstack.template import REPOSITORY
from tests.gpucost_command import in_this_process
from tests.recording_server import recording_server
from tests.system.timeline import HOUR, Timeline


class Website(BaseHTTPRequestHandler):
    """Another service, which answers every request with a page."""

    status = 200

    def do_POST(self) -> None:
        page = b"<!DOCTYPE html>\n<html><head><title>Grafana</title></head></html>"
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_GET = do_POST  # noqa: N815 - a name that the base class looks up

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(
    params=[(200, "200 with", ", 4 times"), (404, "404 Not Found:", ""), (501, "501 Not Implemented:", "")],
    ids=["200", "404", "501"],
)
def website(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, str]]:
    """The address, and what the sentence says of the status and of attempts."""
    status, answered, attempts = request.param
    handler = type("Answering", (Website,), {"status": status})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answered, attempts
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(prometheus: Callable[[str], str]) -> str:
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("a-0", namespace="bu-a")
    return prometheus(timeline.text())


def said(*arguments: str, status: int = 2) -> str:
    """What a command says on stderr; it fails with a status."""
    done = in_this_process(*arguments)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["attribute", "doctor", "serve"])
def test_another_service_is_named_without_its_page_and_the_query(website: tuple[str, str, str], command: str) -> None:
    address, answered, attempts = website
    assert said(command, "--prometheus", address, status=1) == (
        f"gpucost: Prometheus at {address} answered {answered} an HTML page instead of a response of Prometheus' API"
        f"{attempts}. Queries append /api/v1/query to {address}, where no Prometheus answers. Write its base URL, "
        "without a page such as /graph, and check the port: another service may listen there\n"
    )


def test_page_of_prometheus_is_not_its_address(url: str) -> None:
    assert said("attribute", "--prometheus", f"{url}/graph", status=1) == (
        f"gpucost: Prometheus at {url}/graph answered 404 Not Found: 404 page not found. Queries append /api/v1/query "
        f"to {url}/graph, where no Prometheus answers. Write its base URL, without a page such as /graph, and check "
        "the port: another service may listen there\n"
    )


def test_https_where_the_server_has_none(url: str) -> None:
    address = url.replace("http:", "https:")
    assert said("attribute", "--prometheus", address, status=1) == (
        f"gpucost: Prometheus at {address} could not be reached: TLS failed, 4 times. The server did not answer in "
        "TLS. If it has none, write http://; otherwise check the port\n"
    )


@pytest.mark.parametrize("command", ["attribute", "doctor", "serve"])
def test_refused_connection_names_the_option_and_the_port_forward(refused_url: str, command: str) -> None:
    """README.md has the same service."""
    forward = "kubectl port-forward -n monitoring svc/prometheus-operated 9090"
    assert forward in (REPOSITORY / "README.md").read_text()
    assert said(command, "--prometheus", refused_url, status=1) == (
        f"gpucost: Prometheus at {refused_url} could not be reached: connection refused, 4 times. Check host and port "
        f"of --prometheus. To reach the service of kube-prometheus-stack, run {forward}, and use http://127.0.0.1:9090\n"
    )


def test_missing_tenant_names_the_option() -> None:
    """Mimir's answer to a query without a tenant."""
    with recording_server(401, b"no org id\n") as (url, _):
        assert "Pass --header X-Scope-OrgID=TENANT, with the tenant that has the cluster's metrics" in said(
            "attribute", "--prometheus", url, status=1
        )


def test_typographic_quotes_are_echoed() -> None:
    assert said("attribute", "--prometheus", "“http://127.0.0.1:9090”") == (
        "gpucost: --prometheus: '“http://127.0.0.1:9090”' has typographic quotes. Write --prometheus "
        "http://127.0.0.1:9090\n"
    )


CLUSTERS = 'clusters: [{name: a, prometheus: {url: "http://127.0.0.1:1"}}]\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "clusters: [{name: a, prometheus: {url: “http://127.0.0.1:9090”}}]",
            "clusters[0].prometheus.url: must be an address that begins with http:// or https://, but is "
            "'“http://127.0.0.1:9090”', with typographic quotes. Write 'http://127.0.0.1:9090'",
        ),
        (
            CLUSTERS + "pricing: constant",
            "pricing: must be a mapping, but is 'constant'. Write for example pricing: {source: constant, "
            "gpu_hourly_usd: 12} (line 2)",
        ),
        (
            'clusters: [{name: a, prometheus: "http://127.0.0.1:9090"}]',
            "clusters[0].prometheus: must be a mapping, but is 'http://127.0.0.1:9090'. Write for example "
            'prometheus: {url: "http://prometheus:9090"}',
        ),
        (
            CLUSTERS + "business_units: {research: [a]}",
            "business_units: must be a list. Write for example business_units: [{name: research, namespaces: "
            '["research-*"]}] (line 2)',
        ),
        (
            CLUSTERS + "pricing: {source: constant, gpu_hourly_usd: twelve}",
            "pricing.gpu_hourly_usd: must be a number without units, signs or separators, but is 'twelve' (line 2)",
        ),
    ],
)
def test_faults_of_settings_name_the_file_the_line_and_what_to_write(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    for command in ("attribute", "doctor", "serve"):
        assert said(command, "--settings", str(path)) == f"gpucost: {path}: {fault}\n"
    first, *notes = said("settings", "check", str(path)).splitlines()
    assert first == f"gpucost: {path}: {fault}"
    assert notes == ["note: time zones and placeholders are checked once the rest is valid. Correct it and check again"]


def test_text_that_is_no_yaml_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("clusters: [{name: a\n")
    assert said("attribute", "--settings", str(path)) == (
        f"gpucost: {path}: settings are not valid YAML or JSON in line 2: expected ',' or '}}', but got '<stream "
        "end>'; close every { and [, and put text that begins with a special character in quotes\n"
    )


PLACEHOLDER = 'clusters: [{name: a, prometheus: {url: "https://prometheus.example.com"}}]\n'


@pytest.mark.parametrize(
    "command",
    [
        ("doctor", "--settings", "{}"),
        ("settings", "check", "{}"),
        ("settings", "push", "{}", "--stack", "gpucost"),
        ("manifests", "render", "--for", "prometheus", "--settings", "{}", "--out", "out"),
        ("manifests", "render", "--for", "serve", "--settings", "{}", "--out", "out"),
    ],
    ids=" ".join,
)
def test_placeholder_names_the_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(PLACEHOLDER)
    assert said(*(word.format(path) for word in command)) == (
        f"gpucost: {path}: clusters[0].prometheus.url: 'https://prometheus.example.com' is an example's placeholder. "
        "Replace it with your address\n"
    )


def test_requirements_of_pushed_settings_name_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(f"{CLUSTERS}alerts: {{time_zone: Europe/Berlim}}\n")
    with SqliteTable(tmp_path / "ledger") as table, pytest.raises(SystemExit, match="2"):
        main(["settings", "push", str(path), "--stack", "gpucost"], Container(table=table))
    assert capsys.readouterr().err == (
        f"gpucost: {path}: alerts: unknown time_zone 'Europe/Berlim'; use an IANA name, for example Europe/Berlin\n"
    )


def test_namespace_in_two_units_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(f"{CLUSTERS}business_units: [{{name: x, namespaces: [lab]}}, {{name: y, namespaces: [lab]}}]\n")
    done = in_this_process("settings", "check", str(path))
    assert done.returncode == 0
    assert (
        "note: business_units[1].namespaces: 'lab' has no effect: x comes before and owns these pods by 'lab', and the "
        "first unit that matches owns a pod. Move y before x\n"
    ) in done.stdout


def test_unit_that_matches_nothing_is_named(tmp_path: Path, url: str) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "demo", "prometheus": {"url": url}}],
                "business_units": [{"name": "x", "namespaces": ["research-.*"]}],
            }
        )
    )
    done = in_this_process("attribute", "--settings", str(path), "--hour", f"{HOUR:%Y-%m-%dT%H:00:00Z}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(
        "gpucost: no pod with GPUs is in the namespaces of the business units x (research-.*). If there are such pods, "
        f"correct the shell patterns; gpucost settings check {path} notes some mistakes\n"
    )


def test_report_without_a_deployment_says_which_there_are() -> None:
    assert said("report") == (
        "gpucost: pass --stack NAME of a deployment, or --stack local for the running demo. Without a deployment, run "
        "gpucost attribute --prometheus URL, or gpucost serve --prometheus URL and then gpucost report --api "
        "http://127.0.0.1:8080\n"
    )


def test_unknown_filter_suggests_the_name_that_is_meant(tmp_path: Path, url: str) -> None:
    text = json.dumps({"clusters": [{"name": "demo", "prometheus": {"url": url}}]})
    with SqliteTable(tmp_path) as table:
        service = LocalService(table, text, author="me", clock=lambda: HOUR, secret_value=str)
        with service.serving(0) as api:
            sentence = said("report", "--api", api, "--filter", "namespce=a", "--group-by", "namespace")
    assert sentence == (
        "gpucost: --filter 'namespce=a' is not DIMENSION=VALUES. Did you mean namespace? Dimensions: "
        f"{', '.join(FILTERS)}\n"
    )


@pytest.mark.parametrize(
    ("region", "sentence"),
    [
        ("us-wset-2", "--region: 'us-wset-2' is not an AWS region. Did you mean us-west-2?"),
        ("us-west", "--region: 'us-west' is not an AWS region. Did you mean us-west-2?"),
        ("frankfurt", "--region: 'frankfurt' is not an AWS region. Pass a name such as us-east-1"),
    ],
)
def test_region_that_does_not_exist(region: str, sentence: str) -> None:
    assert said("report", "--stack", "gpucost", "--region", region) == f"gpucost: {sentence}\n"


def test_missing_options_are_named_at_once() -> None:
    assert said("backfill") == (
        "gpucost: missing: --stack TEXT, --from HOUR, --to HOUR. gpucost backfill --help has an example\n"
    )
