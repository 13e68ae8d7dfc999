"""Manifests and commands for recommendations: strategic merge patches for `kubectl patch --patch-file`.

There is a patch only if the workload's object can be patched. The ledger does not hold containers, so requests are
changed with `kubectl set resources`, which covers all of them.
"""

import json
from collections.abc import Sequence

from gpucost.features.recommendations.model import RecommendationSubject

API_VERSION_OF_SCALABLE_KIND = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1"}


def replicas_patch(subject: RecommendationSubject, replicas: int) -> str:
    """A patch with another number of replicas; empty for kinds without replicas."""
    version = API_VERSION_OF_SCALABLE_KIND.get(subject.workload_kind)
    if version is None:
        return ""
    return (
        f"apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {quoted(subject.workload)}\n  namespace: {quoted(subject.namespace)}\n"
        f"spec:\n  replicas: {replicas}\n"
    )


def quoted(text: str) -> str:
    """Quote a text as a YAML string."""
    return json.dumps(text)


def single_line(text: str) -> str:
    """Write a text so that a comment does not end within it."""
    return " ".join(text.split())


def affinity_patch(subject: RecommendationSubject, terms: Sequence[str], comment: str) -> str:
    """A patch of the node affinity of pods; empty for kinds without a pod template."""
    version = {**API_VERSION_OF_SCALABLE_KIND, "CronJob": "batch/v1"}.get(subject.workload_kind)
    if version is None:
        return ""
    pods = ["template:", "  spec:", "    affinity:", "      nodeAffinity:", *(f"        {line}" for line in terms)]
    if subject.workload_kind == "CronJob":
        pods = ["jobTemplate:", "  spec:", *(f"    {line}" for line in pods)]
    return (
        f"{comment}apiVersion: {version}\nkind: {subject.workload_kind}\n"
        f"metadata:\n  name: {quoted(subject.workload)}\n  namespace: {quoted(subject.namespace)}\n"
        "spec:\n" + "".join(f"  {line}\n" for line in pods)
    )
