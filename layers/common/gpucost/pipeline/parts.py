"""The services that compute hours and prices, each made when it is first used."""

from functools import cached_property, partial
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from gpucost.pipeline.attribute import AttributeService, LimitsReaderFactory, MetricsReaderFactory
    from gpucost.pipeline.dispatch import DispatchService
    from gpucost.pipeline.pricing import Pricer
    from gpucost.pipeline.refresh_bill import BillRefreshService
    from gpucost.pipeline.refresh_prices import PriceRefreshService
    from gpucost.pipeline.restate import RepricingService, RestateService
    from gpucost.runtime.deadline import Deadline
    from gpucost.settings import ClusterSettings, CoreSettings
    from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
    from gpucost.sources.prometheus.reader import PrometheusReader


class PipelineParts(SharedParts):
    """The services that compute hours and prices."""

    @cached_property
    def metrics_reader(self) -> "MetricsReaderFactory":
        """Reads a cluster's metrics. The HTTP client is imported for the first cluster: restating needs none."""

        def create_reader(
            cluster: "ClusterSettings", settings: "CoreSettings", deadline: "Deadline | None"
        ) -> "PrometheusReader":
            from gpucost.sources.prometheus import metrics_reader

            return metrics_reader(cluster, settings, deadline, secret_value=self.secrets.value)

        return create_reader

    @cached_property
    def limits_reader(self) -> "LimitsReaderFactory":
        """Reads a cluster's limits and quotas; see `metrics_reader`."""

        def create_reader(cluster: "ClusterSettings", deadline: "Deadline | None") -> "NodePoolLimitsReader":
            from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader

            return NodePoolLimitsReader(cluster, deadline, secret_value=self.secrets.value)

        return create_reader

    @cached_property
    def pricer(self) -> "Pricer":
        """Prices of nodes, from the price book and the bill."""
        from gpucost.pipeline.pricing import Pricer

        return Pricer(self.price_book, self.bill_store)

    @cached_property
    def dispatch_service(self) -> "DispatchService":
        """For `functions/dispatch`."""
        from gpucost.pipeline.dispatch import DispatchService

        return DispatchService(self.settings_store, self.ledger, self.ledger.versions, self.bus)

    @cached_property
    def attribute_service(self) -> "AttributeService":
        """For `functions/attribute`."""
        from gpucost.pipeline.attribute import AttributeService, LimitsRecorder

        return AttributeService(
            self.settings_store,
            self.ledger,
            self.rollups,
            self.metrics_reader,
            self.bus,
            pricer=self.pricer,
            clock=self.clock,
            limits=LimitsRecorder(self.limits_reader, self.limits_store),
        )

    @cached_property
    def restate_service(self) -> "RestateService":
        """For `functions/attribute`."""
        from gpucost.pipeline.restate import RestateService

        return RestateService(
            self.settings_store, self.ledger, self.rollups, self.bus, pricer=self.pricer, clock=self.clock
        )

    @cached_property
    def repricing_service(self) -> "RepricingService":
        """For `functions/dispatch`."""
        from gpucost.pipeline.restate import RepricingService

        return RepricingService(self.settings_store, self.ledger, self.price_book, self.bill_store, self.bus)

    @cached_property
    def prices_service(self) -> "PriceRefreshService":
        """For `functions/prices`."""
        from gpucost.pipeline.refresh_prices import PriceRefreshService
        from gpucost.sources.aws_prices import AwsPriceList, Ec2InstanceTypes, Ec2SpotHistory

        return PriceRefreshService(
            self.settings_store,
            self.ledger,
            self.price_book,
            spot=Ec2SpotHistory(self.client),
            price_list=AwsPriceList(self.client),
            catalogue=Ec2InstanceTypes(self.client),
            bill=self.bill_service,
            fetched=frozenset(self.environment.price_sources.split(",")) - {""},
            clock=self.clock,
        )

    @cached_property
    def bill_service(self) -> "BillRefreshService":
        """For `functions/prices`, source `cur`."""
        from gpucost.pipeline.refresh_bill import BillRefreshService, LedgerNodePools
        from gpucost.sources.bill import bill_reader

        return BillRefreshService(
            partial(bill_reader, clients=self.aws_clients),
            self.bill_store,
            clock=self.clock,
            node_pools=LedgerNodePools(self.settings_store, self.ledger),
        )
