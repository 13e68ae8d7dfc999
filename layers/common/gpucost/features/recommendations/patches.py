"""Ready manifests for what is advised: strategic merge patches, as `kubectl patch --patch-file` takes them.

A patch is given only where the workload's own object can be patched, and names no container where none is known: the
ledger does not know containers, so requests are patched by `kubectl set resources` instead, which takes all of them.
"""

import json
from collections import Counter
from collections.abc import Sequence
from shlex import quote

from gpucost.features.recommendations.model import RecommendationSubject

_SCALABLE = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}


def replicas_patch(subject: RecommendationSubject, replicas: int) -> str:
    """A workload with another number of replicas; "" for kinds without one."""
    version = _SCALABLE.get(subject.workload_kind)
    if version is None:
        return ""
    return (
        f"apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {_text(subject.workload)}\n  namespace: {_text(subject.namespace)}\n"
        f"spec:\n  replicas: {replicas}\n"
    )


def fewer_gpus_patch(subject: RecommendationSubject, units: int, replicas: int = 0) -> str:
    """Commands that set what each pod requests, and the replicas where they change; "" where pods have no template."""
    if subject.workload_kind not in _SCALABLE:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    lines = [
        f"# the container that has {subject.resource}: add -c NAME where there are several",
        f"kubectl -n {quote(subject.namespace)} set resources {name} --limits={subject.resource}={units}",
    ]
    if replicas:
        lines.append(f"kubectl -n {quote(subject.namespace)} scale {name} --replicas={replicas}")
    return "\n".join(lines) + "\n"


def slice_patch(subject: RecommendationSubject, profile: str) -> str:
    """Commands that let pods request a MIG slice in place of a whole GPU."""
    if subject.workload_kind not in _SCALABLE:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    limits = f"{subject.resource}=0,nvidia.com/mig-{profile}=1"
    return (
        f"# the container that has {subject.resource}: add -c NAME where there are several\n"
        f"kubectl -n {quote(subject.namespace)} set resources {name} --limits={limits}\n"
    )


def _text(value: str) -> str:
    """A YAML string, whatever it holds."""
    return json.dumps(value)


def consolidation_patch(node_pool: str, *, lets_none_go: bool = False) -> str:
    """A Karpenter node pool that moves pods together and lets nodes go; "" where the pool has no name.

    Args:
        node_pool: the pool.
        lets_none_go: whether its budgets are known to let no node go; Karpenter's own budget is put in their place.
    """
    if not node_pool:
        return ""
    return (
        f"# where Karpenter runs the pool; what it has now:\n"
        f"#   kubectl get nodepool {quote(node_pool)} -o jsonpath='{{.spec.disruption}}'\n"
        "# pods that forbid it (kube-state-metrics tells annotations only where they are on its allow-list):\n"
        "#   kubectl get pods -A -o jsonpath='{range .items[?(@.metadata.annotations."
        'karpenter\\.sh/do-not-disrupt=="true")]}{.metadata.namespace}/{.metadata.name} {end}\'\n'
        f"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {_text(node_pool)}\n"
        "spec:\n  disruption:\n    consolidationPolicy: WhenEmptyOrUnderutilized\n    consolidateAfter: 5m\n"
        + ('    budgets: [{nodes: "10%"}]\n' if lets_none_go else "")
    )


def geometry_patch(node_pool: str, layouts: Sequence[Sequence[Sequence[str]]]) -> str:
    """A configuration of NVIDIA's mig-parted, one entry for each node, and the labels that put it in force.

    Args:
        node_pool: the pool's name.
        layouts: of each node, each GPU's profiles; an empty one is a whole GPU.
    """
    names: dict[tuple[tuple[str, ...], ...], str] = {}
    counts: Counter[str] = Counter()
    lines = ["# config.yaml of the MIG manager (mig-parted)", "version: v1", "mig-configs:"]
    for layout in layouts:
        key = tuple(tuple(gpu) for gpu in layout)
        if key not in names:
            names[key] = f"gpucost-{len(names) + 1}"
            lines.append(f"  {names[key]}:")
            for number, gpu in enumerate(key):
                devices = ", ".join(f'"{profile}": {count}' for profile, count in sorted(Counter(gpu).items()))
                more = f"true, mig-devices: {{{devices}}}" if gpu else "false"
                lines.append(f"    - {{devices: [{number}], mig-enabled: {more}}}")
        counts[names[key]] += 1
    lines += [
        f"# {count} node(s) of pool {node_pool}: kubectl label node NAME nvidia.com/mig.config={name} --overwrite"
        for name, count in counts.items()
    ]
    return "\n".join(lines) + "\n"


def sharing_patch(node_pool: str, replicas: int) -> str:
    """A configuration of NVIDIA's device plugin that lets so many pods take turns on each GPU of a pool's nodes."""
    return (
        "# a configuration of NVIDIA's device plugin (config map named in devicePlugin.config)\n"
        "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    failRequestsGreaterThanOne: true\n"
        f"    resources:\n      - {{name: nvidia.com/gpu, replicas: {replicas}}}\n"
        "# or mps: for timeSlicing: (no failRequestsGreaterThanOne): at once, an even part of the memory each\n"
        f"# each node of pool {node_pool}: kubectl label node NAME nvidia.com/device-plugin.config=shared --overwrite\n"
        "# which pods meet on a GPU: podAffinity within a group, podAntiAffinity between groups\n"
    )


def schedule_patch(
    subject: RecommendationSubject, on: Sequence[tuple[int, int]], replicas: int, *, zone: str = "UTC", minute: int = 0
) -> str:
    """A KEDA ScaledObject that runs a workload in some hours of the week; "" for kinds without replicas.

    Args:
        about: the workload.
        on: (first, end) in hours from Monday 00:00; the end may lie in the week after.
        replicas: in these hours.
        zone: IANA name of the time zone that hours are of.
        minute: at which they begin.
    """
    version = _SCALABLE.get(subject.workload_kind)
    if version is None:
        return ""
    lines = [
        "# where KEDA is installed",
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        "metadata:",
        f"  name: {_text(subject.workload)}",
        f"  namespace: {_text(subject.namespace)}",
        "spec:",
        f"  scaleTargetRef: {{apiVersion: {version}, kind: {subject.workload_kind}, name: {_text(subject.workload)}}}",
        "  minReplicaCount: 0",
        f"  maxReplicaCount: {replicas}",
        "  triggers:",
    ]
    for first, end in on:
        start, stop = (f"{minute} {hour % 24} * * {(hour // 24 + 1) % 7}" for hour in (first, end))
        lines.append(
            f'    - {{type: cron, metadata: {{timezone: {zone}, start: "{start}", end: "{stop}", '
            f'desiredReplicas: "{replicas}"}}}}'
        )
    return "\n".join(lines) + "\n"


def spot_patch(subject: RecommendationSubject) -> str:
    """A preference for spot nodes: pods still find a place when there are none. "" for kinds without a template."""
    version = {**_SCALABLE, "CronJob": "batch/v1"}.get(subject.workload_kind)
    if version is None:
        return ""
    pods = [
        "template:",
        "  spec:",
        "    affinity:",
        "      nodeAffinity:",
        "        preferredDuringSchedulingIgnoredDuringExecution:",
        "          - weight: 100",
        "            preference:",
        "              matchExpressions:",
        "                - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}",
    ]
    if subject.workload_kind == "CronJob":
        pods = ["jobTemplate:", "  spec:", *(f"    {line}" for line in pods)]
    return (
        "# where Karpenter's node pool allows both capacity types\n"
        f"apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {_text(subject.workload)}\n  namespace: {_text(subject.namespace)}\n"
        "spec:\n" + "".join(f"  {line}\n" for line in pods)
    )
