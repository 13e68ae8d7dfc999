"""What commands without a deployment ask AWS, if there are credentials."""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING

from gpucost.core.errors import SourceError
from gpucost.core.metering.instance_types import AWS_PREFIX, instance_id_of, zone_of_provider_id
from gpucost.core.metering.unlabeled_nodes import ReportedNode
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
            from gpucost.sources.aws_prices.instances import Ec2Instances

            for region, ids in sorted(regions.items()):
                try:
                    self._instances |= Ec2Instances(self.clients).fetch(region, ids)
                except SourceError as error:
                    self.warn(f"instances of {region} are not looked up: {error}")
                self._requested |= ids
        return {
            provider_id: self._instances[instance_id]
            for provider_id in of_ec2
            if (instance_id := instance_id_of(provider_id)) in self._instances
        }
