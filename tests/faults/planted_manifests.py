"""Faults for the rendered manifests: rules that drop or keep the wrong series, and wrong fields of manifests."""

from tests.faults.planted import Fault

TESTS = ("tests/manifests",)
SERIES = "gpucost_cli/manifests/series.py"
RULES = "cluster/collection/scrape-configs.yaml"
TOLERATION = "- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}"

MANIFEST_FAULTS = tuple(
    Fault(f"manifests: {mistake}", file, original, faulty, TESTS)
    for mistake, file, original, faulty in (
        (
            "the metric that shows whether capacity is collected is dropped",
            SERIES,
            'f"{_RESOURCES}|cpu"',
            "_RESOURCES",
        ),
        ("the phase of pods that pull their image is dropped", SERIES, '"Pending|Running|', '"Running|'),
        ("the signals of other vendors are dropped", SERIES, "_alternation([*signals, *(", "_alternation([*("),
        (
            "fallback signals are dropped",
            SERIES,
            "needed = [*SIGNALS, *GPU_MEMORY_METRICS",
            "needed = [*list(SIGNALS)[:1], *GPU_MEMORY_METRICS",
        ),
        (
            "no series has the cluster's label",
            RULES,
            "- target_label: {{ name }}",
            "- target_label: tmp_{{ name }}",
        ),
        (
            "the labels of kube-state-metrics are not honored",
            RULES,
            "honor_labels: true  # name",
            "honor_labels: false  # name",
        ),
        ("finished pods are scraped", RULES, "regex: Failed|Succeeded", "regex: Failed"),
        (
            "pods of any namespace are scraped",
            RULES,
            'collection.exporter_namespaces[exporter] | join("|")',
            '".*"',
        ),
        (
            "inference servers name their own pods",
            RULES,
            "honor_labels: false\n",
            "honor_labels: true\n",
        ),
        (
            "two exporters run on nodes that share GPUs",
            "gpucost_cli/manifests/gpu_exporters.py",
            '*({**label, "operator": "NotIn"} for label in shared)',
            "",
        ),
        (
            "two exporters run on nodes of a DRA driver",
            "gpucost_cli/manifests/gpu_exporters.py",
            "for key, values in _DRA.items()]",
            'for key, values in _DRA.items() if "deploy" in key]',
        ),
        (
            "exporters run while the mode of a GPU changes",
            "gpucost_cli/manifests/gpu_exporters.py",
            '["paused-for-driver-upgrade", "paused-for-mig-change"]',
            '["paused-for-driver-upgrade"]',
        ),
        (
            "another exporter runs while a DRA driver is paused",
            "gpucost_cli/manifests/gpu_exporters.py",
            '["true", "paused-for-driver-upgrade"]',
            '["true"]',
        ),
        (
            "the exporter of shared GPUs does not see processes",
            "cluster/helm/dcgm-exporter-shared.yaml",
            "hostPID: true",
            "hostPID: false",
        ),
        ("the GPU Operator's exporter runs, too", "cluster/helm/gpu-operator-exporter.yaml", "false", "true"),
        (
            "only the exporter of plain pools is scraped",
            "gpucost_cli/manifests/parameters.py",
            "tuple(exporter.namespace for exporter in GPU_EXPORTERS)",
            "tuple(exporter.namespace for exporter in GPU_EXPORTERS[:1])",
        ),
        (
            "reservations of claims are dropped",
            SERIES,
            "claims.allocations, claims.reservations])",
            "claims.allocations])",
        ),
        (
            "the names of HAMi 2.8 are dropped",
            SERIES,
            "for name in scheduler.metrics if",
            "for name in scheduler.metrics[::2] if",
        ),
        ("every port of a pod is scraped", RULES, '"kube-state-metrics;http"', '"kube-state-metrics;.*"'),
        ("a region is hard-coded", "cluster/helm/cluster-autoscaler.yaml", "{{ cluster.region }}", "us-west-2"),
        (
            "a collector does not use the shared scrape configs",
            "cluster/collection/otel-collector.yaml",
            "{{ scrape_configs | yaml(12) }}",
            "{{ scrape_configs[:2] | yaml(12) }}",
        ),
        ("a workload has no toleration", "cluster/workloads/cuda-vector-add.yaml", TOLERATION, ""),
        (
            "a field of a node pool is misspelled",
            "cluster/karpenter/node-pools.yaml",
            "expireAfter: ",
            "expiresAfter: ",
        ),
    )
)
