"""What is planted in the rules that dashboards read: mistakes of the usual PromQL for GPUs, and of ours."""

from tests.faults.planted import Fault

TESTS = ("tests/dashboards/test_rules.py",)
RECORDING = "gpucost_cli/rules/recording.py"

RULES_FAULTS = tuple(
    Fault(f"rules: {what}", file, right, wrong, TESTS)
    for what, file, right, wrong in (
        ("a pair of kube-state-metrics counts twice", RECORDING, "max by ({by}, container)", "sum by ({by}, container)"),
        ("finished pods go on holding", RECORDING, " unless on ({POD}) {finished})", ")"),
        ("pods hold on nodes that are gone", RECORDING, ' and on (node) {there}"', '"'),
        ("containers add to init containers", RECORDING, "({larger(together, largest)} ", "(({together} + {largest}) "),
        ("image pull counts as use", RECORDING, "unless on (namespace, pod) {self._pending()})\"\n\n        def", ')"\n\n        def'),
        ("slices may be more than their GPU", RECORDING, "/ {sums}, 0, 1)", "/ {sums}, 1, 1)"),
        ("copies of sharers are summed", RECORDING, "({whole}) / {sharers} or", "({whole}) or"),
        ("use beyond what is held is credited", RECORDING, "clamp_max({gpus} / ({held} > 0), 1)", "({gpus} / ({held} > 0))"),
        ("nobody's knowledge is waste", RECORDING, "({effective} or {none}) - ({unmeasured} or {none})", "({effective} or {none})"),
        ("unhealthy GPUs are unallocated", RECORDING, "self.queries.select(ALLOCATABLE, resources)", "self.queries.select(CAPACITY, resources)"),
        ("an old set of labels counts", RECORDING, "topk by (node)", "bottomk by (node)"),
        ("utilization counts what nobody measures", RECORDING, "({group} ({allocated}) - ({group} ({unmeasured}) or {group} ({allocated}) * 0))", "({group} ({allocated}))"),
        ("a slice is its compute share", "gpucost_cli/rules/shares.py", 'own = profile_share(profile, " ".join(gpu.models))', "own = Fraction(1, 7)"),
        ("percent are ratios", "gpucost_cli/rules/devices.py", 'scale = f" / {signals[0].scale}" if signals[0].scale != 1 else ""', 'scale = ""'),
        ("GPU_UTIL counts under MIG", "gpucost_cli/rules/devices.py", "if not signals[0].works_under_mig:", "if False:"),
        ("the exporter's pod is the workload", "gpucost_cli/rules/devices.py", '("exported_pod", "pod", "pod_name")', '("pod", "exported_pod", "pod_name")'),
        ("the last unit that matches wins", "gpucost_cli/rules/owners.py", "for unit in units for branch", "for unit in reversed(units) for branch"),
        ("units of tomorrow count today", "gpucost_cli/rules/documents.py", "units_at(business_units(settings), now)", "list(business_units(settings))"),
    )
)  # fmt: skip
