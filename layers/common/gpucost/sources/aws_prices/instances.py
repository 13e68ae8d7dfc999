"""Type, zone and capacity type of EC2 instances."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gpucost.core.metering.nodes import CAPACITY_TYPES
from gpucost.core.metering.unlabeled_nodes import ReportedNode
from gpucost.sources.aws_prices.aws_requests import batches, map_aws_errors


class Ec2Instances:
    """Reads instances with EC2's DescribeInstances, which lists terminated ones for about an hour.

    Args:
        clients: returns a client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients

    def fetch(self, region: str, instance_ids: Collection[str]) -> dict[str, ReportedNode]:
        """The instances by id, as far as the account has them.

        Raises:
            SourceError: the request failed or was refused.
        """
        instances: dict[str, ReportedNode] = {}
        with map_aws_errors("ec2:DescribeInstances"):
            pages = self._clients("ec2", region).get_paginator("describe_instances")
            for ids in batches(instance_ids):
                # A filter ignores ids that EC2 does not have. As a parameter, they would fail the request.
                for page in pages.paginate(Filters=[{"Name": "instance-id", "Values": ids}]):
                    for reservation in page["Reservations"]:
                        instances |= {each["InstanceId"]: _reported(each) for each in reservation["Instances"]}
        return instances


def _reported(instance: Mapping[str, Any]) -> ReportedNode:
    """Parse an instance. On-demand instances have no lifecycle, also in a capacity reservation."""
    without_lifecycle = "reserved" if instance.get("CapacityReservationId") else "on-demand"
    capacity_type = instance.get("InstanceLifecycle", without_lifecycle)
    return ReportedNode(
        "ec2",
        instance["InstanceType"],
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        capacity_type=capacity_type if capacity_type in CAPACITY_TYPES else "",
    )
