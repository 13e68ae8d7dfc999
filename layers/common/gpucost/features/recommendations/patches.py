"""Manifests and commands for recommendations: strategic merge patches for `kubectl patch --patch-file`.

There is a patch only if the workload's object can be patched. The ledger does not hold containers, so requests are
changed with `kubectl set resources`, which covers all of them.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from shlex import quote

from gpucost.features.recommendations.model import RecommendationSubject

_API_VERSION_OF_SCALABLE_KIND = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}


def replicas_patch(subject: RecommendationSubject, replicas: int) -> str:
    """A patch with another number of replicas; empty for kinds without replicas."""
    version = _API_VERSION_OF_SCALABLE_KIND.get(subject.workload_kind)
    if version is None:
        return ""
    return (
        f"apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {_text(subject.workload)}\n  namespace: {_text(subject.namespace)}\n"
        f"spec:\n  replicas: {replicas}\n"
    )


def fewer_gpus_patch(subject: RecommendationSubject, units: int, replicas: int = 0) -> str:
    """Commands that set the GPUs per pod, and the replicas if they change; empty for kinds without a pod template."""
    if subject.workload_kind not in _API_VERSION_OF_SCALABLE_KIND:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    lines = [
        f"# the container that has {_line(subject.resource)}: add -c NAME if there are several",
        f"kubectl -n {quote(subject.namespace)} set resources {name} " + quote(f"--limits={subject.resource}={units}"),
    ]
    if replicas:
        lines.append(f"kubectl -n {quote(subject.namespace)} scale {name} --replicas={replicas}")
    return "\n".join(lines) + "\n"


def slice_patch(subject: RecommendationSubject, profile: str) -> str:
    """Commands that let pods request a MIG slice instead of a whole GPU."""
    if subject.workload_kind not in _API_VERSION_OF_SCALABLE_KIND:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    limits = quote(f"--limits={subject.resource}=0,nvidia.com/mig-{profile}=1")
    return (
        f"# the container that has {_line(subject.resource)}: add -c NAME if there are several\n"
        f"kubectl -n {quote(subject.namespace)} set resources {name} {limits}\n"
    )


def _text(text: str) -> str:
    """Quote a text as a YAML string."""
    return json.dumps(text)


def _word(text: str) -> str:
    """Write a text in a YAML list, quoted if it is more than a name."""
    return text if re.fullmatch(r"[a-z][a-z0-9.-]*", text) else _text(text)


def _line(text: str) -> str:
    """Write a text so that a comment does not end within it."""
    return " ".join(text.split())


def karpenter_settings_command(node_pool: str) -> str:
    """The command that prints how Karpenter may disrupt a node pool."""
    return f"kubectl get nodepool {quote(_line(node_pool))} -o jsonpath='{{.spec.disruption}}'"


def consolidation_patch(node_pool: str, *, blocks_disruption: bool = False) -> str:
    """A Karpenter node pool that consolidates its nodes; empty if the pool has no name.

    Args:
        node_pool: the pool's name.
        blocks_disruption: whether its budgets allow no disruption. Then the patch includes Karpenter's default budget.
    """
    if not node_pool:
        return ""
    return (
        f"# if Karpenter manages the pool; its current settings:\n"
        f"#   {karpenter_settings_command(node_pool)}\n"
        "# pods that forbid disruption (kube-state-metrics exposes annotations only from its allow-list):\n"
        "#   kubectl get pods -A -o jsonpath='{range .items[?(@.metadata.annotations."
        'karpenter\\.sh/do-not-disrupt=="true")]}{.metadata.namespace}/{.metadata.name} {end}\'\n'
        f"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {_text(node_pool)}\n"
        "spec:\n  disruption:\n    consolidationPolicy: WhenEmptyOrUnderutilized\n    consolidateAfter: 5m\n"
        + ('    budgets: [{nodes: "10%"}]\n' if blocks_disruption else "")
    )


def geometry_patch(node_pool: str, layouts: Sequence[Sequence[Sequence[str]]]) -> str:
    """A configuration of NVIDIA's mig-parted, and the node labels that apply it.

    Args:
        node_pool: the pool's name.
        layouts: for each node, the profiles of each GPU; without profiles it stays a whole GPU.
    """
    names: dict[tuple[tuple[str, ...], ...], str] = {}
    counts: Counter[str] = Counter()
    lines = ["# config.yaml of the MIG manager (mig-parted)", "version: v1", "mig-configs:"]
    for layout in layouts:
        gpu_layouts = tuple(tuple(gpu) for gpu in layout)
        if gpu_layouts not in names:
            names[gpu_layouts] = f"gpucost-{len(names) + 1}"
            lines.append(f"  {names[gpu_layouts]}:")
            for number, gpu in enumerate(gpu_layouts):
                devices = ", ".join(f'"{profile}": {count}' for profile, count in sorted(Counter(gpu).items()))
                mig_setting = f"true, mig-devices: {{{devices}}}" if gpu else "false"
                lines.append(f"    - {{devices: [{number}], mig-enabled: {mig_setting}}}")
        counts[names[gpu_layouts]] += 1
    pool = _line(node_pool)
    lines += [
        f"# {count} node(s) of pool {pool}: kubectl label node NAME nvidia.com/mig.config={name} --overwrite"
        for name, count in counts.items()
    ]
    return "\n".join(lines) + "\n"


def sharing_patch(node_pool: str, replicas: int) -> str:
    """A configuration of NVIDIA's device plugin that lets several pods share each GPU of a pool's nodes."""
    pool = _line(node_pool)
    return (
        "# a configuration of NVIDIA's device plugin (config map named in devicePlugin.config)\n"
        "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    failRequestsGreaterThanOne: true\n"
        f"    resources:\n      - {{name: nvidia.com/gpu, replicas: {replicas}}}\n"
        "# or mps: instead of timeSlicing:, without failRequestsGreaterThanOne: pods run at once, with equal memory\n"
        f"# each node of pool {pool}: kubectl label node NAME nvidia.com/device-plugin.config=shared --overwrite\n"
        "# which pods share a GPU: podAffinity within a group, podAntiAffinity between groups\n"
    )


def schedule_patch(
    subject: RecommendationSubject,
    running_hours: Sequence[tuple[int, int]],
    replicas: int,
    *,
    zone: str = "UTC",
    minute: int = 0,
) -> str:
    """A KEDA ScaledObject that runs a workload in some hours of the week; empty for kinds without replicas.

    Args:
        subject: the workload.
        running_hours: (first, end) in hours since Monday 00:00. The end may be in the next week.
        replicas: number of replicas in these hours.
        zone: IANA name of the time zone of these hours.
        minute: the minute at which these hours start.
    """
    version = _API_VERSION_OF_SCALABLE_KIND.get(subject.workload_kind)
    if version is None:
        return ""
    lines = [
        "# if KEDA is installed",
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
    for first, end in running_hours:
        start, stop = (f"{minute} {hour % 24} * * {(hour // 24 + 1) % 7}" for hour in (first, end))
        lines.append(
            f'    - {{type: cron, metadata: {{timezone: {zone}, start: "{start}", end: "{stop}", '
            f'desiredReplicas: "{replicas}"}}}}'
        )
    return "\n".join(lines) + "\n"


def spot_patch(subject: RecommendationSubject) -> str:
    """A preference for spot nodes, which does not require them; empty for kinds without a pod template."""
    terms = [
        "preferredDuringSchedulingIgnoredDuringExecution:",
        "  - weight: 100",
        "    preference:",
        "      matchExpressions:",
        "        - {key: karpenter.sh/capacity-type, operator: In, values: [spot]}",
    ]
    return _affinity_patch(subject, terms, "# if Karpenter's node pool allows both capacity types\n")


def instance_types_patch(subject: RecommendationSubject, instance_types: Sequence[str]) -> str:
    """A requirement of nodes of some instance types; empty for kinds without a pod template."""
    names = ", ".join(map(_word, instance_types))
    terms = [
        "requiredDuringSchedulingIgnoredDuringExecution:",
        "  nodeSelectorTerms:",
        "    - matchExpressions:",
        f"        - {{key: node.kubernetes.io/instance-type, operator: In, values: [{names}]}}",
    ]
    return _affinity_patch(subject, terms, "# add the expression to each of the terms that the workload has already\n")


def _affinity_patch(subject: RecommendationSubject, terms: Sequence[str], comment: str) -> str:
    version = {**_API_VERSION_OF_SCALABLE_KIND, "CronJob": "batch/v1"}.get(subject.workload_kind)
    if version is None:
        return ""
    pods = ["template:", "  spec:", "    affinity:", "      nodeAffinity:", *(f"        {line}" for line in terms)]
    if subject.workload_kind == "CronJob":
        pods = ["jobTemplate:", "  spec:", *(f"    {line}" for line in pods)]
    return (
        f"{comment}apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {_text(subject.workload)}\n  namespace: {_text(subject.namespace)}\n"
        "spec:\n" + "".join(f"  {line}\n" for line in pods)
    )
