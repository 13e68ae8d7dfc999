"""Recommendations' services and storage, each made when it is first used."""

from functools import cached_property, partial
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from gpucost.features.recommendations.forecasts import FleetForecastService, ForecastService
    from gpucost.features.recommendations.queries import RecommendationQueries
    from gpucost.features.recommendations.review_service import ReviewService
    from gpucost.features.recommendations.storage import DynamoRecommendations


class RecommendationParts(SharedParts):
    """Recommendations' services and storage."""

    @cached_property
    def budget_of(self) -> "Callable[[str, int], Decimal | None]":
        """The budget of a business unit for 1 or 3 months; of alerting."""
        raise NotImplementedError

    @cached_property
    def time_zone(self) -> "Callable[[], str]":
        """The time zone of people; of alerting."""
        raise NotImplementedError

    @cached_property
    def recommendation_store(self) -> "DynamoRecommendations":
        """Recommendations."""
        from gpucost.features.recommendations.storage import DynamoRecommendations

        return DynamoRecommendations(self.table)

    @cached_property
    def review_service(self) -> "ReviewService":
        """For `functions/recommend`."""
        from gpucost.features.recommendations.review_service import (
            ReviewService,
            gpu_memory_cache,
            request_latency_cache,
            waiting_pods_cache,
        )
        from gpucost.features.recommendations.sources import (
            PrometheusDisruption,
            PrometheusGpuMemory,
            PrometheusWaitingPods,
        )
        from gpucost.features.recommendations.storage import DynamoGpuMemory, DynamoRequestLatency, DynamoWaitingPods

        return ReviewService(
            self.settings_store,
            self.ledger,
            self.recommendation_store,
            self.price_book,
            gpu_memory_cache(PrometheusGpuMemory, DynamoGpuMemory(self.table), clock=self.clock),
            waiting_pods_cache(PrometheusWaitingPods, DynamoWaitingPods(self.table), clock=self.clock),
            PrometheusDisruption,
            clock=self.clock,
            latency=partial(request_latency_cache, store=DynamoRequestLatency(self.table), clock=self.clock),
            time_zone=self.time_zone,
        )

    @cached_property
    def recommendation_queries(self) -> "RecommendationQueries":
        """For `functions/api`, which only lists."""
        from gpucost.features.recommendations.queries import RecommendationQueries

        return RecommendationQueries(self.settings_store, self.recommendation_store, clock=self.clock)

    @cached_property
    def forecasts(self) -> "ForecastService":
        """For `functions/api`."""
        from gpucost.features.recommendations.forecasts import ForecastService
        from gpucost.reports.parameters import PublishedUntil

        published_until = PublishedUntil(self.settings_store, self.ledger, self.clock)
        return ForecastService(self.settings_store, self.rollups, self.budget_of, published_until=published_until)

    @cached_property
    def fleet_forecasts(self) -> "FleetForecastService":
        """For `functions/api`."""
        from gpucost.features.recommendations.forecasts import FleetForecastService
        from gpucost.reports.parameters import PublishedUntil

        published_until = PublishedUntil(self.settings_store, self.ledger, self.clock)
        return FleetForecastService(
            self.settings_store, self.rollups, self.ledger, self.budget_of, published_until=published_until
        )
