"""Every rendered object is valid in the schema of its version; unknown keys are errors."""

from copy import deepcopy

import jsonschema
import pytest
import yaml

from tests.manifests.rendered import example_files, objects
from tests.manifests.schema_checks import CHARTS, CUSTOM, check, foreign_keys

VALUES = {
    "helm/gpu-operator.yaml": "gpu-operator",
    "helm/gpu-operator-mig-single.yaml": "gpu-operator",
    "helm/gpu-operator-mig-mixed.yaml": "gpu-operator",
    "helm/gpu-operator-time-slicing.yaml": "gpu-operator",
    "helm/gpu-operator-mps.yaml": "gpu-operator",
    "helm/dcgm-exporter.yaml": "dcgm-exporter",
    "helm/dcgm-exporter-shared.yaml": "dcgm-exporter",
    "helm/dcgm-exporter-dra.yaml": "dcgm-exporter",
    "helm/kube-state-metrics.yaml": "kube-state-metrics",
    "helm/keda.yaml": "keda",
    "helm/cluster-autoscaler.yaml": "cluster-autoscaler",
    "karpenter/values.yaml": "karpenter",
}


def test_every_object_fits_its_schema() -> None:
    seen = [(name, document) for name, document in objects(example_files())]
    for name, document in seen:
        try:
            check(document)
        except jsonschema.ValidationError as error:
            pytest.fail(f"{name}, {document['kind']}: {error.json_path}: {error.message[:300]}")
    kinds = {document["kind"] for _, document in seen}
    assert kinds >= {*CUSTOM, "Job", "CronJob", "Deployment", "StatefulSet", "ResourceQuota", "PriorityClass"}


@pytest.mark.parametrize(
    ("kind", "path", "invalid_value"),
    [
        ("NodePool", ("spec", "disruption", "consolidationPolicy"), "WhenUnderutilized"),  # v1beta1
        ("NodePool", ("spec", "disruption", "expireAfter"), "720h"),  # v1beta1 had it here
        ("EC2NodeClass", ("spec", "amiSelectorTerms"), []),
        ("ClusterConfig", ("managedNodeGroup",), []),
        ("ScaledObject", ("spec", "minReplicas"), 2),
        ("Deployment", ("spec", "template", "spec", "toleration"), []),
        ("Job", ("spec", "completionMode"), 4),
        ("ResourceQuota", ("spec", "hard"), ["gpu"]),
    ],
)
def test_schemas_refuse_invalid_objects(kind: str, path: tuple[str, ...], invalid_value: object) -> None:
    document = deepcopy(next(document for _, document in objects(example_files()) if document["kind"] == kind))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = invalid_value
    with pytest.raises(jsonschema.ValidationError):
        check(document)


def test_values_use_only_keys_of_their_charts() -> None:
    for name, chart in VALUES.items():
        values = yaml.safe_load(example_files()[name])
        assert foreign_keys(CHARTS[chart], values) == [], name
    assert set(VALUES) == {name for name in example_files() if name.startswith("helm/")} | {"karpenter/values.yaml"}
    watched = yaml.safe_load(example_files()["helm/kube-state-metrics.yaml"])["collectors"]
    assert set(watched) <= set(CHARTS["kube-state-metrics"]["collectors-known"])
    assert foreign_keys(CHARTS["gpu-operator"], {"dcgmExporter": {"enablePodUid": True}}) == [
        "dcgmExporter.enablePodUid"
    ]


def test_referenced_objects_exist() -> None:
    """Node classes, node labels, priority classes, namespaces, claims and configurations that objects name exist."""
    all_objects = list(objects(example_files()))
    names = {
        (document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"])
        for _, document in all_objects
    }
    pools = [document for _, document in all_objects if document["kind"] == "NodePool"]
    groups = [
        group
        for _, document in all_objects
        if document["kind"] == "ClusterConfig"
        for group in document["managedNodeGroups"]
    ]
    for pool in pools:
        assert ("EC2NodeClass", "", pool["spec"]["template"]["spec"]["nodeClassRef"]["name"]) in names
    labels = [pool["spec"]["template"]["metadata"]["labels"] for pool in pools] + [group["labels"] for group in groups]
    node_labels = {(key, value) for document in labels for key, value in document.items()}
    assert len({pool["spec"]["weight"] for pool in pools if "tier" in pool["metadata"]["name"]}) == 3
    for name, document in all_objects:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
        pod = template.get("spec", {}) if document["kind"] not in {"NodePool"} else {}
        space = document["metadata"].get("namespace", "")
        assert space in {"", "default"} or ("Namespace", "", space) in names, name
        for key, value in pod.get("nodeSelector", {}).items():
            assert key.startswith("karpenter.sh/") or (key, value) in node_labels, (name, key, value)
        if "priorityClassName" in pod:
            assert ("PriorityClass", "", pod["priorityClassName"]) in names
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", space, volume["configMap"]["name"]) in names
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", space, volume["persistentVolumeClaim"]["claimName"]) in names


def test_pods_with_gpus_tolerate_the_taint_of_gpu_nodes() -> None:
    for name, document in objects(example_files()):
        if document["kind"] in {"Deployment", "Job", "CronJob"}:
            template = document["spec"].get("jobTemplate", document)["spec"]["template"]["spec"]
            limits = [container["resources"].get("limits", {}) for container in template["containers"]]
            wants = any(key.startswith("nvidia.com/") for limit in limits for key in limit)
            tolerates = any(toleration["key"] == "nvidia.com/gpu" for toleration in template.get("tolerations", []))
            assert wants == tolerates, name


def test_quotas_allow_a_rolling_update() -> None:
    all_objects = [document for _, document in objects(example_files())]
    quotas = {
        document["metadata"]["namespace"]: int(document["spec"]["hard"]["requests.nvidia.com/gpu"])
        for document in all_objects
        if document["kind"] == "ResourceQuota"
    }
    tenants = [
        document
        for document in all_objects
        if document["kind"] == "Deployment" and document["metadata"]["name"] == "slices"
    ]
    assert {document["metadata"]["namespace"]: document["spec"]["replicas"] for document in tenants} == {
        "bu-a": 3,
        "bu-b": 2,
        "bu-c": 2,
    }
    for document in tenants:
        surge = document["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        assert document["spec"]["replicas"] + surge <= quotas[document["metadata"]["namespace"]]
