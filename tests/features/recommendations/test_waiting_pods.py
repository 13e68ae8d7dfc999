"""Waiting pods as read from a real Prometheus, compared with expected waits, and as stored by day."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpucost.core.errors import MetricsResponseError
from gpucost.features.recommendations.history import PodWait
from gpucost.features.recommendations.sources import PrometheusWaitingPods
from gpucost.features.recommendations.storage import DynamoWaitingPods
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost_devstack.prometheus import running_prometheus
from tests.conftest import DynamoTable

DAY = datetime(2026, 11, 3, tzinfo=UTC)
STEP = 2
"""Minutes between two scrapes."""
MINUTES = 24 * 60
Span = tuple[int, int]
"""Minutes of the day, [from, to)."""


def samples(metric: str, labels: str, span: Span, value: int | str = 1, offset: int = 7) -> Iterator[str]:
    for minute in range(*span, STEP):
        yield f"{metric}{{{labels}}} {value} {int(DAY.timestamp()) + 60 * minute + offset}"


def request(name: str, resource: str, *, node: str = "", container: str = "main") -> str:
    return f'namespace="ns",pod="{name}",uid="u-{name}",container="{container}",node="{node}",resource="{resource}"'


def ksm(instance: str) -> str:
    return f'cluster="demo",job="ksm",instance="{instance}",'


def exposition() -> str:
    """kube-state-metrics restarts at 12:00, and a second replica runs from 18:00 on."""
    instances = (("a", (-60, 720), 7), ("b", (720, MINUTES), 7), ("c", (1080, MINUTES), 31))
    nodes: list[str] = []
    requested: list[str] = []
    init: list[str] = []
    for instance, (first, last), offset in instances:
        target_labels = ksm(instance)

        def scraped(span: Span, first: int = first, last: int = last) -> Span:
            return max(span[0], first), min(span[1], last)

        nodes += samples("kube_node_info", target_labels + 'node="n1"', (first, last), 1, offset)
        for name, resource, units, span in (
            ("half", "nvidia_com_gpu", 2, (60, 90)),  # 01:00 to 01:30, two GPUs
            ("long", "nvidia_com_gpu", 1, (690, 1170)),  # 11:30 to 19:30, over the restart, into the pair
            ("slice", "nvidia_com_mig_1g_10gb", 1, (1200, 1260)),
            ("night", "nvidia_com_gpu", 1, (-30, 30)),  # since the day before
            ("late", "nvidia_com_gpu", 1, (1410, MINUTES)),  # and goes on
            ("other", "cpu", 8, (60, 120)),
            ("odd", "nvidia_com_gpu", "NaN", (60, 200)),
            ("odder", "nvidia_com_gpu", "+Inf", (60, 200)),
        ):
            requested += samples("requests", target_labels + request(name, resource), scraped(span), units, offset)
        requested += samples(
            "requests", target_labels + request("long", "nvidia_com_gpu", node="n1"), scraped((1170, 1300)), 1, offset
        )
        requested += samples(
            "requests",
            target_labels + request("half", "nvidia_com_gpu", container="second"),
            scraped((60, 90)),
            1,
            offset,
        )
        init += samples(
            "init", target_labels + request("half", "nvidia_com_gpu", container="init"), scraped((60, 90)), 2, offset
        )
    foreign = samples("requests", ksm("z").replace("demo", "other") + request("foreign", "nvidia_com_gpu"), (0, 600))
    names = {"requests": "kube_pod_container_resource_requests", "init": "kube_pod_init_container_resource_requests"}
    text = []
    for family, lines in (("kube_node_info", nodes), ("requests", [*requested, *foreign]), ("init", init)):
        name = names.get(family, family)
        text.append(f"# TYPE {name} gauge")
        series: dict[str, list[str]] = {}
        for line in lines:
            series.setdefault(line.partition("}")[0], []).append(line)
        text += [f"{name}{line[len(family) :]}" for series_lines in series.values() for line in series_lines]
    return "\n".join([*text, "# EOF", ""])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("waiting") / "metrics.om"
    path.write_text(exposition())
    with running_prometheus(path) as address:
        yield address


@pytest.fixture
def waits(url: str) -> Callable[[datetime], list[PodWait]]:
    settings = parse_settings(
        f'clusters: [{{name: demo, prometheus: {{url: "{url}"}}, selector: {{cluster: demo}}}}]\n'
        "pricing: {source: constant, gpu_hourly_usd: 1}\n"
    )
    return PrometheusWaitingPods(settings.clusters[0]).waits


@pytest.mark.tools
def test_waits_are_read_from_metrics_across_restarts_and_replicas(waits: Callable[[datetime], list[PodWait]]) -> None:
    by_pod = {wait.pod: wait for wait in waits(DAY)}
    assert by_pod.keys() == {"half", "long", "slice", "night", "late"}, (
        "without pods that request no GPU or no valid number"
    )
    assert by_pod["half"] == PodWait("ns", "half", "u-half", "nvidia.com/gpu", 3, ((1, 0.5),)), "2 + 1 > 2"
    assert by_pod["slice"] == PodWait("ns", "slice", "u-slice", "nvidia.com/mig-1g.10gb", 1, ((20, 1.0),))
    assert by_pod["night"].hours == ((0, 0.5),)
    assert by_pod["late"].hours == ((23, 0.5),)
    long = dict(by_pod["long"].hours)
    assert long == {11: 0.5, **dict.fromkeys(range(12, 19), 1.0), 19: 0.5}, (
        "a restart loses nothing, and replicas count once"
    )


@pytest.mark.tools
def test_day_without_scrapes_is_an_error_and_not_a_day_without_waits(
    waits: Callable[[datetime], list[PodWait]],
) -> None:
    with pytest.raises(MetricsResponseError, match="kube_node_info"):
        waits(DAY + timedelta(days=5))
    (late,) = waits(DAY - timedelta(days=1))
    assert (late.pod, late.hours) == ("night", ((23, 0.5),))


def test_stored_days_are_read_back_unchanged(table: DynamoTable) -> None:
    store = DynamoWaitingPods(DynamoDBTable(table.client, table.name))
    day_waits = [
        PodWait("ns", f"p{index}", f"u{index}", "nvidia.com/gpu", index + 1, ((3, 0.25), (4, 1.0)))
        for index in range(3)
    ]
    until = datetime.now(UTC) + timedelta(days=1)
    store.put_waits("demo", DAY, day_waits, until)
    store.put_waits("demo", DAY + timedelta(days=1), [], until)
    store.put_waits("other", DAY, day_waits[:1], until)
    days = {DAY: day_waits, DAY + timedelta(days=1): []}
    assert store.waits("demo", DAY, DAY + timedelta(days=2)) == days, "a day without waits is stored"
    assert store.waits("demo", DAY + timedelta(days=1), DAY + timedelta(days=9)) == {DAY + timedelta(days=1): []}
