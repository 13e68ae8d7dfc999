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
            'f"{GPU_RESOURCES}|cpu"',
            "GPU_RESOURCES",
        ),
        ("the phase of pods that pull their image is dropped", SERIES, '"Pending|Running|', '"Running|'),
        ("the signals of other vendors are dropped", SERIES, "_alternation([*signals, *(", "_alternation([*("),
        (
            "fallback signals are dropped",
            SERIES,
            "needed = [*SIGNALS, GPU_MEMORY_METRIC",
            "needed = [*list(SIGNALS)[:1], GPU_MEMORY_METRIC",
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
