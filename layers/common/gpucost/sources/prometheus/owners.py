"""Owners of pods: pod → ReplicaSet → Deployment, Job → CronJob or JobSet, StatefulSet, and custom owners by name."""

from collections.abc import Iterable, Mapping

from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Labels, Rows, exported_label, pod_name

Owner = tuple[str, str]
"""Kind and name."""
_OWNED_OWNER_KINDS = (("replicaset", "ReplicaSet", "replicaset"), ("job", "Job", "job_name"))


class OwnerTable:
    """Owners of pods, and owners of these owners."""

    def __init__(self) -> None:
        self._of_pods: dict[tuple[str, str], Owner] = {}
        self._of_owners: dict[tuple[str, str, str], Owner | None] = {}
        """None if the owner is known to have no owner itself."""

    def add(self, rows: Mapping[str, Rows]) -> None:
        """Add results of `Queries.owners`, by statistic."""
        self.add_pods(labels for labels, _ in rows.get(NO_STATISTIC_LABEL, []))
        for stat, kind, label in _OWNED_OWNER_KINDS:
            for labels, _ in rows.get(stat, []):
                key = (exported_label(labels, "namespace"), kind, labels.get(label, ""))
                self._of_owners[key] = _owner(labels) or self._of_owners.get(key)

    def add_pods(self, series: Iterable[Labels]) -> None:
        """Add owners of pods. Of several owners, the controller counts."""
        for labels in sorted(series, key=lambda labels: labels.get("owner_is_controller") == "true"):
            owner = _owner(labels)
            if owner:
                self._of_pods[pod_name(labels)] = owner

    def missing_owners(self, pods: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
        """Names of ReplicaSets and Jobs that own pods and whose owners were not reported, by statistic."""
        missing: dict[str, set[str]] = {}
        for pod in pods:
            kind, name = self._of_pods.get(pod, ("", ""))
            for stat, owner_kind, _ in _OWNED_OWNER_KINDS:
                if kind == owner_kind and (pod[0], kind, name) not in self._of_owners:
                    missing.setdefault(stat, set()).add(name)
        return missing

    def top_owner(self, namespace: str, pod: str) -> Owner:
        """The workload that a pod belongs to: its topmost owner, or the pod itself if it has no owner."""
        owner = self._of_pods.get((namespace, pod), ("Pod", pod))
        return self._of_owners.get((namespace, *owner)) or owner


def _owner(labels: Labels) -> Owner | None:
    kind, name = labels.get("owner_kind", ""), labels.get("owner_name", "")
    return (kind, name) if kind and name and "<none>" not in {kind, name} else None
