"""Samples forged by a tenant, in a real Prometheus.

If the settings name the trusted jobs, no forged sample changes a figure. Otherwise each leaves a note, and impossible
usage is not billed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.amounts import SCALE, to_decimal
from gpucost.core.hour_record import HourRecord
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX
from gpucost.pipeline.attribute import attribute_hours
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus import queries as names
from tests.records import amount
from tests.system.metered_hours import assert_identity
from tests.system.remote_write import running_prometheus_with
from tests.system.timeline import HOUR, Timeline

KSM = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
TENANT = {"job": "tenant", "instance": "10.9.9.9:8080"}
SIGNAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
TRUSTED = "sources: {kube_state_metrics: {job: kube-state-metrics}, dcgm_exporter: {job: [dcgm-exporter, dcgm-dra]}}"
NODE = {"node_kubernetes_io_instance_type": "g5.12xlarge"}
FORGED_POD = {"resource": "nvidia_com_gpu", "unit": "integer", "container": "main", **TENANT}


def cluster(name: str) -> Timeline:
    """A node of four GPUs at $10 an hour each: two held by the victim at 20% use, one by a neighbor, one free."""
    timeline = Timeline(cluster=name, step=30)
    timeline.up()
    timeline.up(job=TENANT["job"], instance=TENANT["instance"])
    timeline.up(job="dcgm-exporter", instance="n1:9400")
    timeline.node(capacity={"nvidia_com_gpu": 4}, labels=NODE)
    timeline.pod("victim", units=2)
    timeline.pod("neighbor", namespace="near")
    for gpu, pod in enumerate(("victim", "victim", "neighbor", "")):
        labels = {"exported_pod": pod, "exported_namespace": "near" if pod == "neighbor" else "team"} if pod else {}
        timeline.device(0.2 if pod else 0, gpu=gpu, **labels)
    for pod, namespace in (("victim", "team"), ("neighbor", "near")):
        pod_labels = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}"}
        timeline.add(names.POD_LABELS, label_team="x", **pod_labels, **KSM)
    timeline.add("kube_namespace_labels", namespace="team", label_owner="research", **KSM)
    timeline.add("kube_namespace_labels", namespace="near", label_owner="vision", **KSM)
    return timeline


def device(timeline: Timeline, value: float, uuid: str, **labels: str) -> None:
    """A series of a GPU on the node, as another exporter reports it."""
    timeline.add(SIGNAL, value=value, Hostname="n1", modelName="NVIDIA A10G", UUID=uuid, **labels, **TENANT)


def request(timeline: Timeline, pod: str, units: str = "1", *, phase: str = "Running", **labels: str) -> None:
    """A request and a phase, without the rest."""
    pod_labels = {"namespace": "team", "pod": pod, "uid": f"uid-{pod}", **labels}
    timeline.add(names.REQUESTS, value=units, **{"node": "n1", **FORGED_POD, **pod_labels})
    if phase:
        timeline.add(names.PHASE, value=1, phase=phase, **pod_labels, **TENANT)


def finished(timeline: Timeline, requested: str = "") -> None:
    """Samples of the victim's phase as if it had finished long ago."""
    if requested:
        request(timeline, "victim", requested, phase="")
    for phase, value in (("Running", 0), ("Succeeded", 1)):
        timeline.add(names.PHASE, value=value, namespace="team", pod="victim", uid="uid-victim", phase=phase, **TENANT)


@dataclass(frozen=True)
class Attack:
    """Forged samples, and the expected hour if all series are read."""

    forge: Callable[[Timeline], None]
    note: str
    """Text of a note, or "" if the forgery is neither detectable nor effective."""
    held: Mapping[str, Decimal] = field(default_factory=lambda: {"victim": Decimal(2), "neighbor": Decimal(1)})
    """Allocated GPU-hours by pod."""
    unobserved: Decimal = Decimal(0)
    effective_of_victim: Decimal | None = Decimal("0.4")
    residual: Decimal = Decimal(0)


NEIGHBOR = {"neighbor": Decimal(1)}
VICTIM = {"victim": Decimal(2)}
ATTACKS: dict[str, Attack] = {
    "uid-elsewhere": Attack(
        lambda timeline: request(timeline, "victim", "2", namespace="competitor"),
        "uid uid-victim is reported for pod competitor/victim on node n1 and for pod team/victim",
        held=NEIGHBOR,
        unobserved=Decimal(3),
    ),
    "more-units": Attack(
        lambda timeline: request(timeline, "victim", "4"),
        "pod team/victim: its requests are reported as 2 nvidia.com/gpu (main) and as 4 nvidia.com/gpu (main)",
        held=NEIGHBOR,
        unobserved=Decimal(3),
    ),
    "another-container": Attack(
        lambda timeline: request(timeline, "victim", "2", container="extra"),
        "pod team/victim: its requests are reported as",
        held=NEIGHBOR,
        unobserved=Decimal(3),
    ),
    "free-gpu": Attack(
        lambda timeline: request(timeline, "ghost"),
        "1 GPU pods (team/ghost is the first) are reported by job 'tenant' and not by job 'kube-state-metrics'",
        held={"victim": Decimal(2), "neighbor": Decimal(1), "ghost": Decimal(1)},
    ),
    "too-many": Attack(
        lambda timeline: request(timeline, "ghost", "9"),
        "pod team/ghost requests 9 of nvidia.com/gpu, and node n1 has 4",
        unobserved=Decimal(1),
    ),
    "1e18": Attack(
        lambda timeline: request(timeline, "ghost", "1e18"),
        "container main of pod team/ghost requests 1e+18 of nvidia.com/gpu",
        unobserved=Decimal(1),
    ),
    "1e308": Attack(
        lambda timeline: request(timeline, "ghost", "1e308"),
        "container main of pod team/ghost requests 1e+308 of nvidia.com/gpu",
        unobserved=Decimal(1),
    ),
    "overcommitted": Attack(
        lambda timeline: request(timeline, "ghost", "3"),
        "pods hold 2.000 GPU-hours more of node 'n1' than it has",
        residual=Decimal(-20),
        held={"victim": Decimal(2), "neighbor": Decimal(1), "ghost": Decimal(3)},
    ),
    "finished": Attack(finished, ""),
    "finished-and-requested": Attack(
        lambda timeline: finished(timeline, requested="2"),
        "tenant|/10.9.9.9:8080 reports it as finished",
        held=NEIGHBOR,
        unobserved=Decimal(2),
    ),
    "pod-label": Attack(
        lambda timeline: timeline.add(
            names.POD_LABELS, namespace="team", pod="victim", uid="uid-victim", label_team="y", **TENANT
        ),
        "sources report different values of label_team for pod team/victim",
    ),
    "namespace-label": Attack(
        lambda timeline: timeline.add("kube_namespace_labels", namespace="team", label_owner="vision", **TENANT),
        "sources report different values of label_owner for namespace team",
    ),
    "use-of-own-gpu": Attack(
        lambda timeline: device(timeline, 1.0, "GPU-n1-0", exported_pod="victim", exported_namespace="team"),
        "GPU exporters dcgm-exporter/n1:9400 and tenant/10.9.9.9:8080 contradict each other about 1 devices",
        effective_of_victim=Decimal("0.2"),
    ),
    "pod-of-a-gpu": Attack(
        lambda timeline: device(timeline, 0.2, "GPU-n1-2", exported_pod="victim", exported_namespace="team"),
        "contradict each other about 1 devices of node 'n1'",
    ),
    "made-up-gpu": Attack(
        lambda timeline: device(timeline, 1.0, "GPU-fake", exported_pod="victim", exported_namespace="team"),
        "contradict each other about 5 devices of node 'n1'",
        effective_of_victim=None,
    ),
    "taken-gpu": Attack(
        lambda timeline: device(timeline, 0.2, "GPU-n1-3", exported_pod="victim", exported_namespace="team"),
        "contradict each other about 1 devices of node 'n1'",
    ),
    "use-beyond-reason": Attack(
        lambda timeline: device(timeline, 1e308, "GPU-n1-0", exported_pod="victim", exported_namespace="team"),
        "utilization of 'victim' is 1e+308, where 1 is full use",
    ),
    "up": Attack(lambda timeline: timeline.up(job="tenant", instance="10.0.0.1:8080"), ""),
    "capacity": Attack(
        lambda timeline: timeline.add(
            names.CAPACITY, value=64, node="n1", resource="nvidia_com_gpu", unit="integer", **TENANT
        ),
        "capacity of nvidia_com_gpu on node n1 is reported as 4 and as 64",
        held={},
        unobserved=Decimal(4),
    ),
    "capacity-beyond-reason": Attack(
        lambda timeline: timeline.add(
            names.CAPACITY, value="1e308", node="n1", resource="nvidia_com_gpu", unit="integer", **TENANT
        ),
        "capacity of node 'n1' is reported as 1e+308; the value is left out",
    ),
    "instance-type": Attack(
        lambda timeline: timeline.add(
            names.NODE_LABELS, node="n1", label_node_kubernetes_io_instance_type="p5.48xlarge", **TENANT
        ),
        "sources report different values of label_node_kubernetes_io_instance_type for node n1",
    ),
    "instance": Attack(
        lambda timeline: timeline.add(names.NODE_INFO, node="n1", provider_id="aws:///a/i-forged", **TENANT),
        "node n1 is reported as instance aws:///",
    ),
    "made-up-node": Attack(
        lambda timeline: timeline.node("n9", capacity={"nvidia_com_gpu": 8}, ksm=TENANT),
        "1 GPU nodes (n9 is the first) are reported by job 'tenant' and not by job 'kube-state-metrics'",
    ),
    "renamed-labels": Attack(
        lambda timeline: request(timeline, "ghost", exported_node="n1", exported_pod="ghost"),
        "are reported by job 'tenant'",
        held={"victim": Decimal(2), "neighbor": Decimal(1), "ghost": Decimal(1)},
    ),
    "renamed-node": Attack(
        lambda timeline: timeline.add(names.NODE_INFO, node="n1", exported_node="n8", provider_id="i-8", **TENANT), ""
    ),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """All attacks in the same Prometheus, each in its own cluster."""
    together = Timeline()
    for name in ("sound", *ATTACKS):
        timeline = cluster(name)
        if name in ATTACKS:
            ATTACKS[name].forge(timeline)
        for family, rows in timeline.families.items():
            together.families.setdefault(family, []).extend(rows)
    with running_prometheus_with(together.text()) as address:
        yield address


def attributed(url: str, name: str, sources: str = "") -> HourRecord:
    settings = parse_settings(
        f'clusters: [{{name: test, prometheus: {{url: "{url}"}}, selector: {{cluster: {name}}}, {sources}}}]\n'
        "pricing: {source: constant, gpu_hourly_usd: 10}\ncost_labels: [team]\n"
        "business_units: [{name: research, namespace_labels: {owner: research}},"
        " {name: vision, namespace_labels: {owner: vision}}, {name: other, pod_labels: {team: y}}]\n"
    )
    reader = metrics_reader(settings.clusters[0], settings)
    (record,) = attribute_hours(reader, settings.clusters[0], settings, [HOUR], now=datetime.now(UTC))
    assert_identity(record)
    return record


def bills(record: HourRecord) -> dict[str, Decimal]:
    gpu_hours: dict[str, Decimal] = {}
    for line in record.lines:
        gpu_hours[line.business_unit] = gpu_hours.get(line.business_unit, Decimal(0)) + to_decimal(
            line.allocated_usd or 0
        )
    return gpu_hours


@pytest.mark.parametrize("name", ATTACKS)
def test_forged_samples_of_another_job_change_nothing_where_jobs_are_named(url: str, name: str) -> None:
    sound, record = attributed(url, "sound", TRUSTED), attributed(url, name, TRUSTED)
    assert (record.status, record.totals, record.lines, record.notes) == ("complete", sound.totals, sound.lines, ())
    assert record.nodes == sound.nodes
    assert bills(record) == {"research": 20, "vision": 10}


@pytest.mark.parametrize("name", ATTACKS)
def test_forged_samples_leave_a_note_and_are_not_billed(url: str, name: str) -> None:
    attack, record, sound = ATTACKS[name], attributed(url, name), attributed(url, "sound")
    suspect = [note for note in record.notes if note.startswith(SUSPECT_PREFIX)]
    assert any(attack.note in note for note in suspect) == bool(attack.note), record.notes
    assert record.status == "complete"
    assert {line.pod: to_decimal(line.allocated_gpu_hours) for line in record.lines} == attack.held
    assert record.totals is not None
    assert record.totals.capacity is not None
    assert record.totals.capacity.unobserved_gpu_hours == amount(attack.unobserved)
    assert record.totals.capacity.residual_usd == amount(attack.residual)
    assert max((line.units for line in record.lines), default=0) <= 4
    for unit, usd in bills(record).items():  # no unit pays for GPUs that another unit held
        made_up = 10 * attack.held.get("ghost", Decimal(0)) if unit == "research" else Decimal(0)
        assert unit == "team" or usd <= bills(sound).get(unit, Decimal(0)) + made_up
    effective = {line.pod: line.figures()["effective_gpu_hours"] for line in record.lines}
    if "victim" in effective:
        assert effective["victim"] == attack.effective_of_victim
    if not attack.note:
        assert (record.totals, record.lines, suspect) == (sound.totals, sound.lines, [])


def test_genuine_samples_leave_no_note(url: str) -> None:
    for sources in ("", TRUSTED):
        assert attributed(url, "sound", sources).notes == ()


def test_contradictory_label_does_not_move_a_pod_to_another_unit(url: str) -> None:
    of_pods = {line.pod: (line.business_unit, line.labels) for line in attributed(url, "pod-label").lines}
    assert of_pods == {"victim": ("research", {}), "neighbor": ("vision", {"team": "x"})}
    of_namespaces = {line.pod: line.business_unit for line in attributed(url, "namespace-label").lines}
    assert of_namespaces == {"victim": "team", "neighbor": "vision"}


def test_sources_with_a_lag_of_minutes_do_not_contradict(prometheus: Callable[[str], str]) -> None:
    """A pair of kube-state-metrics, of which one sees a change of labels, capacity and phase four minutes late."""
    timeline = cluster("pair")
    other = {"job": "kube-state-metrics", "instance": "10.0.0.2:8080"}
    timeline.up(instance=other["instance"])
    timeline.node(capacity={"nvidia_com_gpu": 4}, labels=NODE, ksm=other)
    del timeline.families[names.NODE_LABELS]  # those below take their place
    for pod, namespace, units in (("victim", "team", 2), ("neighbor", "near", 1)):
        timeline.pod(pod, namespace=namespace, units=units, **other)
    for instance_labels, late in ((KSM, 0), (other, 4)):
        timeline.pod("ends", units=1, finished_at=20 + late, **instance_labels)
        for stage, start, end in (("a", -65, 57 + late), ("b", 57 + late, 125)):
            timeline.add("kube_namespace_labels", start, end, namespace="gone", label_stage=stage, **instance_labels)
            pod_labels = {"namespace": "team", "pod": "ends", "uid": "uid-ends", **instance_labels}
            timeline.add(names.POD_LABELS, start, end, label_stage=stage, **pod_labels)
        for zone, start, end in (("a", -65, 30 + late), ("b", 30 + late, 125)):
            of_node = {f"label_{name}": text for name, text in NODE.items()} | {
                "label_topology_kubernetes_io_zone": zone
            }
            timeline.add(names.NODE_LABELS, start, end, node="n1", **of_node, **instance_labels)
    record = attributed(prometheus(timeline.text()), "pair")
    assert record.notes == ()
    assert {line.pod for line in record.lines} == {"victim", "neighbor", "ends"}


@pytest.mark.parametrize("odd", ["1e308", "11", "-5", "9223372036854775794"])
def test_implausible_use_is_not_observed(prometheus: Callable[[str], str], odd: str) -> None:
    """Of the one exporter that there is; before 3.x dcgm-exporter wrote such a number for what DCGM left blank."""
    timeline = cluster("odd")
    del timeline.families[SIGNAL]
    for gpu in range(2):
        timeline.device(odd, gpu=gpu, exported_pod="victim", exported_namespace="team")
    timeline.device("0.5", -65, 30, gpu=2, exported_pod="neighbor", exported_namespace="near")
    timeline.device(odd, 30, gpu=2, exported_pod="neighbor", exported_namespace="near")
    record = attributed(prometheus(timeline.text()), "odd")
    of_pods = {line.pod: line for line in record.lines}
    assert of_pods["victim"].effective_usd is None
    assert of_pods["victim"].unmeasured_usd == amount(20)
    assert of_pods["neighbor"].unmeasured_gpu_hours / SCALE == pytest.approx(0.5, abs=0.02)
    assert (of_pods["neighbor"].effective_gpu_hours or 0) / SCALE == pytest.approx(0.25, abs=0.02)
    assert sum("where 1 is full use; they count as unmeasured" in note for note in record.notes) == 2


def test_forged_gpu_measures_nothing_without_a_gpu_count(prometheus: Callable[[str], str]) -> None:
    timeline = cluster("unknown")
    timeline.families[names.NODE_LABELS] = []
    device(timeline, 1.0, "GPU-fake", exported_pod="victim", exported_namespace="team")
    record = attributed(prometheus(timeline.text()), "unknown")
    of_pods = {line.pod: line for line in record.lines}
    assert of_pods["victim"].effective_usd is None
    assert of_pods["neighbor"].effective_usd == amount(2)
    assert any("contradict each other about 3 devices" in note for note in record.notes)


def test_each_suspect_job_of_a_tenant_has_a_note(prometheus: Callable[[str], str]) -> None:
    """A note for each two jobs would be millions, and take more memory than the function has."""
    timeline = Timeline(cluster="jobs", step=300)
    timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 4}, labels=NODE)
    timeline.pod("victim", units=2)
    for number in range(60):
        timeline.pod(f"ghost-{number}", namespace="evil", job=f"job-{number}", instance=f"10.9.9.9:{number}")
    record = attributed(prometheus(timeline.text()), "jobs")
    about_jobs = [note for note in record.notes if "are reported by job" in note]
    assert len(about_jobs) == 61
    assert any("by job 'job-7' and not by job 'job-0'" in note for note in about_jobs)
