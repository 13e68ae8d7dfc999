"""Labels that distinguish clusters: the same list for attribution, `gpucost doctor` and `gpucost init`."""

import pytest

from gpucost.sources.prometheus.cluster_labels import CLUSTER_LABELS, multiple_clusters, values_of_cluster_labels

TARGET = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}


def node(name: str, **labels: str) -> dict[str, str]:
    return {"node": name, "provider_id": f"aws:///us-west-2a/i-{name}", "gpucost_stat": "info", **TARGET, **labels}


@pytest.mark.parametrize("label", [*CLUSTER_LABELS, "fleet_cluster", "myClusterId"])
def test_several_values_of_a_cluster_label_are_noted(label: str) -> None:
    """Also where both clusters have a node of the same name."""
    notes, others = multiple_clusters([node("n1", **{label: "east"}), node("n1", **{label: "west"})])
    (note,) = notes
    assert f"several clusters ({label}: east, west) are counted as one cluster, and 1 nodes have the name of" in note
    assert not others
    assert multiple_clusters([node("n1", **{label: "east"}), node("n2", **{label: "east"})]) == ([], [])
    assert values_of_cluster_labels({label: ["", "west", "east"], "job": ["a", "b"]}) == {label: ["east", "west"]}


def test_label_that_divides_the_nodes_like_clusters_is_named_with_its_amount() -> None:
    notes, (other,) = multiple_clusters([node("n1", env="prod"), node("n2", env="prod"), node("n3", env="staging")])
    assert not notes
    assert (other.name, int(other.amount), other.may_be_gpus) == ("env", 2, False)
    assert "(prod, staging)" in other.change


@pytest.mark.parametrize(
    "labels",
    [
        ({"prometheus_replica": "a"}, {"prometheus_replica": "b"}),
        ({"pod": "ksm-0", "exported_pod": "x"}, {"pod": "ksm-1", "exported_pod": "y"}),
        ({"statefulset_kubernetes_io_pod_name": "ksm-0"}, {"statefulset_kubernetes_io_pod_name": "ksm-1"}),
        ({"pod_template_hash": "1"}, {"pod_template_hash": "2"}),
        ({"instance": "a:1"}, {"instance": "b:1"}),
    ],
)
def test_labels_of_targets_do_not_divide_clusters(labels: tuple[dict[str, str], dict[str, str]]) -> None:
    """Shards of kube-state-metrics report different nodes."""
    assert multiple_clusters([node("n1") | labels[0], node("n2") | labels[1]]) == ([], [])


def test_label_with_which_the_same_nodes_are_reported_twice_is_not_named() -> None:
    nodes = [node(name, tenant=tenant) for name in ("n1", "n2") for tenant in ("a", "b")]
    assert multiple_clusters(nodes) == ([], [])
