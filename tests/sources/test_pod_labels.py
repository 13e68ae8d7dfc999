"""Labels that only one of several targets reports do not move costs without a note."""

from decimal import Decimal

import pytest

from gpucost.core.intervals import IntervalMs
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.nodes import NodeTable
from gpucost.sources.prometheus.pod_labels import LabelSpan, LabelTable, contradictory_labels
from gpucost.sources.prometheus.tables import Rows

KSM, FORGED = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}, {"job": "x", "instance": "10.0.0.9:80"}
MINUTE = 60_000


def pod(name: str, target: dict[str, str], **labels: str) -> tuple[dict[str, str], Decimal]:
    return {"namespace": "team", "pod": name, **target, **labels}, Decimal(1)


def table(*rows: tuple[dict[str, str], Decimal], stat: str = "pod") -> LabelTable:
    labels = LabelTable()
    by_statistic: dict[str, Rows] = {stat: [*rows], "namespace-start" if stat == "namespace" else "none": [*rows]}
    labels.add(by_statistic)
    return labels


NEIGHBOR = pod("neighbor", KSM, label_team="victim")
GENUINE, FORGERY = pod("thief", KSM), pod("thief", FORGED, label_team="victim")


def test_label_that_kube_state_metrics_would_report_is_left_out_with_a_note() -> None:
    labels = table(NEIGHBOR, GENUINE, FORGERY)
    assert labels.has_contradictory_labels("team", "thief")
    for target, of_pod in ((KSM, {}), (FORGED, {"label_team": "victim"})):
        series = Series({"namespace": "team", "pod": "thief", **target, **of_pod}, ((0, "1"), (50 * MINUTE, "1")))
        labels.add_samples([series])
    assert labels.of_pod("team", "thief") == {}
    assert list(labels.notes) == [
        "suspect samples: sources report different values of label_team for pod team/thief; the label is left out"
    ]
    assert labels.of_pod("team", "neighbor") == {"label_team": "victim"}


def test_label_of_a_namespace_that_kube_state_metrics_would_report_is_left_out_with_a_note() -> None:
    def namespace(name: str, target: dict[str, str], **labels: str) -> tuple[dict[str, str], Decimal]:
        return {"namespace": name, **target, **labels}, Decimal(1)

    labels = table(
        namespace("near", KSM, label_team="victim"),
        namespace("team", KSM),
        namespace("team", FORGED, label_team="victim"),
        stat="namespace",
    )
    assert labels.of_namespace("team") == {}
    assert labels.of_namespace("near") == {"label_team": "victim"}
    assert len(labels.notes) == 1


def test_targets_that_export_different_labels_do_not_contradict_each_other() -> None:
    labels = table(pod("neighbor", KSM, label_app="a"), pod("p", KSM, label_app="b"), pod("p", FORGED, label_team="x"))
    assert not labels.has_contradictory_labels("team", "p")
    assert labels.of_pod("team", "p") == {"label_app": "b", "label_team": "x"}
    assert not labels.notes


@pytest.mark.parametrize(("minutes", "differing"), [(4, set()), (20, {"label_team"})])
def test_target_that_lags_behind_a_new_label_does_not_contradict(minutes: int, differing: set[str]) -> None:
    spans = [
        LabelSpan("a", {"label_team": "x"}, IntervalMs(0, 50 * MINUTE)),
        LabelSpan("b", {}, IntervalMs(0, minutes * MINUTE)),
        LabelSpan("b", {"label_team": "x"}, IntervalMs((minutes + 1) * MINUTE, 50 * MINUTE)),
    ]
    assert contradictory_labels(spans, {"a": {"label_team"}, "b": {"label_team"}}) == differing


def node_labels(node: str, source: dict[str, str], **labels: str) -> dict[str, str]:
    return {"__name__": "kube_node_labels", "node": node, **source, **labels}


POOL = "label_karpenter_sh_nodepool"


@pytest.mark.parametrize(("reported_of_others", "is_left_out"), [(True, True), (False, False)])
def test_node_label_that_kube_state_metrics_would_report_is_left_out_with_a_note(
    *, reported_of_others: bool, is_left_out: bool
) -> None:
    """A forged pool moves the cost of its node. A target that exports no such label of any node does not contradict."""
    neighbor = node_labels("neighbor", KSM, **({POOL: "gpu"} if reported_of_others else {}))
    genuine, forged = node_labels("n", KSM), node_labels("n", FORGED, **{POOL: "victim"})
    ends: Rows = [(labels, Decimal(1)) for labels in (neighbor, genuine, forged)]
    nodes = NodeTable({"labels-start": ends, "labels-end": ends}, with_gpus={"n"})
    whole_hour = ((0, "1"), (50 * MINUTE, "1"))
    assert nodes.needing_raw_samples(lambda _: True, {}) == (["n"] if is_left_out else [])
    info = {"__name__": "kube_node_info", "node": "n", "provider_id": "aws:///i-1", **KSM}
    nodes.add_raw_samples(["n"], [Series(labels, whole_hour) for labels in (info, genuine, forged)])
    (observation,) = (observation for observation in nodes.nodes() if observation.name == "n")
    assert observation.labels == ({} if is_left_out else {POOL: "victim"})
    notes = [f"suspect samples: sources report different values of {POOL} for node n; the label is left out"]
    assert nodes.notes == (notes if is_left_out else [])
