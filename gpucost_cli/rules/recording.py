"""Builds the recording rules of one cluster: GPUs of pods and nodes, and their sums.

The label `part` is a part of the cost (docs/reference/glossary.md). `effective + waste + unmeasured` is what pods hold.
With `unallocated` and `stranded` of nodes, the sum is every GPU. Units are physical GPUs at the time of evaluation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucost.core.attribution import BusinessUnit
from gpucost.core.metering.accelerators import GPU_RESOURCES, NEURON
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX, NEURON_DEVICES
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import (
    ADMIN_NAMESPACE_LABEL,
    GPU_PRODUCT_LABEL,
    INSTANCE_TYPE_LABEL,
    NAMESPACE_LABELS_METRIC,
    NODE_POOL_LABEL,
)
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.queries import (
    ALLOCATABLE,
    CAPACITY,
    INIT_REQUESTS,
    INIT_RUNNING,
    NODE_INFO,
    NODE_LABELS,
    PHASE,
    REQUESTS,
    Queries,
    name_matcher,
)
from gpucost_cli.rules import shares
from gpucost_cli.rules.devices import DEVICE_LABELS, claimed_devices, device_utilization
from gpucost_cli.rules.owners import BUSINESS_UNIT_LABEL, owner_labels, owner_vector
from gpucost_cli.rules.promql import (
    Rule,
    equals,
    first_available,
    first_label,
    matches,
    maximum,
    minimum,
    recorded_selector,
    single_series,
    with_label,
)

_LEVEL_LABELS: Mapping[str, tuple[str, ...]] = {
    "namespace": (BUSINESS_UNIT_LABEL, "namespace"),
    BUSINESS_UNIT_LABEL: (BUSINESS_UNIT_LABEL,),
    "node_pool": ("node_pool",),
    "cluster": (),
}
"""Labels by which each level sums. Every series also has the label `cluster`."""
LEVELS = tuple(_LEVEL_LABELS)
_NODE_LEVELS = ("node_pool", "cluster")
POD_LABELS = "namespace, pod, uid"
_RESOURCES = matches("resource", GPU_RESOURCES)
_NEURON = matches("resource", NEURON.resource_pattern)
"""Neuron devices and their cores are the same hardware, so the larger number counts."""
_SUMMED = matches("resource", "nvidia_.+", *shares.OTHER_ACCELERATORS)
_SLICES = matches("resource", MIG_PREFIX + ".+")
_NODE_INFO_LABELS = {
    "node_pool": NODE_POOL_LABEL.exported_names,
    "instance_type": INSTANCE_TYPE_LABEL.exported_names,
    "gpu_product": GPU_PRODUCT_LABEL.exported_names,
}


@dataclass(frozen=True)
class RecordingRules:
    """Builds the rules of one cluster.

    Args:
        cluster: name of the cluster, a label of every recorded series.
        queries: builds selectors of its metrics.
        signals_by_rank: utilization signals, the best first.
        units: business units in force, in the order of the settings.
        slices_per_gpu: units of `nvidia.com/gpu` in a GPU, for nodes without labels about it.
    """

    cluster: str
    queries: Queries
    signals_by_rank: Sequence[Sequence[Signal]]
    units: Sequence[BusinessUnit]
    slices_per_gpu: int | None = None

    def base_rules(self) -> list[Rule]:
        """Build the rules of pods, devices and nodes. Each may query the rules before it."""
        return [
            Rule("device:gpucost_use:ratio", device_utilization(self.queries, self.signals_by_rank)),
            Rule("node:gpucost_info", self._node_info_rule()),
            Rule("node:gpucost_capacity_gpus", self._capacity()),
            Rule("node_resource:gpucost_nominal_unit_gpus", self._nominal_gpus_per_unit()),
            Rule("node_resource:gpucost_unit_gpus", self._gpus_per_unit()),
            Rule("pod:gpucost_units", self._units_held()),
            Rule("pod_device:gpucost_claims_gpus", claimed_devices(self.queries, self.signals_by_rank)),
            Rule("pod_device:gpucost_claimed_gpus", self._claimed()),
            Rule(self._owner_record, owner_vector(self.queries, self.units, self._owned)),
            Rule("pod:gpucost_allocated_gpus", self._allocated()),
            Rule("pod_device:gpucost_observed_gpus", self._observed()),
            Rule("pod:gpucost_effective_gpus", self._effective()),
            Rule("pod:gpucost_unmeasured_gpus", self._unmeasured()),
            Rule("pod:gpucost_gpus", self._parts_of_allocated()),
            Rule("pod:gpucost_utilization:ratio", self._utilization_of_pods()),
            Rule("node:gpucost_unallocated_gpus", self._unallocated()),
            Rule("node:gpucost_stranded_gpus", self._stranded()),
        ]

    def sum_rules(self) -> Iterator[Rule]:
        """Yield the rules that sum pods and nodes at every level."""
        for level in LEVELS:
            by = _LEVEL_LABELS[level]
            parts = [f"sum by ({', '.join((*by, 'part'))}) ({self._recorded('pod:gpucost_gpus')})"]
            if level in _NODE_LEVELS:
                for part in ("unallocated", "stranded"):
                    parts.append(with_label(self._sum_nodes(level, f"node:gpucost_{part}_gpus"), "part", part))
            yield Rule(f"{level}:gpucost_gpus:sum", " or ".join(parts))
            group = f"sum by ({', '.join(by)})"
            yield Rule(
                f"{level}:gpucost_allocated_gpus:sum", f"{group} ({self._recorded('pod:gpucost_allocated_gpus')})"
            )
            effective, unmeasured = (
                self._recorded("pod:gpucost_effective_gpus"),
                self._recorded("pod:gpucost_unmeasured_gpus"),
            )
            allocated = self._recorded("pod:gpucost_allocated_gpus")
            measured = f"({group} ({allocated}) - ({group} ({unmeasured}) or {group} ({allocated}) * 0))"
            yield Rule(f"{level}:gpucost_utilization:ratio", f"{group} ({effective}) / ({measured} > 0)")
            if level in _NODE_LEVELS:
                yield Rule(f"{level}:gpucost_capacity_gpus:sum", self._sum_nodes(level, "node:gpucost_capacity_gpus"))

    # Nodes

    def _node_info_rule(self) -> str:
        """Facts about each GPU node from its newest labels, because old labels stay visible for five minutes."""
        types = shares.instance_type_matcher([*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE]).removeprefix("instance_type")
        gpu_nodes = f"({self.queries.series_selector(CAPACITY, _RESOURCES)} > 0)"
        requests = self.queries.series_selector(REQUESTS, _RESOURCES, 'node!=""')
        labels = self.queries.series_selector(NODE_LABELS)
        labeled_nodes = [
            self.queries.series_selector(NODE_LABELS, f"{name}{types}") for name in _NODE_INFO_LABELS["instance_type"]
        ]
        times = " or ".join(f"timestamp({selector})" for selector in labeled_nodes)
        vector = f"({times} or timestamp({labels}) and on (node) ({gpu_nodes} or {requests}))"
        for target, label_names in _NODE_INFO_LABELS.items():
            vector = first_label(vector, target, label_names)
        facts = f"node, {', '.join(_NODE_INFO_LABELS)}"
        newest = f"group by ({facts}) (topk by (node) (1, max by ({facts}) ({vector})))"
        return first_available([newest, f"group by (node) ({gpu_nodes})", f"group by (node) ({requests})"], "node")

    def _capacity(self) -> str:
        """Physical GPUs of each node: by instance type, else by unsliced capacity, else by its devices."""
        nodes_by_count = {
            count: self._recorded("node:gpucost_info", shares.instance_type_matcher(names))
            for count, names in shares.instance_types_by_gpu_count().items()
        }
        by_type = [f"group by (node) ({nodes}) * {float(count):g}" for count, nodes in nodes_by_count.items()]
        whole = f"max by (node) ({self.queries.series_selector(CAPACITY, equals('resource', GPU))})"
        sliced = self.queries.series_selector(CAPACITY, _SLICES)
        divided = self.queries.series_selector(NODE_LABELS, matches(shares.PRODUCT, ".+-(MIG|SHARED).*"))
        gpus = f"{whole} / {self.slices_per_gpu}" if self.slices_per_gpu else whole
        candidates = [
            *by_type,
            f"({gpus} unless on (node) {sliced} unless on (node) {divided})",
            f"count by (node) (group by (node, UUID) ({self._recorded('device:gpucost_use:ratio')}))",
            f"max by (node) ({self.queries.series_selector(CAPACITY, matches('resource', *NEURON_DEVICES))})",
            self._accelerators(),
            gpus,
        ]
        return f"({first_available(candidates, 'node')}) and on (node) {self.queries.series_selector(NODE_INFO)}"

    def _advertised(self, *matchers: str) -> str:
        return f"(max by (node, resource) ({self.queries.series_selector(CAPACITY, *matchers)}) > 0)"

    def _node_labels(self, *matchers: str) -> str:
        return self.queries.series_selector(NODE_LABELS, *matchers)

    def _accelerators(self) -> str:
        """Physical devices of AMD and Intel that each node advertises."""
        vectors = shares.accelerators_per_unit_vectors(self._advertised, self._node_labels)
        per_unit = first_available(vectors, "node, resource")
        units = self._advertised(matches("resource", *shares.OTHER_ACCELERATORS))
        return f"sum by (node) ({units} * on (node, resource) ({per_unit}))"

    def _nominal_gpus_per_unit(self) -> str:
        physical = f"max by (node) ({self._recorded('node:gpucost_capacity_gpus')})"
        return first_available(
            shares.gpus_per_unit_vectors(self._advertised, self._node_labels, physical), "node, resource"
        )

    def _gpus_per_unit(self) -> str:
        """GPUs in a unit. Slices are scaled down if they sum to more than the GPUs of the node that are sliced."""
        nominal = self._recorded("node_resource:gpucost_nominal_unit_gpus")
        slices = self._recorded("node_resource:gpucost_nominal_unit_gpus", _SLICES)
        units = f"max by (node, resource) ({self.queries.series_selector(CAPACITY, _SLICES)})"
        physical = f"max by (node) ({self._recorded('node:gpucost_capacity_gpus')})"
        whole = f"max by (node) ({self.queries.series_selector(CAPACITY, equals('resource', GPU))})"
        sums = f"sum by (node) ({units} * on (node, resource) {slices})"
        scale = f"clamp(({physical} - ({whole} or {physical} * 0)) / {sums}, 0, 1)"
        return f"{slices} * on (node) group_left () {scale} or {nominal}"

    def _unallocated(self) -> str:
        """GPUs that a node offers, at most its capacity, minus those that pods hold."""
        unit = self._recorded("node_resource:gpucost_unit_gpus")

        def offered(resources: str) -> str:
            units = f"max by (node, resource) ({self.queries.series_selector(ALLOCATABLE, resources)})"
            return f"by (node) ({units} * on (node, resource) {unit})"

        claimed = self._recorded("pod_device:gpucost_claims_gpus")
        devices = f"({self._recorded('device:gpucost_use:ratio')} and on (node) {claimed})"
        to_claims = f"count by (node) (group by (node, UUID) ({devices}))"
        on_offer = f"(sum {offered(_SUMMED)} or max {offered(_NEURON)} or {to_claims})"
        physical = f"max by (node) ({self._recorded('node:gpucost_capacity_gpus')})"
        held = f"sum by (node) ({self._recorded('pod:gpucost_allocated_gpus')})"
        return f"clamp_min({minimum(on_offer, physical)} - ({held} or {physical} * 0), 0)"

    def _stranded(self) -> str:
        physical = f"max by (node) ({self._recorded('node:gpucost_capacity_gpus')})"
        held = f"sum by (node) ({self._recorded('pod:gpucost_allocated_gpus')})"
        free = f"max by (node) ({self._recorded('node:gpucost_unallocated_gpus')})"
        return f"clamp_min({physical} - ({held} or {physical} * 0) - ({free} or {physical} * 0), 0)"

    def _sum_nodes(self, level: str, metric: str) -> str:
        if level == "cluster":
            return f"sum ({self._recorded(metric)})"
        pool = f"on (node) group_left ({level}) {single_series(self._recorded('node:gpucost_info'), 'node')}"
        return f"sum by ({level}) ({self._recorded(metric)} * {pool})"

    # Pods

    def _requests(self, *matchers: str) -> str:
        return self.queries.series_selector("", name_matcher([REQUESTS, INIT_REQUESTS]), _RESOURCES, *matchers)

    @property
    def _owner_record(self) -> str:
        return f"{'pod' if 'pod' in owner_labels(self.units) else 'namespace'}:gpucost_{BUSINESS_UNIT_LABEL}"

    def _owned(self, *matchers: str) -> str:
        return f"({self._requests(*matchers)} or {self._recorded('pod_device:gpucost_claimed_gpus', *matchers)})"

    def _claimed(self) -> str:
        """GPUs that pods hold through claims; claims on one device hold equal parts of it.

        A claim of a namespace that may have admin access looks at devices that other claims hold. A pod that requests
        an extended resource holds what it requests.
        """
        claims = self._recorded("pod_device:gpucost_claims_gpus")
        admin = self.queries.series_selector(NAMESPACE_LABELS_METRIC, equals(ADMIN_NAMESPACE_LABEL, "true"))
        of_admins, of_others = (f"({claims} {operator} on (namespace) {admin})" for operator in ("and", "unless"))
        looks = f"({of_admins} and on ({DEVICE_LABELS}) {of_others})"
        requested = self._recorded("pod:gpucost_units")
        held = f"({claims} unless on (namespace, pod) {looks} unless on (namespace, pod) {requested})"
        return f"{held} / on ({DEVICE_LABELS}) group_left () count by ({DEVICE_LABELS}) ({held})"

    def _units_held(self) -> str:
        """Effective requests of pods that are bound to an existing node and have not finished.

        An init container that runs while its pod does is a sidecar, and counts with the other containers.
        """
        by = f"{POD_LABELS}, node, resource"

        def each(metric: str) -> str:
            bound = self.queries.series_selector(metric, _RESOURCES, 'node!=""')
            return f"max by ({by}, container) ({bound})"

        running = f"({self.queries.series_selector(PHASE, equals('phase', 'Running'))} == 1)"
        of_running = f"({self.queries.series_selector(INIT_RUNNING)} == 1 and on (namespace, pod) {running})"
        sidecars = f"{each(INIT_REQUESTS)} and on (namespace, pod, container) {of_running}"
        together = f"sum by ({by}) ({each(REQUESTS)} or {sidecars})"
        largest = f"max by ({by}) ({each(INIT_REQUESTS)})"
        finished = f"({self.queries.series_selector(PHASE, matches('phase', 'Succeeded', 'Failed'))} == 1)"
        there = self.queries.series_selector(NODE_INFO)
        return f"({maximum(together, largest)} unless on ({POD_LABELS}) {finished}) and on (node) {there}"

    def _allocated(self) -> str:
        units, unit = self._recorded("pod:gpucost_units"), self._recorded("node_resource:gpucost_unit_gpus")
        from_node_unit = f"{units} * on (node, resource) group_left () {unit}"
        plain = self._recorded("pod:gpucost_units", matches("resource", GPU, *NEURON_DEVICES))
        from_settings = f"{plain} * {float(Fraction(1, self.slices_per_gpu or 1))!r}"
        gpus = first_available([from_node_unit, from_settings], f"{POD_LABELS}, node, resource")
        pool = f"on (node) group_left (node_pool) {single_series(self._recorded('node:gpucost_info'), 'node')}"
        owner = single_series(self._recorded(self._owner_record), owner_labels(self.units))
        unit_of = f"on ({owner_labels(self.units)}) group_left ({BUSINESS_UNIT_LABEL}) {owner}"
        claimed = f"sum by ({POD_LABELS}, node) ({self._recorded('pod_device:gpucost_claimed_gpus')})"
        return f"(sum by ({POD_LABELS}, node) ({gpus}) or {claimed}) * {pool} * {unit_of}"

    def _pending(self) -> str:
        return f"({self.queries.series_selector(PHASE, equals('phase', 'Pending'))} == 1)"

    def _observed(self) -> str:
        """Physical GPUs of each device that measure a running pod; a fraction if several pods share a GPU.

        Only a node whose GPU is a part of one (g6f) has less than one GPU, and its device is that part.
        """
        holding = f"({self._recorded('pod:gpucost_allocated_gpus')} unless on (namespace, pod) {self._pending()})"

        def labelled(matcher: str) -> str:
            devices = self._recorded("device:gpucost_use:ratio", 'pod!=""', matcher)
            return f"({devices} and on (namespace, pod) {holding})"

        by = f"{DEVICE_LABELS}, namespace, pod"
        whole, slices = labelled('GPU_I_ID=""'), labelled('GPU_I_ID!=""')
        sharers = f"on ({DEVICE_LABELS}) group_left () count by ({DEVICE_LABELS}) ({whole})"
        allocated, units = (
            f"sum by (namespace, pod) ({self._recorded(metric)})"
            for metric in ("pod:gpucost_allocated_gpus", "pod:gpucost_units")
        )
        of_slice = f"on (namespace, pod) group_left () ({allocated} / {units})"
        gpus = f"count by ({by}) ({whole}) / {sharers}"
        part = f"on (node) group_left () (max by (node) ({self._recorded('node:gpucost_capacity_gpus')}) < 1)"
        return f"{gpus} * {part} or {gpus} or count by ({by}) ({slices}) * {of_slice}"

    def _effective(self) -> str:
        """Utilized GPUs of a pod's devices, limited to its share of each device and to all that it holds."""
        observed, device_use = (
            self._recorded("pod_device:gpucost_observed_gpus"),
            self._recorded("device:gpucost_use:ratio"),
        )
        used = f"{observed} * on ({DEVICE_LABELS}) group_left () max by ({DEVICE_LABELS}) ({device_use})"
        held = f"sum by (namespace, pod) ({self._recorded('pod:gpucost_allocated_gpus')})"
        of_each = f"on (namespace, pod) group_left () ({held} / count by (namespace, pod) ({observed}))"
        return self._part_of_allocated(f"sum by (namespace, pod) ({minimum(used, f'{observed} * 0 + {of_each}')})")

    def _part_of_allocated(self, gpus: str, template: str = "{}") -> str:
        allocated = self._recorded("pod:gpucost_allocated_gpus")
        held = f"sum by (namespace, pod) ({allocated})"
        part = template.format(f"clamp_max({gpus} / ({held} > 0), 1)")
        return f"{allocated} * on (namespace, pod) group_left () {part}"

    def _unmeasured(self) -> str:
        """GPUs that running pods hold and no device measures."""
        observed = self._recorded("pod_device:gpucost_observed_gpus")
        partly = self._part_of_allocated(f"sum by (namespace, pod) ({observed})", "(1 - {})")
        allocated = self._recorded("pod:gpucost_allocated_gpus")
        wholly = f"({allocated} unless on (namespace, pod) {observed} unless on (namespace, pod) {self._pending()})"
        return f"{partly} or {wholly}"

    def _parts_of_allocated(self) -> str:
        """Effective, unmeasured and waste. Waste is the rest, or everything while a pod does not run."""
        allocated = self._recorded("pod:gpucost_allocated_gpus")
        effective, unmeasured = (
            self._recorded("pod:gpucost_effective_gpus"),
            self._recorded("pod:gpucost_unmeasured_gpus"),
        )
        none = f"{allocated} * 0"
        waste = f"clamp_min({allocated} - ({effective} or {none}) - ({unmeasured} or {none}), 0)"
        return " or ".join(
            with_label(vector, "part", part)
            for part, vector in (("effective", effective), ("unmeasured", unmeasured), ("waste", waste))
        )

    def _utilization_of_pods(self) -> str:
        effective, unmeasured = (
            self._recorded("pod:gpucost_effective_gpus"),
            self._recorded("pod:gpucost_unmeasured_gpus"),
        )
        return f"{effective} / (({self._recorded('pod:gpucost_allocated_gpus')} - {unmeasured}) > 0)"

    def _recorded(self, metric: str, *matchers: str) -> str:
        """Return a selector of a series that these rules record."""
        return recorded_selector(metric, self.cluster, *matchers)
