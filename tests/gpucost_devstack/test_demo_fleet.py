"""The demo's fleet: a function of calendar time, attributed exactly, at the prices of the built-in list."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import simplejson

from gpucost.core.pricing.list_price_table import DAYS, HOURLY_PRICES
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli import rendering
from gpucost_devstack.fleet import demo, kube_state_metrics, openmetrics, truth
from gpucost_devstack.fleet.demo.fleet import EXPERIMENTS
from gpucost_devstack.fleet.demo.spot_prices import ON_DEMAND_USD
from gpucost_devstack.fleet.demo.units import BUSINESS_UNITS
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.prometheus import running_prometheus
from tests.system import remote_write
from tests.system.fleet_truth import assert_identity, compare, in_metrics, true_hour

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
FRIDAY = TODAY - DAY * ((TODAY.weekday() - 4) % 7)
START, END = FRIDAY - 3 * DAY, FRIDAY
"""Tuesday to Thursday."""
OUTAGE = START + DAY + 3 * HOUR
"""Every Wednesday."""
HOURS = [START + number * HOUR for number in range(13, 40)]
"""With a release of every service on Tuesday, and with the outage."""
PRICES = {name: Fraction(text) for name, text in HOURLY_PRICES["us-east-1"].items()}
RESERVED = Fraction(62, 100)
BLOCK_FLAGS = ("--storage.tsdb.min-block-duration=240h", "--storage.tsdb.max-block-duration=240h")
"""Prometheus accepts samples that are older than the newest ones by at most half of this."""
Samples = dict[tuple[Any, ...], list[tuple[int, str]]]


def settings(url: str) -> SettingsDocument:
    return parse_settings(json.dumps(demo.settings_document(dict.fromkeys(demo.CLUSTERS, url))))


@cache
def scenarios_of_hour(hour: datetime) -> dict[str, Scenario]:
    return {scenario.name: scenario for scenario in demo.scenarios(hour, hour + HOUR)}


def samples_of_hours(start: datetime, end: datetime, hours: Collection[datetime]) -> dict[datetime, Samples]:
    """All samples of some hours, by series, as a range that contains the hours generates them."""
    base = round(start.timestamp() * 1000)
    compared = {round(hour.timestamp()) // 3600: hour for hour in hours}
    samples: dict[datetime, Samples] = {hour: defaultdict(list) for hour in hours}
    for scenario in demo.scenarios(start, end):
        for series in openmetrics.series(scenario):
            key = (scenario.name, series.metric, *sorted(series.labels.items()))
            for at, text in series.samples:
                if (hour := compared.get((base + at) // 3_600_000)) is not None:
                    shown = str(base // 1000 + int(text[1:])) if text.startswith("@") else text
                    samples[hour][key].append((base + at, shown))
    return {hour: {key: sorted(pairs) for key, pairs in by_series.items()} for hour, by_series in samples.items()}


def true_lines(hour: truth.TrueHour) -> list[tuple[str, Fraction, Fraction]]:
    """The pods that hold GPUs in an hour, with their allocated and effective GPU-hours."""
    return [
        (
            line.pod.id,
            line.allocated_gpu_hours.value,
            line.effective_gpu_hours.value if line.effective_gpu_hours else Fraction(0),
        )
        for line in hour.lines
        if line.allocated_gpu_hours.value
    ]


@pytest.fixture(scope="module")
def attributed() -> dict[tuple[str, datetime], Any]:
    """The figures of the hours, by cluster and hour, from a real Prometheus that holds all clusters."""
    with running_prometheus(None, *BLOCK_FLAGS, "--web.enable-remote-write-receiver") as url:
        begin = HOURS[0] - HOUR  # the first hour needs earlier samples
        series = (
            (cluster.name, each)
            for cluster in demo.scenarios(begin, HOURS[-1] + HOUR)
            for each in openmetrics.series(cluster)
        )
        remote_write.send_whole_series(url, series, round(begin.timestamp()) * 1000)
        document = settings(url)
        records = [
            record
            for cluster in document.clusters
            for record in attribute_hours(metrics_reader(cluster, document), cluster, document, HOURS, now=END + HOUR)
        ]
    answer = simplejson.loads(rendering.hours_json(records), parse_float=Decimal, parse_int=Decimal)
    return {(hour["cluster"], datetime.fromisoformat(hour["hour"])): hour for hour in answer["hours"]}


@pytest.mark.parametrize(
    ("range_start", "range_end", "hours_later"),
    [
        (-3 * DAY, 28 * HOUR, (0, 11, 14, 27)),
        (-30 * HOUR, 20 * HOUR, (0, 11, 14)),
        (-3 * HOUR, 47 * HOUR, (11, 27)),
        (28 * HOUR, 101 * HOUR, (100,)),
        (70 * HOUR, 120 * HOUR, (100,)),
    ],
)
def test_hour_has_the_same_samples_in_every_range(
    range_start: timedelta, range_end: timedelta, hours_later: tuple[int, ...]
) -> None:
    """Each hour in the middle and at the end of a range, up to four days after its start."""
    hours = [START + number * HOUR for number in hours_later]
    within = samples_of_hours(START + range_start, START + range_end, hours)
    for hour in hours:
        alone = samples_of_hours(hour, hour + HOUR, [hour])[hour]
        assert len(alone) > 300
        assert within[hour] == alone


def test_hour_has_the_same_truth_in_every_range() -> None:
    hour = START + 34 * HOUR
    for within in demo.scenarios(hour - 20 * HOUR, hour + 5 * HOUR):
        long, alone = truth.true_hour(within, 20), truth.true_hour(scenarios_of_hour(hour)[within.name], 0)
        assert true_lines(long) == true_lines(alone)
        for part in ("capacity", "unallocated", "stranded", "unobserved", "excess"):
            assert getattr(long, part).value == getattr(alone, part).value


def test_every_line_matches_the_truth(attributed: dict[tuple[str, datetime], Any]) -> None:
    unit_of = {namespace: unit.name for unit in BUSINESS_UNITS for namespace in unit.namespaces}
    units = set()
    for hour in HOURS:
        for name, scenario in scenarios_of_hour(hour).items():
            if (name, hour) == (demo.CLUSTERS[2], OUTAGE):
                continue
            true = {(line.pod.id, line.resource): line for line in true_hour(scenario, 0).lines}
            lines = {(line["uid"], in_metrics(line["resource"])): line for line in attributed[name, hour]["lines"]}
            assert lines.keys() <= true.keys(), hour
            assert {key for key, line in true.items() if not line.may_be_missing} <= lines.keys(), hour
            for key, line in lines.items():
                assert line["business_unit"] == unit_of[line["namespace"]]
                units.add(line["business_unit"])
                compare(scenario, {**line, "business_unit": line["namespace"]}, true[key])
    assert units == {unit.name for unit in BUSINESS_UNITS}


@pytest.mark.parametrize(("scale", "hours"), [(1, 48), (500, 2)])
def test_namespaces_never_exceed_their_quotas(scale: int, hours: int) -> None:
    """Kubernetes refuses pods beyond a quota. Copies of a large fleet share the namespaces of a region."""
    begin = START + 14 * HOUR
    namespaces = set()
    for scenario in demo.scenarios(begin, begin + hours * HOUR, scale=scale):
        for series in kube_state_metrics.series(scenario):
            if series.metric == "kube_resourcequota" and series.labels["type"] == "used":
                namespace = series.labels["namespace"]
                namespaces.add(namespace)
                assert max(int(text) for _, text in series.samples) <= scenario.quotas[namespace], namespace
    assert {"chat", "chat-training", "pretraining", "render"} <= namespaces


def test_costs_are_conserved_in_every_hour(attributed: dict[tuple[str, datetime], Any]) -> None:
    for (name, hour), answer in attributed.items():
        if (name, hour) != (demo.CLUSTERS[2], OUTAGE):
            assert_identity(scenarios_of_hour(hour)[name], 0, answer)


def test_only_the_outage_is_incomplete(attributed: dict[tuple[str, datetime], Any]) -> None:
    incomplete = [key for key, answer in attributed.items() if answer["status"] == "incomplete"]
    assert incomplete == [(demo.CLUSTERS[2], OUTAGE)]


def test_nodes_cost_their_list_price(attributed: dict[tuple[str, datetime], Any]) -> None:
    """Nodes of these two clusters exist all the time. The expected cost does not come from the product's rating."""
    for name in demo.CLUSTERS[:2]:
        nodes = scenarios_of_hour(START)[name].nodes
        expected = sum(
            PRICES[node.instance_type] * (RESERVED if node.labels["karpenter_sh_capacity_type"] == "reserved" else 1)
            for node in nodes
        )
        for hour in HOURS:
            assert Fraction(attributed[name, hour]["totals"]["node_cost_usd"]) == pytest.approx(expected, rel=1e-9)


def test_gpus_have_no_common_price(attributed: dict[tuple[str, datetime], Any]) -> None:
    prices: dict[str, set[Decimal]] = defaultdict(set)
    for answer in attributed.values():
        for line in answer["lines"]:
            prices[line["instance_type"]].add(line["gpu_hourly_usd"])
    assert {name: len(of_type) for name, of_type in prices.items() if len(of_type) > 1} == {"p4d.24xlarge": 2}, (
        "reserved"
    )
    amounts = [amount for of_type in prices.values() for amount in of_type]
    assert len(amounts) == len({*amounts}) == 9


def test_hours_show_every_part_of_the_cost(attributed: dict[tuple[str, datetime], Any]) -> None:
    sums: Counter[str] = Counter()
    for answer in attributed.values():
        sums.update({part: amount for part, amount in answer["totals"].items() if amount is not None})
    for part in ("effective", "waste", "unmeasured", "unallocated", "stranded", "host"):
        assert sums[f"{part}_usd"] > 10, part


def test_spot_prices_are_lower_than_list_prices_and_change() -> None:
    prices = demo.spot_prices(END - 35 * DAY, END)
    assert {name: Fraction(amount) for name, amount in ON_DEMAND_USD.items()}.items() <= PRICES.items()
    for price in prices:
        assert 0.3 < Fraction(price.hourly_usd) / PRICES[price.instance_type] < 0.6
    of_a_zone = [price for price in prices if (price.instance_type, price.zone_id) == ("g5.xlarge", "use1-az4")]
    assert len(of_a_zone) == 35
    assert len({price.hourly_usd for price in of_a_zone}) > 30
    later = {(price.instance_type, price.zone_id, price.since): price for price in demo.spot_prices(END - DAY, END)}
    assert later.items() <= {(price.instance_type, price.zone_id, price.since): price for price in prices}.items()
    assert "spot, simulated" in demo.PRICE_NOTE
    assert f"{DAYS['us-east-1']}, us-east-1" in demo.PRICE_NOTE


@pytest.mark.parametrize(("scale", "gpus", "units"), [(1, range(60, 91), 14), (1000, range(900, 1101), 56)])
def test_scale_is_about_the_number_of_gpus(scale: int, gpus: range, units: int) -> None:
    hour = START + 15 * HOUR
    clusters = demo.scenarios(hour, hour + HOUR, scale=scale)
    assert sum(node.gpus for cluster in clusters for node in cluster.nodes) in gpus
    document = parse_settings(json.dumps(demo.settings_document(dict.fromkeys(demo.CLUSTERS, "http://p"), scale=scale)))
    assert len({unit.name for unit in document.business_units}) == units
    namespaces = {namespace for unit in document.business_units for namespace in unit.namespaces}
    for cluster in clusters:
        assert {pod.namespace for pod in cluster.pods} <= namespaces
        assert len({node.name for node in cluster.nodes}) == len(cluster.nodes)
        pods = Counter((pod.namespace, pod.name) for pod in cluster.pods if pod.node and pod.deleted_at > 30)
        assert not [name for name, count in pods.items() if count > 1]


def test_devices_are_held_by_a_single_pod_at_a_time() -> None:
    for cluster in demo.scenarios(START, END, scale=200):
        holders: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        for pod in cluster.pods:
            if pod.node and pod.node.geometries[0].replicas == 1:
                for device in pod.devices:
                    holders[pod.node.name, device].append((float(pod.bound_at), float(pod.released_at)))
        for key, intervals in holders.items():
            ordered = sorted(intervals)
            for (_, end), (start, _) in pairwise(ordered):
                assert end <= start, (cluster.name, key)


def test_fleet_refuses_times_within_an_hour_and_scales_below_1() -> None:
    with pytest.raises(ValueError, match="not a full hour"):
        demo.scenarios(START + timedelta(minutes=1), END)
    with pytest.raises(ValueError, match="less than 1"):
        demo.scenarios(START, END, scale=0)


@pytest.mark.parametrize("days", range(14))
def test_weekly_reviews_see_every_stage_of_an_experiment(days: int) -> None:
    """A review needs a week of idleness to recommend that one is stopped, and a week without it to verify that."""
    end, week = END + days * DAY, 7 * 24 * 60
    production, *_ = demo.scenarios(end - 35 * DAY, end)
    length = 35 * 24 * 60
    names = {name for _, name in EXPERIMENTS}
    runs = [
        (float(pod.bound_at), float(pod.deleted_at))
        for pod in production.pods
        if pod.node and pod.owners[1][1] in names
    ]
    assert any(start + week < length < stopped for start, stopped in runs), "recommended"
    assert any(stopped + week < length for _, stopped in runs), "verified"
    assert any(length - 10 * 24 * 60 < stopped < length for _, stopped in runs), "applied, or verified lately"
    reviews = [length - number * week for number in range(5)]
    for start, stopped in runs:
        assert start < 0 or stopped > length or any(start + week < review < stopped for review in reviews)
