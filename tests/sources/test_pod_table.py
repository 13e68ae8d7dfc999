"""Pods are built from the results of queries, in which most pods look alike."""

from decimal import Decimal

from gpucost.sources.prometheus.pods import PodTable
from gpucost.sources.prometheus.queries import NO_STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Rows


def test_units_of_pods_with_the_same_containers_name_the_pod() -> None:
    """Queries return only units other than 1."""
    pods = [
        {
            "job": "k",
            "instance": "k:1",
            "namespace": "team",
            "pod": name,
            "uid": name,
            "node": "n1",
            "container": "main",
            "resource": "nvidia_com_gpu",
        }
        for name in "abc"
    ]
    requests: dict[str, Rows] = {
        NO_STATISTIC_LABEL: [(labels, Decimal(60)) for labels in pods],
        "units": [(pods[1], Decimal(2)), (pods[2], Decimal(4))],
    }
    observations = PodTable(requests, pods, {}).pods()
    assert {pod.pod: [request.units for request in pod.requests] for pod in observations} == {
        "a": [1],
        "b": [2],
        "c": [4],
    }
