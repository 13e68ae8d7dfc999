"""What commands without a deployment ask AWS, if there are credentials."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpucost.core.errors import SourceError
from gpucost.core.metering.instance_types import AWS_PREFIX, instance_id_of, zone_of_provider_id
from gpucost.core.metering.nodes import CAPACITY_TYPES, ReportedNode
from gpucost.core.pricing.prices import region_of

if TYPE_CHECKING:
    from gpucost.runtime.aws import AwsClients


class AwsAccess:
    """The caller's access to AWS.

    Args:
        warn: reports in a sentence what is not used of AWS, and why.
    """

    def __init__(self, *, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._instances: dict[str, ReportedNode] = {}
        self._requested: set[str] = set()

    @cached_property
    def clients(self) -> "AwsClients | None":
        """Clients of AWS; None without credentials."""
        from botocore.exceptions import BotoCoreError

        from gpucost.runtime import aws

        try:
            credentials = aws.new_session().get_credentials()
        except BotoCoreError as error:
            self.warn(f"AWS is not used: {error}")
            return None
        return None if credentials is None else aws.AwsClients()

    def instances(self, provider_ids: Collection[str]) -> dict[str, ReportedNode]:
        """Return what EC2 says about nodes, by provider id.

        Each instance is requested once. Those of SageMaker are in an account of AWS.
        """
        of_ec2 = [each for each in provider_ids if each.startswith(AWS_PREFIX) and "/sagemaker/" not in each]
        regions: dict[str, set[str]] = {}
        for provider_id in of_ec2:
            region = region_of(zone_of_provider_id(provider_id)[0])
            if region and instance_id_of(provider_id) not in self._requested:
                regions.setdefault(region, set()).add(instance_id_of(provider_id))
        if regions and self.clients is not None:
            for region, ids in sorted(regions.items()):
                try:
                    self._instances |= _fetch_instances(self.clients, region, ids)
                except SourceError as error:
                    self.warn(f"instances of {region} are not looked up: {error}")
                self._requested |= ids
        return {
            provider_id: self._instances[instance_id]
            for provider_id in of_ec2
            if (instance_id := instance_id_of(provider_id)) in self._instances
        }


def _fetch_instances(clients: "AwsClients", region: str, instance_ids: Collection[str]) -> dict[str, ReportedNode]:
    """Read instances by id, as far as the account has them: EC2 lists terminated ones for about an hour.

    Raises:
        SourceError: the request failed or was refused.
    """
    from gpucost.sources.aws_prices import batches, map_aws_errors

    instances: dict[str, ReportedNode] = {}
    with map_aws_errors("ec2:DescribeInstances"):
        pages = clients("ec2", region).get_paginator("describe_instances")
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
