"""Every GPU node has exactly one dcgm-exporter, in the mode that its pool needs, and collectors scrape it."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import yaml

from gpucost.core.metering.accelerators import ACCELERATORS
from gpucost_cli.doctor.checks.model import doctor_check
from gpucost_cli.manifests.gpu_exporters import GPU_EXPORTERS
from gpucost_cli.manifests.series import accelerator_pattern, dcgm_exporter_pattern
from gpucost_cli.manifests.targets import TARGETS
from tests.manifests.rendered import ACCOUNT, example_files, target_files

FILES_OF_CLUSTERS = {"new cluster": None, **{target: target for target in TARGETS}}
SHARED_MIG = f'account_id: "{ACCOUNT}"\ncollection: {{shared_mig_profiles: [1g.10gb, 3g.40gb]}}\n'


class DaemonSet(NamedTuple):
    """What the chart makes of its values (dcgm-exporter 4.8.2, deployment/templates/daemonset.yaml)."""

    namespace: str
    pod_labels: Mapping[str, str]
    environment: Mapping[str, str]
    host_pid: bool
    affinity: Any
    node_selector: Mapping[str, str]

    def selects(self, node: Mapping[str, str]) -> bool:
        """Whether the node gets a pod: it has the labels of the node selector, and fits a term of the affinity."""
        terms = self.affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
        return self.node_selector.items() <= node.items() and (
            not terms
            or any(
                all(_fits(node, expression) for expression in term["matchExpressions"])
                for term in terms["nodeSelectorTerms"]
            )
        )


def _fits(node: Mapping[str, str], expression: Mapping[str, Any]) -> bool:
    """Kubernetes' rules: a label that the node does not have fits `NotIn`."""
    is_listed = node.get(expression["key"]) in expression["values"]
    match expression["operator"]:
        case "In":
            return is_listed
        case "NotIn":
            return not is_listed
        case operator:
            pytest.fail(f"unknown operator {operator}")


def operators_exporters(files: Mapping[str, str]) -> list[DaemonSet]:
    """The exporters of the GPU Operator (v26.7.0), of a ClusterPolicy and of a GPUCluster, unless they are disabled."""
    name = next(name for name in ("helm/gpu-operator-exporter.yaml", "helm/gpu-operator.yaml") if name in files)
    values = yaml.safe_load(files[name])["dcgmExporter"]
    if not values.get("enabled", True):
        return []
    label = "nvidia.com/gpu.deploy.dcgm-exporter"
    return [
        DaemonSet("gpu-operator", {"app": f"nvidia-dcgm-exporter{dra}"}, {}, False, {}, {f"{label}{dra}": "true"})
        for dra in ("", "-dra")
    ]


def daemon_sets(files: Mapping[str, str]) -> dict[str, DaemonSet]:
    """The DaemonSets of all exporters, by file; the commands at the top of the files name their namespaces."""
    sets = {}
    for name, text in files.items():
        if re.fullmatch(r"helm/dcgm-exporter.*\.yaml", name):
            values = yaml.safe_load(text)
            command = re.search(
                r"^# helm upgrade --install (\S+) gpu-helm-charts/dcgm-exporter .*\n#   -n (\S+) .* -f (\S+)$",
                text,
                re.MULTILINE,
            )
            assert command is not None
            release, namespace, file = command.groups()
            assert file == name
            environment = {variable["name"]: variable["value"] for variable in values.get("extraEnv", [])}
            if values.get("kubernetesDRA", {}).get("enabled"):
                environment["KUBERNETES_ENABLE_DRA"] = "true"
            labels = {"app.kubernetes.io/name": "dcgm-exporter", "app.kubernetes.io/instance": release}
            sets[name] = DaemonSet(
                namespace,
                labels | values.get("podLabels", {}),
                environment,
                values.get("hostPID", False),
                values.get("affinity", {}),
                values.get("nodeSelector", {}),
            )
    return sets | {f"GPU Operator {i}": operator for i, operator in enumerate(operators_exporters(files))}


OPERATOR = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.deploy.dcgm-exporter": "true",
    "nvidia.com/gpu.deploy.device-plugin": "true",
    "nvidia.com/gpu.deploy.client": "true",
}
"""Labels that the GPU Operator writes to GPU nodes (v26.7.0, controllers/state_manager.go)."""
DISCOVERED = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100"}
SHARING = "nvidia.com/gpu.sharing-strategy"
PLAIN_NODES = {
    "whole GPUs": {**OPERATOR, **DISCOVERED, SHARING: "none"},
    "whole GPUs without the operator": {**DISCOVERED, SHARING: "none"},
    "GPUs before discovery": OPERATOR,
    "MIG single": {
        **OPERATOR,
        **DISCOVERED,
        SHARING: "none",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb",
    },
    "MIG invalid": {**OPERATOR, **DISCOVERED, SHARING: "", "nvidia.com/gpu.product": "NVIDIA-H100-MIG-INVALID"},
    "MIG mixed": {
        **OPERATOR,
        **DISCOVERED,
        SHARING: "none",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig-1g.10gb.sharing-strategy": "none",
    },
    "DRA only for other devices": {**OPERATOR, **DISCOVERED, SHARING: "none", "nvidia.com/dra-kubelet-plugin": "false"},
}
SHARED_NODES = {
    "time-slicing": {**OPERATOR, **DISCOVERED, SHARING: "time-slicing"},
    "time-slicing without the operator": {**DISCOVERED, SHARING: "time-slicing"},
    "MPS": {**OPERATOR, **DISCOVERED, SHARING: "mps"},
    "time-sliced slices, MIG single": {
        **OPERATOR,
        **DISCOVERED,
        SHARING: "time-slicing",
        "nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb-SHARED",
    },
}
DRA_NODES = {
    "DRA driver of its own chart": {**OPERATOR, **DISCOVERED, SHARING: "none", "nvidia.com/dra-kubelet-plugin": "true"},
    "DRA without feature discovery": {"nvidia.com/dra-kubelet-plugin": "true"},
    "DRA in a cluster that shares GPUs": {
        **OPERATOR,
        **DISCOVERED,
        SHARING: "time-slicing",
        "nvidia.com/dra-kubelet-plugin": "true",
    },
    "DRA driver of the GPU Operator": {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.dra-driver": "true",
        "nvidia.com/gpu.deploy.dcgm-exporter-dra": "true",
        "nvidia.com/gpu.deploy.driver": "true",
    },
    "both labels": {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.dra-driver": "true",
        "nvidia.com/dra-kubelet-plugin": "true",
    },
}
NODES_WITHOUT_EXPORTER = {
    "no GPU": {"kubernetes.io/os": "linux"},
    "GPUs removed": {"nvidia.com/gpu.present": "false"},
    "MIG change": {**OPERATOR, **DISCOVERED, "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change"},
    "driver upgrade": {
        **OPERATOR,
        **DISCOVERED,
        SHARING: "mps",
        "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade",
    },
    "driver upgrade with DRA": {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.dra-driver": "paused-for-driver-upgrade",
    },
}
MODES = {
    "helm/dcgm-exporter.yaml": ({}, False),
    "helm/dcgm-exporter-shared.yaml": ({"KUBERNETES_VIRTUAL_GPUS": "true"}, True),
    "helm/dcgm-exporter-dra.yaml": ({"KUBERNETES_ENABLE_DRA": "true"}, False),
}
EXPECTED = {
    **{name: (node, ["helm/dcgm-exporter.yaml"]) for name, node in PLAIN_NODES.items()},
    **{name: (node, ["helm/dcgm-exporter-shared.yaml"]) for name, node in SHARED_NODES.items()},
    **{name: (node, ["helm/dcgm-exporter-dra.yaml"]) for name, node in DRA_NODES.items()},
    **{name: (node, []) for name, node in NODES_WITHOUT_EXPORTER.items()},
}


def files_of(target: str | None) -> Mapping[str, str]:
    return example_files() if target is None else target_files(target)


@pytest.mark.parametrize("target", FILES_OF_CLUSTERS.values(), ids=FILES_OF_CLUSTERS)
def test_every_gpu_node_has_a_single_exporter(target: str | None) -> None:
    exporters = daemon_sets(files_of(target))
    for description, (node, files) in EXPECTED.items():
        assert [name for name, exporter in exporters.items() if exporter.selects(node)] == files, description
    assert {name: (exporter.environment, exporter.host_pid) for name, exporter in exporters.items()} == MODES
    assert len({exporter.namespace for exporter in exporters.values()}) == len(exporters), (
        "names in the chart are fixed"
    )


def test_two_exporters_are_detected_if_that_of_the_operator_runs() -> None:
    files = {**example_files(), "helm/gpu-operator.yaml": "dcgmExporter: {enabled: true}\n"}
    node = PLAIN_NODES["whole GPUs"]
    assert sum(exporter.selects(node) for exporter in daemon_sets(files).values()) == 2


def test_shared_mig_slices_have_the_exporter_of_shared_gpus() -> None:
    """Under the strategy `mixed`, only a label of the profile says that slices are shared."""
    node = {**PLAIN_NODES["MIG mixed"], "nvidia.com/mig-3g.40gb.sharing-strategy": "time-slicing"}
    other = {**PLAIN_NODES["MIG mixed"], "nvidia.com/mig-2g.20gb.sharing-strategy": "time-slicing"}
    for target in TARGETS:
        exporters = daemon_sets(target_files(target, SHARED_MIG))
        selected = [name for name, exporter in exporters.items() if exporter.selects(node)]
        assert selected == ["helm/dcgm-exporter-shared.yaml"]
        assert sum(exporter.selects(other) for exporter in exporters.values()) == 1
        for description, (listed, files) in EXPECTED.items():
            assert [name for name, exporter in exporters.items() if exporter.selects(listed)] == files, description


def test_operator_and_mig_manager_wait_for_the_exporter_of_their_nodes() -> None:
    """They wait for pods with this label in the namespace of the operator before they reset GPUs."""
    plain = daemon_sets(example_files())["helm/dcgm-exporter.yaml"]
    assert plain.namespace == "gpu-operator"
    assert plain.pod_labels["app"] == "nvidia-dcgm-exporter"


@pytest.mark.parametrize("target", FILES_OF_CLUSTERS.values(), ids=FILES_OF_CLUSTERS)
def test_collectors_scrape_the_exporters_of_all_pools(target: str | None) -> None:
    """The rules keep a pod by its namespace, labels and port."""
    files = files_of(target)
    if "helm/kube-prometheus-stack.yaml" in files:
        values = yaml.safe_load(files["helm/kube-prometheus-stack.yaml"])
        (monitor,) = [
            monitor
            for monitor in values["prometheus"]["additionalPodMonitors"]
            if monitor["name"] == "gpucost-dcgm-exporter"
        ]
        namespaces = set(monitor["namespaceSelector"]["matchNames"])
        (endpoint,) = monitor["podMetricsEndpoints"]
        rules = [
            (rule.get("sourceLabels"), rule.get("regex", ""))
            for rule in endpoint["relabelings"]
            if rule.get("action") == "keep"
        ]
    else:
        collector = next(name for name in files if name.startswith("collection/") and name != "collection/access.yaml")
        jobs = _jobs(yaml.safe_load_all(files[collector]))
        rules = [
            (rule.get("source_labels"), rule["regex"])
            for rule in jobs["dcgm-exporter"]["relabel_configs"]
            if rule.get("action") == "keep"
        ]
        namespaces = set(next(regex for sources, regex in rules if sources[0].endswith("namespace")).split("|"))
    assert namespaces >= {exporter.namespace for exporter in GPU_EXPORTERS}
    for name, exporter in daemon_sets(files).items():
        meta = {
            "__meta_kubernetes_namespace": exporter.namespace,
            "__meta_kubernetes_pod_container_port_name": "metrics",
            **{
                f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value
                for key, value in exporter.pod_labels.items()
            },
        }
        assert all(re.fullmatch(regex, ";".join(meta.get(label, "") for label in labels)) for labels, regex in rules), (
            name
        )


def _jobs(documents: Any) -> dict[str, Any]:
    """The scrape configurations of a collector by job, wherever they are in its file."""
    configs: dict[str, Any] = {}

    def look(value: Any) -> None:
        if isinstance(value, str) and "scrape_configs:" in value:
            value = yaml.safe_load(value)
        if isinstance(value, dict):
            for key, part in value.items():
                if key == "scrape_configs":
                    configs.update({job["job_name"]: job for job in part})
                else:
                    look(part)

    for document in documents:
        look(document)
    return configs


def test_filters_keep_the_metrics_that_only_a_check_of_the_doctor_reads() -> None:
    reading = doctor_check("the GPU exporter", metrics=("DCGM_FI_DEV_NEW", "habanalabs_new", "other_metric"))
    checks = [reading(lambda _context: [])]
    (gaudi,) = (accelerator for accelerator in ACCELERATORS if accelerator.display_name == "Gaudi")
    of_dcgm = dcgm_exporter_pattern(dashboards=False, checks=checks)
    assert re.fullmatch(of_dcgm, "DCGM_FI_DEV_NEW")
    assert not re.fullmatch(of_dcgm, "other_metric")
    assert re.fullmatch(accelerator_pattern(gaudi, dashboards=False, checks=checks), "habanalabs_new")
