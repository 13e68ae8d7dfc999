"""Faults for the recording rules of dashboards: common mistakes in PromQL for GPUs."""

from tests.faults.planted import Fault

TESTS = ("tests/dashboards/test_rules.py",)
RECORDING = "gpucost_cli/rules/recording.py"

MODELS = "gpucost_cli/rules/inference.py"
MODEL_TESTS = ("tests/dashboards/test_model_rules.py", "tests/dashboards/test_model_fleets.py")

RULES_FAULTS = tuple(
    Fault(f"rules: {mistake}", file, original, faulty, TESTS)
    for mistake, file, original, faulty in (
        ("two replicas of kube-state-metrics count twice", RECORDING, "max by ({by}, container)", "sum by ({by}, container)"),
        ("finished pods keep holding GPUs", RECORDING, " unless on ({POD_LABELS}) {finished})", ")"),
        ("pods hold GPUs on terminated nodes", RECORDING, ' and on (node) {there}"', '"'),
        ("init containers are added to containers", RECORDING, "({maximum(together, largest)} ", "(({together} + {largest}) "),
        ("image pull counts as use", RECORDING, "unless on (namespace, pod) {self._pending()})\"\n\n        def", ')"\n\n        def'),
        ("MIG slices may exceed their GPU", RECORDING, "/ {sums}, 0, 1)", "/ {sums}, 1, 1)"),
        ("the copies of pods that share a GPU are summed", RECORDING, "({whole}) / {sharers} or", "({whole}) or"),
        ("use beyond the allocation is credited", RECORDING, "clamp_max({gpus} / ({held} > 0), 1)", "({gpus} / ({held} > 0))"),
        ("unmeasured time counts as waste", RECORDING, "({effective} or {none}) - ({unmeasured} or {none})", "({effective} or {none})"),
        ("unhealthy GPUs are unallocated", RECORDING, "self.queries.series_selector(ALLOCATABLE, resources)", "self.queries.series_selector(CAPACITY, resources)"),
        ("an outdated set of labels counts", RECORDING, "topk by (node)", "bottomk by (node)"),
        ("utilization includes unmeasured time", RECORDING, "({group} ({allocated}) - ({group} ({unmeasured}) or {group} ({allocated}) * 0))", "({group} ({allocated}))"),
        ("a MIG slice counts by its compute share only", "gpucost_cli/rules/shares.py", 'model_share = profile_share(profile, " ".join(gpu.model_name_parts))', "model_share = Fraction(1, 7)"),
        ("percentages are read as ratios", "gpucost_cli/rules/devices.py", 'scale = f" / {signals[0].scale}" if signals[0].scale != 1 else ""', 'scale = ""'),
        ("GPU_UTIL is used under MIG", "gpucost_cli/rules/devices.py", "if not signals[0].works_under_mig:", "if False:"),
        ("the exporter's pod counts as the workload", "gpucost_cli/rules/devices.py", '("exported_pod", "pod", "pod_name")', '("pod", "exported_pod", "pod_name")'),
        ("the last matching business unit wins", "gpucost_cli/rules/owners.py", "for unit in units for branch", "for unit in reversed(units) for branch"),
        ("future entries of business units apply already", "gpucost_cli/rules/documents.py", "business_units_at(business_units(settings), now)", "list(business_units(settings))"),
    )
) + tuple(
    Fault(f"inference rules: {mistake}", MODELS, original, faulty, MODEL_TESTS)
    for mistake, original, faulty in (
        ('two jobs that scrape a server count twice', 'max without ({copies}) (', '('),
        ('both sides of a split count prompts', '("prompt", decode_counts_prompts), ', ''),
        ('prompts of a prefill server alone are lost', ' and on (namespace, model) {processing})"', ')"'),
        ('requests count on both sides', 'return f"{self._recorded(REQUESTS)} unless {self._counted_twice(REQUESTS, True)}"', 'return self._recorded(REQUESTS)'),
        ('cached tokens cost as much as others', 'weights.prompt - weights.cached}', 'weights.prompt - weights.prompt}'),
        ('a server that was not called has no GPUs', 'return f"{by_weight} or ({weight} * 0 + 1) / {on_pod} count by (namespace, pod) ({weight})"', 'return by_weight'),
        ('servers without tokens have no GPUs', 'return f"{tokens} or ({requests} unless on (namespace, pod) ({tokens}))"', 'return tokens'),
        ('waiting GPUs are those that worked', 'equals("part", part))', 'equals("part", "effective"))'),
        ('labels of the settings are ignored', 'if name and name != label:', 'if label == "model" and name:'),
        ("prompts of a server whose generated tokens are unknown count", 'for kind in ("prompt", "generated"):\n            tokens', 'for kind in ():\n            tokens'),
    )
)  # fmt: skip
