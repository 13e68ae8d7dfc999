"""Random clusters with resources, drivers, claims and cluster labels that no catalog knows, through the real readers.

Each appears with its amount in a note and in doctor's report. Waste and stranded never grow by them.
"""

import random
import string
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from gpucost.core.hour_record import HourRecord
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost_cli.doctor import examine_cluster
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare, pod
from tests.system.metered_hours import assert_identity
from tests.system.remote_write import running_prometheus_with

SEEDS = range(24)
KINDS = ("resource", "driver", "claims", "cluster label", "label that divides")


class Unknown(NamedTuple):
    """What is added to a cluster, as a note and as doctor say it."""

    note: str
    finding: str


class Outcome(NamedTuple):
    """An hour without and with what is not known, and doctor's findings with it."""

    before: HourRecord
    after: HourRecord
    findings: str
    unknown: list[Unknown]


def name(of: random.Random, *suffixes: str) -> str:
    """A name that no catalog has."""
    return "".join(of.choices(string.ascii_lowercase, k=6)) + of.choice(suffixes)


def random_cluster(seed: int, cluster: str, *, is_known: bool) -> tuple[Recent, list[Unknown]]:
    """One to three nodes whose GPUs pods request, and a node that offers its GPUs to claims."""
    of = random.Random(seed)
    metrics, unknown = bare(cluster), list[Unknown]()
    names = [f"n{number}" for number in range(of.randint(1, 3))]
    kinds = {KINDS[seed % len(KINDS)], *of.sample(KINDS, k=of.randint(0, 3))}
    if {"cluster label", "label that divides"} <= kinds:  # the first explains the second
        kinds.remove("label that divides")
    divided = dict[str, dict[str, str]]()
    if kinds & {"cluster label", "label that divides"}:
        is_of_clusters = "cluster label" in kinds
        label = name(of, "Cluster", "_cluster_id") if is_of_clusters else name(of, "_env", "_zone")
        divided = {node: {label: "east"} for node in names} | {"claims": {label: "west"}}
        note = f"several clusters ({label}: east, west)" if is_of_clusters else "2 values of a label that divides"
        finding = f"series of 2 clusters are counted as one: {label}" if is_of_clusters else note
        unknown.append(Unknown(note, finding))
    for node in (*names, "claims"):
        metrics.exporter_up(node)
        labels = KSM if is_known else {**KSM, **divided.get(node, {})}
        gpus = {} if node == "claims" else {"nvidia_com_gpu": 4}
        metrics.node(node, capacity=gpus, labels={**LABELS, "karpenter_sh_nodepool": node}, ksm=labels)
        metrics.add("kube_node_status_capacity", value=48, node=node, resource="cpu", unit="core", **labels)
        for gpu in range(4):
            is_held = gpu < of.randint(0, 4) and node != "claims"
            held = {"exported_namespace": "team", "exported_pod": f"{node}-{gpu}"} if is_held else {}
            metrics.device(of.choice([0.2, 0.9]) if is_held else 0, gpu=gpu, node=node, **held)
            if is_held:
                pod(metrics, f"{node}-{gpu}", node=node)
    if "resource" in kinds:
        resource, node = name(of, "_io_gpu", "_com_npu", "_org_x1"), of.choice(names)
        advertised, requested = of.randint(2, 9), of.randint(1, 2)
        unknown += [
            Unknown(f"{units} {what} units of {resource} on {node}", f"{units} {what} units of {resource} on {node}")
            for units, what in ((advertised, "advertised"), (requested, "requested"))
        ]
        if not is_known:
            labels = {"node": node, "resource": resource, "unit": "integer", **KSM}
            metrics.add("kube_node_status_capacity", value=advertised, **labels)
            pod(metrics, "odd", node=node, resource=resource, units=requested)
    if "driver" in kinds:
        driver, count = name(of, ".example.com", ".amd.example.org"), of.randint(1, 8)
        text = f"{count} devices in ResourceSlices of the DRA driver {driver}"
        unknown.append(Unknown(text, text))
        for device in range(0 if is_known else count):
            labels = {"driver": driver, "pool_name": "claims", "device_name": f"d{device}", "node_name": "claims"}
            metrics.add("kube_resourceslice_device_info", **labels, **KSM)
    if "claims" in kinds:
        count = of.randint(1, 5)
        text = "pods with ResourceClaims of which no metric says what they allocate"
        unknown.append(Unknown(f"{count} {text}", f"{count} pods have resource claims that no device series names"))
        for number in range(0 if is_known else count):
            labels = {"namespace": "team", "pod": f"claiming-{number}", "uid": f"uid-claiming-{number}", **KSM}
            metrics.add("kube_pod_resourceclaim_info", claim_name="c", resourceclaim_name=f"x-{number}", **labels)
            metrics.owned(f"claiming-{number}", "ReplicaSet", "app-1")
    return metrics, unknown


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[int, Outcome]]:
    clusters = {
        f"{kind}-{seed}": random_cluster(seed, f"{kind}-{seed}", is_known=kind == "before")
        for seed in SEEDS
        for kind in ("before", "after")
    }
    merged = Recent()
    for metrics, _ in clusters.values():
        for family, rows in metrics.families.items():
            merged.families.setdefault(family, []).extend(rows)
    with running_prometheus_with(merged.text()) as url:

        def settings_of(cluster: str) -> str:
            return (
                f'clusters: [{{name: {cluster}, prometheus: {{url: "{url}"}}, selector: {{cluster: {cluster}}}}}]\n'
                "pricing: {source: constant, gpu_hourly_usd: 10}"
            )

        def attribute(cluster: str) -> HourRecord:
            settings = parse_settings(settings_of(cluster))
            reader = metrics_reader(settings.clusters[0], settings)
            (record,) = attribute_hours(reader, settings.clusters[0], settings, [merged.base], now=datetime.now(UTC))
            return record

        def examine(cluster: str) -> str:
            settings = parse_settings(settings_of(cluster))
            report = examine_cluster(settings.clusters[0], settings, merged.now)
            return "\n".join(check.finding or "" for check in report.checks if check.change)

        yield {
            seed: Outcome(
                attribute(f"before-{seed}"),
                attribute(f"after-{seed}"),
                examine(f"after-{seed}"),
                clusters[f"after-{seed}"][1],
            )
            for seed in SEEDS
        }


@pytest.fixture(params=SEEDS)
def outcome(request: pytest.FixtureRequest, outcomes: dict[int, Outcome]) -> Outcome:
    return outcomes[request.param]


def test_every_unknown_is_in_a_note_with_its_amount(outcome: Outcome) -> None:
    for unknown in outcome.unknown:
        assert any(unknown.note in note for note in outcome.after.notes), (unknown, outcome.after.notes)
    assert not [note for note in outcome.before.notes if note.startswith("unknown")]


def test_doctor_names_every_unknown_with_its_amount(outcome: Outcome) -> None:
    for unknown in outcome.unknown:
        assert unknown.finding in outcome.findings


def test_waste_and_stranded_never_grow_and_parts_add_up(outcome: Outcome) -> None:
    amounts = [_waste_and_stranded(record) for record in (outcome.before, outcome.after)]
    assert amounts[1][0] == amounts[0][0]
    assert amounts[1][1] <= amounts[0][1]
    assert_identity(outcome.after)
    assert outcome.after.status == "complete"


def _waste_and_stranded(record: HourRecord) -> tuple[int, int]:
    assert record.totals is not None
    assert record.totals.capacity is not None
    return record.totals.costs.waste_usd, record.totals.capacity.stranded_usd


def test_every_kind_occurs_alone_and_together(outcomes: dict[int, Outcome]) -> None:
    assert {len(outcome.unknown) for outcome in outcomes.values()} >= {1, 2, 3, 4}
