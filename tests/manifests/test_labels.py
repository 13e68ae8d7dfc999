"""Every Kubernetes label that the code reads is in the catalog, the manifests, `doctor` and the docs."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from gpucost.core.amounts import to_decimal
from gpucost.core.metering import kubernetes_labels
from gpucost.core.metering.kubernetes_labels import ADMIN_ACCESS_LABEL, GPU_CLIQUE_LABEL, all_node_labels, exported_name
from gpucost.core.metering.nodes import describe_node
from gpucost.core.metering.observations import NodeObservation
from gpucost.core.pricing.prices import attributes_of_node
from gpucost.settings_document import parse_settings
from gpucost.sources.aws_prices import AwsPriceList, Ec2SpotHistory
from gpucost.storage.ports import Table
from gpucost_cli.doctor.queries import DoctorQueries
from gpucost_cli.manifests.parameters import parse_parameters
from gpucost_cli.manifests.rendering import render_files
from gpucost_cli.manifests.values import template_values
from gpucost_devstack.template import REPOSITORY
from tests.manifests.rendered import example_files, parameters_text, settings_text
from tests.pipeline.attributed import NOW, System
from tests.sources.aws_prices import Aws, Offer, Point
from tests.system.timeline import HOUR, Timeline

CATALOG = Path(kubernetes_labels.__file__)
SIMULATOR = REPOSITORY / "gpucost_devstack" / "fleet"
PROMETHEUS_NAMES = {
    "label_replace",
    "label_join",
    "label_values",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
}
"""Functions of PromQL and limits of scrapes, which are no labels."""
MODULES_WITH_LABELS_OF_SETTINGS = {"layers/common/gpucost/pipeline/attribute.py", "gpucost_cli/doctor/queries.py"}
"""Modules that may turn a label key into an exported name: the keys are those of the settings."""


def allowed_labels(files: Mapping[str, str], kind: str) -> set[str]:
    """Return the label keys that the rendered kube-state-metrics exports for allow_list kind of object."""
    lists = yaml.safe_load(files["helm/kube-state-metrics.yaml"])["metricLabelsAllowlist"]
    (text,) = [allow_list for allow_list in lists if allow_list.startswith(f"{kind}=[")]
    return set(text.removeprefix(f"{kind}=[").removesuffix("]").split(","))


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("layers/common/gpucost", "functions", "gpucost_cli", "gpucost_devstack"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            if path != CATALOG and SIMULATOR not in path.parents and "node_modules" not in path.parts:
                yield path, ast.parse(path.read_text())


def docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of constants that are docstrings."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def test_only_the_catalog_names_exported_labels() -> None:
    references = []
    for path, tree in modules():
        skipped = docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                names = set(re.findall(r"\blabel_[a-z0-9_]+", node.value)) - PROMETHEUS_NAMES
                references += [f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name}" for name in sorted(names)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exported_name":
                references.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}: exported_name()")
    calls = {name.partition(":")[0] for name in references if name.endswith("exported_name()")}
    assert calls == MODULES_WITH_LABELS_OF_SETTINGS
    assert [name for name in references if not name.endswith("exported_name()")] == []


class RecordingLabels(dict[str, str]):
    """Empty labels of a node that record the names of all lookups."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.read.add(name)
        return default


def test_manifests_export_every_label_that_metering_and_prices_read() -> None:
    labels = RecordingLabels()
    capacity = {"nvidia_com_mig_1g_5gb_shared": Decimal(7), "nvidia_com_mig_3g_20gb_shared": Decimal(2)}
    node = describe_node(NodeObservation("n", "", None, labels, ()), labels, (), capacity, {})
    attributes_of_node(node, "c")
    for resource in capacity:
        node.share(resource, None)
    exported = {exported_name(key) for key in allowed_labels(example_files(), "nodes")}
    assert len(labels.read) > 20
    assert labels.read - exported == set()


def test_manifests_and_doctor_use_the_whole_catalog() -> None:
    keys = {key for label in all_node_labels() for key in label.all_keys}
    assert allowed_labels(example_files(), "nodes") == {*keys, *GPU_CLIQUE_LABEL.all_keys}
    queried_names = set(re.findall(r"\blabel_[a-z0-9_]+", DoctorQueries({}).nodes())) - PROMETHEUS_NAMES
    assert queried_names == {exported_name(key) for key in keys}


def test_catalog_is_documented() -> None:
    page = (REPOSITORY / "docs/how-to/existing-cluster.md").read_text()
    for label in kubernetes_labels.NODE_LABELS:
        row = f"| {', '.join(f'`{key}`' for key in label.all_keys)} | {label.purpose} |"
        assert row in page, row


def test_manifests_export_the_labels_of_the_settings() -> None:
    text = settings_text().partition("business_units:")[0]
    text += (
        "business_units:\n- {name: a, namespace_labels: {org/team: a}}\n- {name: b, pod_labels: {squad: b}}\n"
        "cost_labels: [project, gpucost/interruptible]\n"
    )
    parameters = re.sub(r", business_unit: bu-.", "", parameters_text())
    files = dict(render_files(template_values(parse_settings(text), parse_parameters(parameters))))
    assert allowed_labels(files, "namespaces") == {"org/team", ADMIN_ACCESS_LABEL}
    assert allowed_labels(files, "pods") == {"squad", "project", "gpucost/interruptible"}


COMMON = {
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "topology.kubernetes.io/region": "us-east-1",
    "topology.kubernetes.io/zone": "us-east-1a",
    "topology.k8s.aws/zone-id": "use1-az6",
    "nvidia.com/gpu.product": "NVIDIA-A10G",
    "nvidia.com/gpu.count": "1",
}
NODES = {
    "spot": {
        "node.kubernetes.io/instance-type": "g5.xlarge",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/nodepool": "inference",
    },
    "self-managed-spot": {
        "node.kubernetes.io/instance-type": "g5.xlarge",
        "node-lifecycle": "spot",
        "alpha.eksctl.io/nodegroup-name": "old",
    },
    "block": {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "karpenter.sh/capacity-type": "reserved",
        "karpenter.k8s.aws/capacity-reservation-id": "cr-0a1b2c3d",
        "karpenter.sh/nodepool": "training",
    },
    "on-demand": {
        "node.kubernetes.io/instance-type": "g5.xlarge",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "eks.amazonaws.com/nodegroup": "base",
    },
}
"""Labels as EKS, Karpenter, eksctl and GPU feature discovery write them."""


@pytest.fixture
def kube_state_metrics() -> Timeline:
    """A cluster as the rendered kube-state-metrics exposes it, with the labels of its allow-list only."""
    allowed = allowed_labels(example_files(), "nodes")
    timeline = Timeline()
    timeline.up()
    for node, labels in NODES.items():
        kept = {exported_name(key): value for key, value in {**COMMON, **labels}.items() if key in allowed}
        gpus = 8 if node == "block" else 1
        exposed = {name.removeprefix("label_"): value for name, value in kept.items()}
        timeline.node(node, capacity={"nvidia_com_gpu": gpus}, labels=exposed)
        timeline.pod(f"on-{node}", node=node, units=gpus)
    return timeline


def test_spot_prices_and_capacity_blocks_apply_with_the_rendered_manifests(
    kube_state_metrics: Timeline, ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    system = System(ledger_table, prometheus(kube_state_metrics.text()))
    block = {
        "reservation_id": "cr-0a1b2c3d",
        "instance_type": "p5.48xlarge",
        "instances": 1,
        "fee_usd": 480,
        "from": (HOUR - timedelta(hours=6)).isoformat(),
        "until": (HOUR + timedelta(hours=18)).isoformat(),
    }
    pricing = {"sources": ["capacity-block", "spot", "on-demand"], "capacity_blocks": [block]}
    document = {"clusters": [{"name": "demo", "prometheus": {"url": system.url}}], "pricing": pricing}
    system.store.push(json.dumps(document), author="me", now=NOW)
    aws = Aws()
    aws.points = [Point("g5.xlarge", "us-east-1a", HOUR - timedelta(days=3), "0.30")]
    aws.offers = [
        Offer("g5.xlarge", "us-east-1", "1.0060000000", since="2020-01-01T00:00:00Z"),
        Offer("p5.48xlarge", "us-east-1", "55.0400000000", since="2020-01-01T00:00:00Z"),
    ]
    types = ["g5.xlarge", "p5.48xlarge"]
    spot = Ec2SpotHistory(aws.client).fetch("us-east-1", types, ["linux"], since=HOUR, now=NOW)
    system.book.merge_prices("spot", spot, since=HOUR, rated_until=HOUR, now=NOW)
    listed = AwsPriceList(aws.client).fetch("us-east-1", types, ["linux"], tenancy="Shared", now=NOW)
    system.book.merge_prices("on-demand", listed, rated_until=HOUR, now=NOW)
    system.attribute(version=2)
    lines = system.ledger.lines("demo", HOUR)
    assert {line.pod: (line.price_source, to_decimal(line.allocated_usd or 0), line.node_pool) for line in lines} == {
        "on-spot": ("spot", Decimal("0.30"), "inference"),
        "on-self-managed-spot": ("spot", Decimal("0.30"), "old"),
        "on-block": ("capacity-block", Decimal(20), "training"),
        "on-on-demand": ("on-demand", Decimal("1.006"), "base"),
    }
