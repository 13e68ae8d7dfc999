"""Every object of the kit against the schema of the version that the kit names; a key that is not there is an error."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.manifests.rendered import example, example_parameters, objects

SCHEMAS = Path(__file__).parent / "schemas"
CUSTOM: Mapping[str, Any] = {
    kind: {**schema, "$defs": document.get("$defs", {})}
    for name in ("karpenter", "eksctl", "others")
    for document in [yaml.safe_load((SCHEMAS / f"{name}.yaml").read_text())]
    for kind, schema in document.items()
    if kind != "$defs"
}
CHARTS: Mapping[str, Any] = yaml.safe_load((SCHEMAS / "charts.yaml").read_text())
VALUES = {
    "helm/gpu-operator.yaml": "gpu-operator",
    "helm/gpu-operator-mig-single.yaml": "gpu-operator",
    "helm/gpu-operator-mig-mixed.yaml": "gpu-operator",
    "helm/gpu-operator-time-slicing.yaml": "gpu-operator",
    "helm/gpu-operator-mps.yaml": "gpu-operator",
    "helm/dcgm-exporter.yaml": "dcgm-exporter",
    "helm/kube-state-metrics.yaml": "kube-state-metrics",
    "helm/keda.yaml": "keda",
    "helm/cluster-autoscaler.yaml": "cluster-autoscaler",
    "karpenter/values.yaml": "karpenter",
}


def check(document: Any) -> None:
    """Raises where an object does not fit its schema."""
    if document["kind"] in CUSTOM:
        jsonschema.Draft202012Validator(CUSTOM[document["kind"]]).validate(document)
    else:
        version = example_parameters().kubernetes_version
        assert kubernetes_validate.validate(document, version, strict=True) == version


def foreign_keys(chart: Mapping[str, list[str]], given: Mapping[str, Any], section: str = "top") -> list[str]:
    """Keys of values that the chart does not have."""
    found = [f"{section}.{key}" for key in given if key not in chart[section]]
    for key, value in given.items():
        below = key if section == "top" else f"{section}.{key}"
        if below in chart and isinstance(value, dict):
            found += foreign_keys(chart, value, below)
    return found


def test_every_object_fits_its_schema() -> None:
    seen = [(name, document) for name, document in objects(example())]
    for name, document in seen:
        try:
            check(document)
        except jsonschema.ValidationError as error:
            pytest.fail(f"{name}, {document['kind']}: {error.json_path}: {error.message[:300]}")
    kinds = {document["kind"] for _, document in seen}
    assert kinds >= {*CUSTOM, "Job", "CronJob", "Deployment", "StatefulSet", "ResourceQuota", "PriorityClass"}


@pytest.mark.parametrize(
    ("kind", "where", "wrong"),
    [
        ("NodePool", ("spec", "disruption", "consolidationPolicy"), "WhenUnderutilized"),  # v1beta1
        ("NodePool", ("spec", "disruption", "expireAfter"), "720h"),  # v1beta1: it stood there
        ("EC2NodeClass", ("spec", "amiSelectorTerms"), []),
        ("ClusterConfig", ("managedNodeGroup",), []),
        ("ScaledObject", ("spec", "minReplicas"), 2),
        ("Deployment", ("spec", "template", "spec", "toleration"), []),
        ("Job", ("spec", "completionMode"), 4),
        ("ResourceQuota", ("spec", "hard"), ["gpu"]),
    ],
)
def test_the_schemas_refuse_what_is_wrong(kind: str, where: tuple[str, ...], wrong: object) -> None:
    document = deepcopy(next(document for _, document in objects(example()) if document["kind"] == kind))
    at = document
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = wrong
    with pytest.raises(jsonschema.ValidationError):
        check(document)


def test_values_set_only_what_their_charts_have() -> None:
    for name, chart in VALUES.items():
        given = yaml.safe_load(example()[name])
        assert foreign_keys(CHARTS[chart], given) == [], name
    assert set(VALUES) == {name for name in example() if name.startswith("helm/")} | {"karpenter/values.yaml"}
    watched = yaml.safe_load(example()["helm/kube-state-metrics.yaml"])["collectors"]
    assert set(watched) <= set(CHARTS["kube-state-metrics"]["collectors-known"])
    assert foreign_keys(CHARTS["gpu-operator"], {"dcgmExporter": {"enablePodUid": True}}) == [
        "dcgmExporter.enablePodUid"
    ]


def test_objects_refer_to_what_is_there() -> None:
    """Node classes, node labels, priority classes, namespaces, claims and configurations that objects name exist."""
    found = list(objects(example()))
    named = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for _, one in found}
    pools = [one for _, one in found if one["kind"] == "NodePool"]
    groups = [group for _, one in found if one["kind"] == "ClusterConfig" for group in one["managedNodeGroups"]]
    for pool in pools:
        assert ("EC2NodeClass", "", pool["spec"]["template"]["spec"]["nodeClassRef"]["name"]) in named
    labels = [pool["spec"]["template"]["metadata"]["labels"] for pool in pools] + [group["labels"] for group in groups]
    places = {(key, value) for one in labels for key, value in one.items()}
    assert len({pool["spec"]["weight"] for pool in pools if "tier" in pool["metadata"]["name"]}) == 3
    for name, one in found:
        spec = one.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
        pod = template.get("spec", {}) if one["kind"] not in {"NodePool"} else {}
        space = one["metadata"].get("namespace", "")
        assert space in {"", "default"} or ("Namespace", "", space) in named, name
        for key, value in pod.get("nodeSelector", {}).items():
            assert key.startswith("karpenter.sh/") or (key, value) in places, (name, key, value)
        if "priorityClassName" in pod:
            assert ("PriorityClass", "", pod["priorityClassName"]) in named
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", space, volume["configMap"]["name"]) in named
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", space, volume["persistentVolumeClaim"]["claimName"]) in named


def test_who_asks_for_gpus_is_let_onto_their_nodes() -> None:
    for name, one in objects(example()):
        if one["kind"] in {"Deployment", "Job", "CronJob"}:
            template = one["spec"].get("jobTemplate", one)["spec"]["template"]["spec"]
            limits = [container["resources"].get("limits", {}) for container in template["containers"]]
            wants = any(key.startswith("nvidia.com/") for limit in limits for key in limit)
            tolerates = any(one["key"] == "nvidia.com/gpu" for one in template.get("tolerations", []))
            assert wants == tolerates, name


def test_quotas_leave_room_for_an_update() -> None:
    found = [one for _, one in objects(example())]
    quotas = {
        one["metadata"]["namespace"]: int(one["spec"]["hard"]["requests.nvidia.com/gpu"])
        for one in found
        if one["kind"] == "ResourceQuota"
    }
    tenants = [one for one in found if one["kind"] == "Deployment" and one["metadata"]["name"] == "slices"]
    assert {one["metadata"]["namespace"]: one["spec"]["replicas"] for one in tenants} == {
        "bu-a": 3,
        "bu-b": 2,
        "bu-c": 2,
    }
    for one in tenants:
        surge = one["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        assert one["spec"]["replicas"] + surge <= quotas[one["metadata"]["namespace"]]
