"""Nodes of the demo's clusters, with the labels that EKS and Karpenter set."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpucost_devstack.fleet.builders import gpu_node, neuron_node, whole_gpus_geometry
from gpucost_devstack.fleet.demo.clock import Period, draw
from gpucost_devstack.fleet.scenario import FOREVER, Geometry, Interval, Node

REGION = "us-east-1"
ZONE_IDS = {"us-east-1a": "use1-az4", "us-east-1b": "use1-az6", "us-east-1c": "use1-az1"}
"""Zone ids of the zones. Spot prices are quoted by zone id."""


@dataclass(frozen=True)
class Pool:
    """A node pool of a cluster.

    Attributes:
        network: the third part of its nodes' addresses.
    """

    cluster: int
    name: str
    network: int
    capacity_type: str = "on-demand"
    zone: str = "us-east-1a"

    def gpu_node(self, number: int, model: str, geometry: Geometry | None = None, lifetime: Interval = FOREVER) -> Node:
        """A node with NVIDIA GPUs. Without a geometry, pods hold whole GPUs."""
        layouts: Sequence[Geometry] = (geometry or whole_gpus_geometry(model),)
        name = self.node_name(number)
        return gpu_node(
            name, model, layouts, lifetime=lifetime, labels=self.labels(), provider_id=self._provider_id(name)
        )

    def neuron_node(self, number: int, instance_type: str, devices: int, cores: int) -> Node:
        """A node with Neuron devices."""
        name = self.node_name(number)
        return neuron_node(
            name, instance_type, devices, cores, labels=self.labels(), provider_id=self._provider_id(name)
        )

    def node_name(self, number: int) -> str:
        """The name of a node, from its address."""
        return f"ip-10-{self.cluster + number // 240}-{self.network}-{number % 240 + 4}.ec2.internal"

    def labels(self) -> dict[str, str]:
        """The labels of the pool's nodes, in the spelling of kube-state-metrics."""
        return {
            "topology_kubernetes_io_zone": self.zone,
            "topology_k8s_aws_zone_id": ZONE_IDS[self.zone],
            "topology_kubernetes_io_region": REGION,
            "kubernetes_io_os": "linux",
            "karpenter_sh_nodepool": self.name,
            "karpenter_sh_capacity_type": self.capacity_type,
        }

    def _provider_id(self, name: str) -> str:
        return f"aws:///{self.zone}/i-0{int(draw('instance', name, self.name) * 2**56):016x}"


def interval_from(period: Period, start: int, end: int) -> Interval:
    """An absolute interval in minutes from the period's start."""
    return (start - period.start, end - period.start)
