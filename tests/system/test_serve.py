"""`gpucost serve`: the service in one process, on a real Prometheus and a folder."""

import io
import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import duckdb
import pytest
import requests
from rich.console import Console
from rich.table import Table

from gpucost.core.errors import ConflictError, GpuCostError, InvalidInputError, SourceError
from gpucost.core.hours import format_timestamp
from gpucost.features.recommendations.model import Recommendation, RecommendationSubject, Review
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime.secrets import BearerAuth
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.connection import connect
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.discovery import ONLY_CLUSTER, find_clusters, oldest_hour
from gpucost_cli.export_folder import ExportFolder
from gpucost_cli.local_service import LocalService
from gpucost_cli.metrics_options import TOKEN_SECRET, MetricsAccess, metrics_options
from gpucost_cli.rendering import print_table
from gpucost_cli.serve_command import hours_of_clusters
from gpucost_cli.served_summary import period_tables, recommendation_lines
from gpucost_devstack.slack import running_slack
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.gpucost_command import in_this_process
from tests.system.timeline import HOUR, Timeline

ONE_HOUR = timedelta(hours=1)
AFTER = HOUR + ONE_HOUR + timedelta(minutes=10)


@pytest.fixture
def metrics(prometheus: Callable[[str], str]) -> str:
    """Three hours of a node with two GPUs, of which a pod holds one and uses a quarter of it."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("a-0", namespace="bu-a")
    timeline.device(0.25, exported_pod="a-0", exported_namespace="bu-a")
    timeline.device(0, gpu="1")
    timeline.add("kube_node_info", node="n1")
    return prometheus(timeline.text())


def document(url: str, **sections: Any) -> str:
    pricing = {"source": "constant", "gpu_hourly_usd": 12}
    return json.dumps({"clusters": [{"name": "demo", "prometheus": {"url": url}}], "pricing": pricing, **sections})


@contextmanager
def service(folder: Path, text: str, now: datetime = AFTER) -> Iterator[LocalService]:
    with SqliteTable(folder) as table:
        yield LocalService(table, text, author="me", clock=lambda: now, secret_value=str)


def costs(url: str, start: datetime, hours: int = 1) -> dict[str, Any]:
    period = {"start": format_timestamp(start), "end": format_timestamp(start + hours * ONE_HOUR)}
    answer = requests.get(f"{url}/v1/business-units", params=period, timeout=30)
    assert answer.status_code == 200, answer.text
    return dict(json.loads(answer.text, parse_float=Decimal))


def test_newest_hours_are_attributed_first_and_served(tmp_path: Path, metrics: str) -> None:
    with service(tmp_path, document(metrics)) as local, local.serving(0) as url:
        hours = local.attribute_newest(2)
        assert next(hours) == ("demo", HOUR)
        (row,) = costs(url, HOUR)["rows"]
        assert (row["business_unit"], row["allocated_gpu_hours"], row["effective_gpu_hours"]) == (
            "bu-a",
            1,
            Decimal("0.25"),
        )
        assert (row["allocated_usd"], row["waste_usd"]) == (12, 9)
        assert list(hours) == [("demo", HOUR - ONE_HOUR)]
        assert costs(url, HOUR - ONE_HOUR, 2)["totals"]["node_cost_usd"] == 48
        assert '<div id="page">' in requests.get(url, timeout=30).text
        assert requests.get(f"{url}/v1/nothing", timeout=30).status_code == 404


def test_filter_without_gpu_hours_suggests_the_name_that_is_meant(tmp_path: Path, metrics: str) -> None:
    with service(tmp_path, document(metrics)) as local, local.serving(0) as url:
        list(local.attribute_newest(1))
        period = ("--start", format_timestamp(HOUR), "--end", format_timestamp(HOUR + ONE_HOUR))
        done = in_this_process("report", "--api", url, *period, "--filter", "business_unit=bu-aa")
        found = in_this_process("report", "--api", url, *period, "--filter", "business_unit=bu-a")
        pattern = in_this_process("report", "--api", url, *period, "--filter", "business_unit=x*")
    assert (done.returncode, done.stderr) == (
        2,
        "gpucost: --filter business_unit=bu-aa has no GPU-hours in this period. Did you mean bu-a?\n",
    )
    assert found.returncode == pattern.returncode == 0


def test_other_addresses_answer_only_if_asked_for(tmp_path: Path, metrics: str) -> None:
    """On Linux, all of 127.0.0.0/8 is this machine, so that 127.0.0.2 stands for another address of it."""
    with service(tmp_path, document(metrics)) as local:
        with local.serving(0) as url, pytest.raises(requests.ConnectionError):
            requests.get(url.replace("127.0.0.1", "127.0.0.2"), timeout=30)
        with local.serving(0, "0.0.0.0") as url:
            assert requests.get(url.replace("127.0.0.1", "127.0.0.2") + "/health", timeout=30).status_code == 200
        with pytest.raises(GpuCostError) as refused, local.serving(0, "192.0.2.1"):
            pass
        assert str(refused.value) == (
            "--listen: '192.0.2.1' is not an address of this machine. Pass 127.0.0.1 or 0.0.0.0"
        )


def test_next_start_continues_on_the_folder(tmp_path: Path, metrics: str) -> None:
    with service(tmp_path, document(metrics)) as local:
        assert len(list(local.attribute_newest(2))) == 2
        first = local.manifest("demo", HOUR)
    with service(tmp_path, document(metrics)) as local:
        assert list(local.attribute_newest(2)) == []
        assert local.manifest("demo", HOUR) == first


def test_changed_settings_become_the_next_version(tmp_path: Path, metrics: str) -> None:
    units = [{"name": "research", "namespaces": ["bu-*"]}]
    for text, version in ((document(metrics), 1), (document(metrics), 1), (document(metrics, business_units=units), 2)):
        with service(tmp_path, text) as local:
            assert local.settings_version == version


def test_earlier_hours_go_back_to_the_first_sample(tmp_path: Path, metrics: str) -> None:
    """The samples begin 65 minutes before `HOUR`."""
    later = HOUR + timedelta(hours=25, minutes=10)
    with service(tmp_path, document(metrics), later) as local:
        oldest = local.oldest_hours(later - timedelta(days=30))
        assert oldest == {"demo": HOUR - ONE_HOUR}
        assert list(local.attribute_earlier(oldest)) == [("demo", HOUR), ("demo", HOUR - ONE_HOUR)]
        manifest = local.manifest("demo", HOUR)
        assert manifest is not None
        assert manifest.status == "complete"


def test_schedule_attributes_the_hour_that_ended(tmp_path: Path, metrics: str) -> None:
    before = HOUR + timedelta(minutes=30)
    with SqliteTable(tmp_path) as table:
        now = [before]
        local = LocalService(table, document(metrics), author="me", clock=lambda: now[0], secret_value=str)
        local.run_schedule()
        now[0] = AFTER
        local.run_schedule()
        manifest = local.manifest("demo", HOUR)
        assert manifest is not None
        assert (manifest.status, manifest.is_backfilled) == ("complete", False)


def test_days_are_exported_to_a_folder(tmp_path: Path, metrics: str) -> None:
    """The day of `HOUR`, once, and again after nothing changed: the same file."""
    next_day = (HOUR + timedelta(days=1)).replace(hour=5)
    folder = tmp_path / "exports"
    with SqliteTable(tmp_path / "ledger") as table:
        exports = ExportFolder(folder)
        text = document(metrics)
        now = [AFTER]
        local = LocalService(table, text, author="me", clock=lambda: now[0], secret_value=str, exports=exports)
        list(local.attribute_newest(2))
        now[0] = next_day
        local.run_schedule()
        with local.serving(0) as url:
            period = {"start": f"{HOUR:%Y-%m-%d}", "end": f"{next_day:%Y-%m-%d}"}
            row, *_ = requests.get(f"{url}/v1/exports", params=period, timeout=30).json()["rows"]
        path = Path(unquote(row["parquet_url"].removeprefix("file://")))
        assert path.is_relative_to(folder)
        query = (
            "SELECT x_GpuHours, EffectiveCost FROM read_parquet(?) WHERE x_CostPart = 'allocated' AND "
            f"ChargePeriodStart = TIMESTAMP '{HOUR:%Y-%m-%d %H:%M:%S}'"
        )
        assert duckdb.execute(query, [str(path)]).fetchall() == [(1, 12)], "a GPU of a pod at $12"
        written = path.stat().st_mtime_ns
        local.run_schedule()
        assert path.stat().st_mtime_ns == written
        assert [file.name for file in folder.rglob("*") if file.name.startswith(".")] == []


def test_changed_export_is_not_overwritten(tmp_path: Path) -> None:
    new, exports = tmp_path / "new", ExportFolder(tmp_path / "exports")
    new.write_text("a")
    exports.put("focus/day", new, if_match=None)
    with pytest.raises(ConflictError):
        exports.put("focus/day", new, if_match=None)
    etag = exports.etag("focus/day")
    assert etag == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # sha256 of a
    new.write_text("b")
    exports.put("focus/day", new, if_match=etag)
    assert (tmp_path / "exports/focus/day").read_text() == "b"


def test_alerts_and_digests_reach_slack(tmp_path: Path, metrics: str) -> None:
    """A waste rule fires for an hour. The digest of its week waits for missing hours until Monday evening."""
    waste = {"rule": "waste", "waste_usd_per_hour": 1, "waste_percent": 1, "for_hours": 1}
    digest = {"rule": "digest", "every": "week", "at": "09:00"}
    receivers = [{"type": "slack", "secret": "gpucost/slack", "host": "127.0.0.1"}]
    alerts = {"receivers": receivers, "rules": [waste, digest]}
    monday = (HOUR + timedelta(days=7 - HOUR.weekday())).replace(hour=21, minute=10)
    now = [HOUR + timedelta(minutes=30)]
    with running_slack() as slack, SqliteTable(tmp_path) as table:
        text = document(metrics, alerts=alerts)
        local = LocalService(
            table, text, author="me", clock=lambda: now[0], secret_value={"gpucost/slack": slack.url}.__getitem__
        )
        local.run_schedule()
        for now[0] in (AFTER, monday):
            local.run_schedule()
        posts = [json.dumps(post) for post in slack.posts]
    assert any("waste" in post.lower() and "bu-a" in post for post in posts), posts
    assert any("GPU cost digest: bu-a cost $" in post for post in posts), posts


def test_email_is_reported_as_not_available(tmp_path: Path, metrics: str) -> None:
    rule = {"rule": "waste", "waste_usd_per_hour": 1, "waste_percent": 1, "for_hours": 1}
    alerts = {"receivers": [{"type": "email"}], "rules": [rule]}
    with service(tmp_path, document(metrics, alerts=alerts), HOUR + timedelta(minutes=30)) as local:
        local.run_schedule()
    with service(tmp_path, document(metrics, alerts=alerts)) as local, local.serving(0) as url:
        local.run_schedule()
        answer = requests.get(f"{url}/v1/alerts", timeout=30).json()
    assert [event["rule"] for event in answer["history"]] == ["waste"]


def test_clusters_are_told_apart_by_their_label(prometheus: Callable[[str], str]) -> None:
    texts = []
    for name in ("arn:aws:eks:eu-central-1:1:cluster/east", "west"):
        timeline = Timeline(cluster=name)
        timeline.add("kube_node_info", node="n1")
        texts.append(timeline)
    texts[0].families["kube_node_info"] += texts[1].families["kube_node_info"]
    url = prometheus(texts[0].text())
    client = connect(parse_settings(document(url)).clusters[0])
    clusters = find_clusters({"url": url}, client, AFTER)
    assert [(cluster["name"], cluster["selector"]) for cluster in clusters] == [
        ("east", {"cluster": "arn:aws:eks:eu-central-1:1:cluster/east"}),
        ("west", {"cluster": "west"}),
    ]


def test_cluster_without_label_has_a_name(metrics: str) -> None:
    client = connect(parse_settings(document(metrics)).clusters[0])
    assert find_clusters({"url": metrics}, client, AFTER) == [{"name": ONLY_CLUSTER, "prometheus": {"url": metrics}}]
    cluster = parse_settings(document(metrics)).clusters[0]
    assert oldest_hour(cluster, client, AFTER, HOUR) == HOUR, "never before the limit"


def test_prometheus_without_kube_state_metrics_is_refused(prometheus: Callable[[str], str]) -> None:
    timeline = Timeline()
    timeline.add("up", job="node-exporter")
    url = prometheus(timeline.text())
    client = connect(parse_settings(document(url)).clusters[0])
    with pytest.raises(InvalidInputError, match=r"has no metrics of kube-state-metrics of the last day"):
        find_clusters({"url": url}, client, AFTER)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (),
            "pass --prometheus URL, such as http://127.0.0.1:9090, or --settings FILE; "
            "this folder has no settings.yaml",
        ),
        (
            ("--prometheus", "http://127.0.0.1:1", "--settings", "s.yaml"),
            "--settings and --prometheus exclude each other. Pass one of them",
        ),
        (
            ("--settings", "s.yaml", "--header", "X-Scope-OrgID=gpu"),
            "--token-file, --user, --password-file, --header and --ca-file go with --prometheus. Pass its address",
        ),
        (
            ("--prometheus", "http://127.0.0.1:1", "--header", "X-Scope-OrgID"),
            "--header: 'X-Scope-OrgID' is not NAME=VALUE, such as X-Scope-OrgID=gpu",
        ),
        (
            ("--prometheus", "http://127.0.0.1:1", "--token-file", "missing"),
            "--token-file: 'missing' cannot be read: No such file or directory",
        ),
        (
            ("--prometheus", "127.0.0.1:9090"),
            "--prometheus: '127.0.0.1:9090' is not an address that begins with http:// or https://",
        ),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = in_this_process("serve", *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr


def test_prometheus_that_does_not_answer_is_named(refused_url: str, tmp_path: Path) -> None:
    result = in_this_process("serve", "--prometheus", refused_url, "--data", str(tmp_path))
    assert result.returncode == 1
    assert refused_url in result.stderr


def test_token_of_the_options_is_sent_to_its_address_only(tmp_path: Path) -> None:
    access = MetricsAccess(
        None, {"url": "https://metrics.example.com", "auth": "bearer", "secret": TOKEN_SECRET}, "abc"
    )
    assert json.loads(access.secret_value(TOKEN_SECRET)) == {"url": "https://metrics.example.com", "token": "abc"}
    assert "abc" not in repr(access)


def test_user_and_password_are_sent_by_basic_authentication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = MetricsAccess(None, {"url": "https://metrics.example.com"}, "pass", user="me")
    request = requests.Request("GET", "https://metrics.example.com/api").prepare()
    BearerAuth(TOKEN_SECRET, access.secret_value)(request)
    assert request.headers["Authorization"] == "Basic bWU6cGFzcw=="  # RFC 7617: base64 of me:pass
    elsewhere = requests.Request("GET", "https://elsewhere.example.com/api").prepare()
    with pytest.raises(SourceError, match="may be sent to"):
        BearerAuth(TOKEN_SECRET, access.secret_value)(elsewhere)
    monkeypatch.delenv("GPUCOST_PROMETHEUS_PASSWORD", raising=False)
    result = in_this_process("attribute", "--prometheus", "http://127.0.0.1:1", "--user", "me")
    assert result.returncode == 2
    assert result.stderr == (
        "gpucost: --user: pass --password-file FILE with the user's password, or set GPUCOST_PROMETHEUS_PASSWORD\n"
    )


def printed(parts: Iterable[Table | str]) -> list[str]:
    file = io.StringIO()
    for part in parts:
        print_table(part, Console(width=100, file=file))
    return [text for line in file.getvalue().splitlines() if (text := " ".join(line.split()))]


def test_printed_parts_add_up_to_the_node_cost(tmp_path: Path, metrics: str) -> None:
    """Two GPUs at $12 an hour, of which a pod holds one and uses a quarter of it."""
    with service(tmp_path, document(metrics)) as local, local.serving(0) as url:
        assert list(local.attribute_newest(1)) == [("demo", HOUR)]
        lines = printed(period_tables(url, HOUR, HOUR + ONE_HOUR, "gpucost doctor"))
    assert "bu-a 1.000 0.250 0.750 0.000 75.0% $12.00 $9.00" in lines
    assert "all units 1.000 0.250 0.750 0.000 75.0% $12.00 $9.00" in lines
    parts = {line.split()[0]: line for line in lines}
    assert parts["allocated"].startswith("allocated 1.000 $12.00 50.0%")
    assert parts["effective"].startswith("effective 0.250 $3.00 12.5%")
    assert parts["waste"].startswith("waste 0.750 $9.00 37.5%")
    assert parts["unallocated"].startswith("unallocated 1.000 $12.00 50.0%")
    assert parts["node"] == "node cost 2.000 $24.00 100.0% the parts add up exactly"
    sentence, address = lines[-2:]
    assert sentence == (
        "most waste: bu-a, $9.00, 75.0% of its cost; its top waster: Pod a-0 in namespace bu-a, $9.00, 75.0% of its "
        "cost"
    )
    assert address == (f"why: {url}/#/unit/bu-a?start={format_timestamp(HOUR)}&end={format_timestamp(HOUR + ONE_HOUR)}")


def test_hours_of_nodes_without_a_price_count_as_hours_with_figures(tmp_path: Path, metrics: str) -> None:
    """An hour of two that have samples; the list prices lack the node's type."""
    text = document(metrics, pricing={"source": "list-price"})
    with service(tmp_path, text) as local, local.serving(0) as url:
        assert list(local.attribute_newest(1)) == [("demo", HOUR)]
        manifest = local.manifest("demo", HOUR)
        assert manifest is not None
        assert manifest.status == "provisional"
        lines = printed(period_tables(url, HOUR - ONE_HOUR, HOUR + ONE_HOUR, "gpucost doctor --prometheus X"))
    title = f"{format_timestamp(HOUR - ONE_HOUR)} to {format_timestamp(HOUR + ONE_HOUR)}"
    assert lines[0] == f"{title}, 1 of 2 hours with figures"
    assert "bu-a 1.000 0.250 0.750 0.000 75.0% — —" in lines
    assert [
        text for text in lines if text.startswith("— cost: no node of these rows has a price; notes of the hours say")
    ]
    assert lines[-2] == (
        "most waste: bu-a, 0.750 GPU-hours, 75.0% of its GPU-hours; its top waster: Pod a-0 in namespace bu-a, 0.750 "
        "GPU-hours, 75.0% of its GPU-hours"
    )


def test_ledger_without_figures_prints_nothing(tmp_path: Path, metrics: str) -> None:
    with service(tmp_path, document(metrics)) as local, local.serving(0) as url:
        assert printed(period_tables(url, HOUR, HOUR + ONE_HOUR, "gpucost doctor")) == []
        assert list(recommendation_lines(url)) == []


@pytest.mark.parametrize(
    ("hours", "lines"),
    [(167, ["what to change, and what it saves, follows after 168 hours with figures; there are 167"]), (168, [])],
)
def test_review_of_too_few_hours_says_how_many_recommendations_need(
    tmp_path: Path, metrics: str, hours: int, lines: list[str]
) -> None:
    with SqliteTable(tmp_path) as table:
        DynamoRecommendations(table).put_review(Review("demo", HOUR, HOUR, HOUR, hours, (), ()))
        local = LocalService(table, document(metrics), author="me", clock=lambda: AFTER, secret_value=str)
        with local.serving(0) as url:
            assert list(recommendation_lines(url)) == lines


def test_recommendations_that_save_most_are_printed_with_their_page(tmp_path: Path, metrics: str) -> None:
    """Neither a commitment, nor what costs money, nor what another one already counts."""
    savings = {"a": "5.5", "b": "1234.5", "c": "70", "d": "12", "costs": "-900", "counted": "9000", "bought": "8000"}
    contents = [
        replace(
            PROPOSED,
            subject=RecommendationSubject("demo", "bu-a", "bu-a", "Deployment", name),
            summary=f"Remove {name}",
            saving=replace(PROPOSED.saving, usd=Decimal(usd)),
            part_of="idle-0" if name == "counted" else "",
            kind="commitment" if name == "bought" else "idle",
        )
        for name, usd in savings.items()
    ]
    with SqliteTable(tmp_path) as table:
        local = LocalService(table, document(metrics), author="me", clock=lambda: AFTER, secret_value=str)
        for content in contents:
            DynamoRecommendations(table).put(Recommendation(content, "open", HOUR, HOUR, HOUR))
        with local.serving(0) as url:
            lines = list(recommendation_lines(url))
    assert lines == [
        "what to change, and what it saves per month:",
        "  $1,234.50  Remove b",
        "  $70.00  Remove c",
        "  $12.00  Remove d",
        f"all 4, with evidence and risk: {url}/#/savings",
    ]


def test_hours_of_clusters_are_counted_by_cluster() -> None:
    assert hours_of_clusters({"a": 24, "b": 24, "c": 24}) == "24 hours of each of 3 clusters"
    assert hours_of_clusters({"a": 24, "b": 1}) == "24 hours of a, 1 hour of b"
    assert hours_of_clusters({"a": 24}) == "24 hours of a"


def test_command_in_messages_has_the_options_and_no_secret(tmp_path: Path, refused_url: str) -> None:
    """The token of a file, and options that a shell would split."""
    token = tmp_path / "a token"
    token.write_text("swordfish")
    commands: list[str] = []

    @click.command()
    @metrics_options
    def command(access: MetricsAccess) -> None:
        commands.append(access.doctor_command)

    options = ["--prometheus", refused_url, "--header", "X-Scope-OrgID=gpu team"]
    for more in (["--token-file", str(token)], ["--user", "me", "--password-file", str(token)]):
        command.main([*options, *more], standalone_mode=False)
        assert shlex.split(commands[-1]) == ["gpucost", "doctor", *options[:2], *more, *options[2:]]
        assert "swordfish" not in commands[-1]
