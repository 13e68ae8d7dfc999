"""Ready manifests for what is advised: strategic merge patches, as `kubectl patch --patch-file` takes them.

A patch is given only where the workload's own object can be patched, and names no container where none is known: the
ledger does not know containers, so requests are patched by `kubectl set resources` instead, which takes all of them.
"""

import json
from shlex import quote

from gpucost.domain.advice.model import About

_SCALABLE = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}


def replicas_patch(about: About, replicas: int) -> str:
    """A workload with another number of replicas; "" for kinds without one."""
    version = _SCALABLE.get(about.workload_kind)
    if version is None:
        return ""
    return (
        f"apiVersion: {version}\nkind: {about.workload_kind}\n"
        f"metadata:\n  name: {_text(about.workload)}\n  namespace: {_text(about.namespace)}\n"
        f"spec:\n  replicas: {replicas}\n"
    )


def fewer_gpus_patch(about: About, units: int, replicas: int = 0) -> str:
    """Commands that set what each pod requests, and the replicas where they change; "" where pods have no template."""
    if about.workload_kind not in _SCALABLE:
        return ""
    name = quote(f"{about.workload_kind.lower()}/{about.workload}")
    lines = [
        f"# the container that has {about.resource}: add -c NAME where there are several",
        f"kubectl -n {quote(about.namespace)} set resources {name} --limits={about.resource}={units}",
    ]
    if replicas:
        lines.append(f"kubectl -n {quote(about.namespace)} scale {name} --replicas={replicas}")
    return "\n".join(lines) + "\n"


def slice_patch(about: About, profile: str) -> str:
    """Commands that let pods request a MIG slice in place of a whole GPU."""
    if about.workload_kind not in _SCALABLE:
        return ""
    name = quote(f"{about.workload_kind.lower()}/{about.workload}")
    limits = f"{about.resource}=0,nvidia.com/mig-{profile}=1"
    return (
        f"# the container that has {about.resource}: add -c NAME where there are several\n"
        f"kubectl -n {quote(about.namespace)} set resources {name} --limits={limits}\n"
    )


def _text(value: str) -> str:
    """A YAML string, whatever it holds."""
    return json.dumps(value)
