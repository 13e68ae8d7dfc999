"""What is planted in the cluster kit: rules that keep too little or too much, and files that are not what they say."""

from tests.faults.planted import Fault

TESTS = ("tests/manifests",)
SERIES = "gpucost_cli/manifests/series.py"
RULES = "cluster/collection/scrape-configs.yaml"
TOLERATION = "- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}"

KIT_FAULTS = tuple(
    Fault(f"kit: {what}", file, right, wrong, TESTS)
    for what, file, right, wrong in (
        ("whether capacity is kept at all is dropped", SERIES, 'f"{GPU_RESOURCES}|cpu"', "GPU_RESOURCES"),
        ("the phase of pods that pull their image is dropped", SERIES, '"Pending|Running|', '"Running|'),
        ("Neuron's signal is dropped", SERIES, "_any_of([NEURON.name, *(", "_any_of([*("),
        (
            "signals that stand in are dropped",
            SERIES,
            "dict.fromkeys([*SIGNALS, MEMORY",
            "dict.fromkeys([*list(SIGNALS)[:1], MEMORY",
        ),
        (
            "no series carries the cluster's label",
            RULES,
            "- target_label: {{ name }}",
            "- target_label: tmp_{{ name }}",
        ),
        (
            "kube-state-metrics' labels are not honoured",
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
        ("a region is typed", "cluster/helm/cluster-autoscaler.yaml", "{{ cluster.region }}", "us-west-2"),
        (
            "a collector has rules of its own",
            "cluster/collection/otel-collector.yaml",
            "{{ scrape_configs | yaml(12) }}",
            "{{ scrape_configs[:2] | yaml(12) }}",
        ),
        ("a workload tolerates nothing", "cluster/workloads/cuda-vector-add.yaml", TOLERATION, ""),
        ("a field of a pool is misspelt", "cluster/karpenter/node-pools.yaml", "expireAfter: ", "expiresAfter: "),
    )
)
