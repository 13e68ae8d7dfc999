"""The recording rules of one cluster: GPUs by pod and by node, summed up by namespace, business unit, pool, cluster.

`part` is one of the cost model's words. `effective + waste + unmeasured` is what pods hold; with `unallocated` and
`stranded` of nodes it is every GPU there is. Units are physical GPUs, at the time of the evaluation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucost.core.attribution import BusinessUnit
from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX, NEURON_DEVICES
from gpucost.core.metering.kubernetes_labels import GPU_PRODUCT, INSTANCE_TYPE, NODE_POOL
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.queries import (
    ALLOCATABLE,
    CAPACITY,
    GPU_RESOURCES,
    INIT_REQUESTS,
    NODE_INFO,
    NODE_LABELS,
    PHASE,
    REQUESTS,
    Queries,
    name_matcher,
)
from gpucost_cli.rules import shares
from gpucost_cli.rules.devices import DEVICE, use
from gpucost_cli.rules.owners import UNIT, keys, mapping
from gpucost_cli.rules.promql import (
    equals,
    first_of,
    first_that_matches,
    folded,
    larger,
    marked,
    matches,
    one_of_each,
    smaller,
)

_BY: Mapping[str, tuple[str, ...]] = {
    "namespace": (UNIT, "namespace"),
    UNIT: (UNIT,),
    "node_pool": ("node_pool",),
    "cluster": (),
}
"""What figures are summed up by, for each level; everything is of one cluster."""
LEVELS = tuple(_BY)
_NODE_LEVELS = ("node_pool", "cluster")
POD = "namespace, pod, uid"
_RESOURCES = matches("resource", GPU_RESOURCES)
_NVIDIA, _NEURON = matches("resource", "nvidia_.+"), matches("resource", "aws_amazon_com_neuron.*")
_SLICES = matches("resource", MIG_PREFIX + ".+")
_FACTS = {
    "node_pool": NODE_POOL.exported,
    "instance_type": INSTANCE_TYPE.exported,
    "gpu_product": GPU_PRODUCT.exported,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule."""

    record: str
    expression: str

    def document(self, labels: Mapping[str, str]) -> dict[str, object]:
        """As Prometheus reads it."""
        return {"record": self.record, "expr": folded(self.expression), "labels": dict(labels)}


@dataclass(frozen=True)
class RecordingRules:
    """Makes the rules of one cluster.

    Args:
        cluster: its name, as a label on everything recorded.
        queries: make selectors of its metrics.
        ranks: signals of utilization, the best first.
        units: business units in force, in their order.
        slices_per_gpu: what a unit of `nvidia.com/gpu` is where the node says nothing.
    """

    cluster: str
    queries: Queries
    ranks: Sequence[Sequence[Signal]]
    units: Sequence[BusinessUnit]
    slices_per_gpu: int | None = None

    def bases(self) -> list[Rule]:
        """Pods, devices and nodes; each reads those before it."""
        return [
            Rule("device:gpucost_use:ratio", use(self.queries, self.ranks)),
            Rule("node:gpucost_info", self._info()),
            Rule("node:gpucost_capacity_gpus", self._capacity()),
            Rule("node_resource:gpucost_nominal_unit_gpus", self._nominal_unit()),
            Rule("node_resource:gpucost_unit_gpus", self._unit()),
            Rule(self._owners, mapping(self.queries, self.units, self._requests)),
            Rule("pod:gpucost_units", self._units_held()),
            Rule("pod:gpucost_allocated_gpus", self._allocated()),
            Rule("pod_device:gpucost_observed_gpus", self._observed()),
            Rule("pod:gpucost_effective_gpus", self._effective()),
            Rule("pod:gpucost_unmeasured_gpus", self._unmeasured()),
            Rule("pod:gpucost_gpus", self._parts()),
            Rule("pod:gpucost_utilization:ratio", self._utilization_of_pods()),
            Rule("node:gpucost_unallocated_gpus", self._unallocated()),
            Rule("node:gpucost_stranded_gpus", self._stranded()),
        ]

    def sums(self) -> Iterator[Rule]:
        """What pods and nodes add up to at every level."""
        for level in LEVELS:
            by = _BY[level]
            parts = [f"sum by ({', '.join((*by, 'part'))}) ({self._own('pod:gpucost_gpus')})"]
            if level in _NODE_LEVELS:
                for part in ("unallocated", "stranded"):
                    parts.append(marked(self._of_nodes(level, f"node:gpucost_{part}_gpus"), "part", part))
            yield Rule(f"{level}:gpucost_gpus:sum", " or ".join(parts))
            group = f"sum by ({', '.join(by)})"
            yield Rule(f"{level}:gpucost_allocated_gpus:sum", f"{group} ({self._own('pod:gpucost_allocated_gpus')})")
            effective, unmeasured = self._own("pod:gpucost_effective_gpus"), self._own("pod:gpucost_unmeasured_gpus")
            allocated = self._own("pod:gpucost_allocated_gpus")
            told = f"({group} ({allocated}) - ({group} ({unmeasured}) or {group} ({allocated}) * 0))"
            yield Rule(f"{level}:gpucost_utilization:ratio", f"{group} ({effective}) / ({told} > 0)")
            if level in _NODE_LEVELS:
                yield Rule(f"{level}:gpucost_capacity_gpus:sum", self._of_nodes(level, "node:gpucost_capacity_gpus"))

    # Nodes

    def _info(self) -> str:
        """Facts about each GPU node off its newest labels: an old set may be seen on for five minutes, and twice."""
        types = shares.instance_types([*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE]).removeprefix("instance_type")
        gpu_nodes = f"({self.queries.select(CAPACITY, _RESOURCES)} > 0)"
        requests = self.queries.select(REQUESTS, _RESOURCES, 'node!=""')
        labels = self.queries.select(NODE_LABELS)
        known = [self.queries.select(NODE_LABELS, f"{name}{types}") for name in _FACTS["instance_type"]]
        times = " or ".join(f"timestamp({one})" for one in known)
        vector = f"({times} or timestamp({labels}) and on (node) ({gpu_nodes} or {requests}))"
        for target, sources in _FACTS.items():
            vector = first_of(vector, target, sources)
        facts = f"node, {', '.join(_FACTS)}"
        newest = f"group by ({facts}) (topk by (node) (1, max by ({facts}) ({vector})))"
        return first_that_matches([newest, f"group by (node) ({gpu_nodes})", f"group by (node) ({requests})"], "node")

    def _capacity(self) -> str:
        """Physical GPUs of each node that is there: by its type, else as advertised unsliced, else by its devices."""
        by_type = [
            f"group by (node) ({self._own('node:gpucost_info', shares.instance_types(names))}) * {float(count):g}"
            for count, names in shares.physical_gpus().items()
        ]
        whole = f"max by (node) ({self.queries.select(CAPACITY, equals('resource', GPU))})"
        sliced = self.queries.select(CAPACITY, _SLICES)
        divided = self.queries.select(NODE_LABELS, matches(shares.PRODUCT, ".+-(MIG|SHARED).*"))
        gpus = f"{whole} / {self.slices_per_gpu}" if self.slices_per_gpu else whole
        found = [
            *by_type,
            f"({gpus} unless on (node) {sliced} unless on (node) {divided})",
            f"count by (node) (group by (node, UUID) ({self._own('device:gpucost_use:ratio')}))",
            f"max by (node) ({self.queries.select(CAPACITY, matches('resource', *NEURON_DEVICES))})",
            gpus,
        ]
        return f"({first_that_matches(found, 'node')}) and on (node) {self.queries.select(NODE_INFO)}"

    def _nominal_unit(self) -> str:
        def capacity(*matchers: str) -> str:
            return f"(max by (node, resource) ({self.queries.select(CAPACITY, *matchers)}) > 0)"

        def labels(*matchers: str) -> str:
            return self.queries.select(NODE_LABELS, *matchers)

        def info(*matchers: str) -> str:
            return self._own("node:gpucost_info", *matchers)

        physical = f"max by (node) ({self._own('node:gpucost_capacity_gpus')})"
        return first_that_matches(shares.unit_branches(capacity, labels, info, physical), "node, resource")

    def _unit(self) -> str:
        """Slices scaled down where they sum above the GPUs that are sliced: those of the node that are not whole."""
        nominal = self._own("node_resource:gpucost_nominal_unit_gpus")
        slices = self._own("node_resource:gpucost_nominal_unit_gpus", _SLICES)
        units = f"max by (node, resource) ({self.queries.select(CAPACITY, _SLICES)})"
        physical = f"max by (node) ({self._own('node:gpucost_capacity_gpus')})"
        whole = f"max by (node) ({self.queries.select(CAPACITY, equals('resource', GPU))})"
        sums = f"sum by (node) ({units} * on (node, resource) {slices})"
        scale = f"clamp(({physical} - ({whole} or {physical} * 0)) / {sums}, 0, 1)"
        return f"{slices} * on (node) group_left () {scale} or {nominal}"

    def _unallocated(self) -> str:
        """What a node offers, at most what it has, less what is held."""
        unit = self._own("node_resource:gpucost_unit_gpus")

        def offered(resources: str) -> str:
            units = f"max by (node, resource) ({self.queries.select(ALLOCATABLE, resources)})"
            return f"by (node) ({units} * on (node, resource) {unit})"

        on_offer = f"(sum {offered(_NVIDIA)} or max {offered(_NEURON)})"
        physical = f"max by (node) ({self._own('node:gpucost_capacity_gpus')})"
        held = f"sum by (node) ({self._own('pod:gpucost_allocated_gpus')})"
        return f"clamp_min({smaller(on_offer, physical)} - ({held} or {physical} * 0), 0)"

    def _stranded(self) -> str:
        physical = f"max by (node) ({self._own('node:gpucost_capacity_gpus')})"
        held = f"sum by (node) ({self._own('pod:gpucost_allocated_gpus')})"
        free = f"max by (node) ({self._own('node:gpucost_unallocated_gpus')})"
        return f"clamp_min({physical} - ({held} or {physical} * 0) - ({free} or {physical} * 0), 0)"

    def _of_nodes(self, level: str, metric: str) -> str:
        if level == "cluster":
            return f"sum ({self._own(metric)})"
        pool = f"on (node) group_left ({level}) {one_of_each(self._own('node:gpucost_info'), 'node')}"
        return f"sum by ({level}) ({self._own(metric)} * {pool})"

    # Pods

    def _requests(self, *matchers: str) -> str:
        return self.queries.select("", name_matcher([REQUESTS, INIT_REQUESTS]), _RESOURCES, *matchers)

    @property
    def _owners(self) -> str:
        return f"{'pod' if 'pod' in keys(self.units) else 'namespace'}:gpucost_{UNIT}"

    def _units_held(self) -> str:
        """Effective requests of pods that are bound to a node that is there, and not finished."""
        by = f"{POD}, node, resource"

        def each(metric: str) -> str:
            bound = self.queries.select(metric, _RESOURCES, 'node!=""')
            return f"max by ({by}, container) ({bound})"

        together, largest = f"sum by ({by}) ({each(REQUESTS)})", f"max by ({by}) ({each(INIT_REQUESTS)})"
        finished = f"({self.queries.select(PHASE, matches('phase', 'Succeeded', 'Failed'))} == 1)"
        there = self.queries.select(NODE_INFO)
        return f"({larger(together, largest)} unless on ({POD}) {finished}) and on (node) {there}"

    def _allocated(self) -> str:
        units, unit = self._own("pod:gpucost_units"), self._own("node_resource:gpucost_unit_gpus")
        told = f"{units} * on (node, resource) group_left () {unit}"
        plain = self._own("pod:gpucost_units", matches("resource", GPU, *NEURON_DEVICES))
        untold = f"{plain} * {float(Fraction(1, self.slices_per_gpu or 1))!r}"
        gpus = first_that_matches([told, untold], f"{POD}, node, resource")
        pool = f"on (node) group_left (node_pool) {one_of_each(self._own('node:gpucost_info'), 'node')}"
        owner = one_of_each(self._own(self._owners), keys(self.units))
        unit_of = f"on ({keys(self.units)}) group_left ({UNIT}) {owner}"
        return f"sum by ({POD}, node) ({gpus}) * {pool} * {unit_of}"

    def _pending(self) -> str:
        return f"({self.queries.select(PHASE, equals('phase', 'Pending'))} == 1)"

    def _observed(self) -> str:
        """Of each device, the physical GPUs that speak for a running pod: a part where several share a whole GPU."""
        holding = f"({self._own('pod:gpucost_allocated_gpus')} unless on (namespace, pod) {self._pending()})"

        def labelled(matcher: str) -> str:
            devices = self._own("device:gpucost_use:ratio", 'pod!=""', matcher)
            return f"({devices} and on (namespace, pod) {holding})"

        by = f"{DEVICE}, namespace, pod"
        whole, slices = labelled('GPU_I_ID=""'), labelled('GPU_I_ID!=""')
        sharers = f"on ({DEVICE}) group_left () count by ({DEVICE}) ({whole})"
        allocated, units = (
            f"sum by (namespace, pod) ({self._own(metric)})"
            for metric in ("pod:gpucost_allocated_gpus", "pod:gpucost_units")
        )
        of_slice = f"on (namespace, pod) group_left () ({allocated} / {units})"
        return f"count by ({by}) ({whole}) / {sharers} or count by ({by}) ({slices}) * {of_slice}"

    def _effective(self) -> str:
        """Use of a pod's devices, at most what it holds: of each device, and of all of them."""
        observed, device_use = self._own("pod_device:gpucost_observed_gpus"), self._own("device:gpucost_use:ratio")
        used = f"{observed} * on ({DEVICE}) group_left () max by ({DEVICE}) ({device_use})"
        held = f"sum by (namespace, pod) ({self._own('pod:gpucost_allocated_gpus')})"
        of_each = f"on (namespace, pod) group_left () ({held} / count by (namespace, pod) ({observed}))"
        return self._part_of_allocated(f"sum by (namespace, pod) ({smaller(used, f'{observed} * 0 + {of_each}')})")

    def _part_of_allocated(self, gpus: str, form: str = "{}") -> str:
        allocated = self._own("pod:gpucost_allocated_gpus")
        held = f"sum by (namespace, pod) ({allocated})"
        part = form.format(f"clamp_max({gpus} / ({held} > 0), 1)")
        return f"{allocated} * on (namespace, pod) group_left () {part}"

    def _unmeasured(self) -> str:
        """What running pods hold of which no device tells the use."""
        observed = self._own("pod_device:gpucost_observed_gpus")
        partly = self._part_of_allocated(f"sum by (namespace, pod) ({observed})", "(1 - {})")
        allocated = self._own("pod:gpucost_allocated_gpus")
        wholly = f"({allocated} unless on (namespace, pod) {observed} unless on (namespace, pod) {self._pending()})"
        return f"{partly} or {wholly}"

    def _parts(self) -> str:
        """Effective, unmeasured, and waste: the rest, all of it while a pod holds GPUs without running."""
        allocated = self._own("pod:gpucost_allocated_gpus")
        effective, unmeasured = self._own("pod:gpucost_effective_gpus"), self._own("pod:gpucost_unmeasured_gpus")
        none = f"{allocated} * 0"
        waste = f"clamp_min({allocated} - ({effective} or {none}) - ({unmeasured} or {none}), 0)"
        return " or ".join(
            marked(vector, "part", part)
            for part, vector in (("effective", effective), ("unmeasured", unmeasured), ("waste", waste))
        )

    def _utilization_of_pods(self) -> str:
        effective, unmeasured = self._own("pod:gpucost_effective_gpus"), self._own("pod:gpucost_unmeasured_gpus")
        return f"{effective} / (({self._own('pod:gpucost_allocated_gpus')} - {unmeasured}) > 0)"

    def _own(self, metric: str, *matchers: str) -> str:
        """A selector of what these rules recorded."""
        return f"{metric}{{{','.join((*matchers, equals('cluster', self.cluster)))}}}"
