"""The demo's history: simulated and attributed day by day, newest first, while the API answers."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.container import Container
from gpucost.core.errors import ConflictError
from gpucost.core.hour_record import NodeHour
from gpucost.core.hours import HOUR, floor_day, format_timestamp, hours_between, month_bounds
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.months import MonthService
from gpucost.pipeline.restate import restate_messages
from gpucost.runtime.messages import RecommendationsDue
from gpucost_cli.deployment import find_deployment
from gpucost_cli.running_demo import SCHEDULE_DELAY, RunningDemo
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.metrics_segment import Segment, SegmentProcess, segments_of

SAVE_EVERY_SECONDS = 20.0
RESTATED_DAYS_BEFORE = 5
DISCOUNT_FACTOR = Decimal("0.9")
REASON = "the invoice shows a credit of 10%"
NEEDED_AT_NIGHT = "annotation"
"""The workload whose recommended schedule a person dismisses."""
WEEK = timedelta(days=7)
REVIEW_SECONDS = 900.0
"""The time that the function has for a run of reviews."""


class History:
    """Adds the days before the summary's period, in steps between which the demo does its other work.

    Args:
        demo: the running demo.
        stack: the demo's name for `--stack`.
        days: how many days before the summary's period.
    """

    def __init__(self, demo: RunningDemo, stack: str, days: int) -> None:
        self._demo = demo
        self._stack = stack
        self._begin = floor_day(demo.start - timedelta(days=days)) if days else demo.start
        hours = hours_between(self._begin, demo.start)
        self._to_simulate = demo.metrics.segments_without_samples(hours)
        missing = {hour for cluster in fleet.CLUSTERS for hour in demo.missing_hours(cluster, self._begin, demo.start)}
        self._to_attribute = segments_of(sorted(missing))
        self.day_count = len(self._to_attribute)
        self._is_complete = bool(not days or (demo.cache and demo.cache.index.is_complete and not missing))
        self._process: SegmentProcess | None = None
        self._polled_at = time.monotonic()
        self._saved_at = -SAVE_EVERY_SECONDS  # the first step saves the summary's days
        self._is_saved = False

    @property
    def days_done(self) -> int:
        """Days attributed so far."""
        return self.day_count - len(self._to_attribute)

    @property
    def is_complete(self) -> bool:
        """Whether everything is in the ledger."""
        return self._is_complete

    @property
    def period(self) -> str:
        """Its name in messages."""
        return f"history from {self._begin:%Y-%m-%d} to {self._demo.start:%Y-%m-%d}"

    def advance(self) -> None:
        """Do what can be done now, without waiting."""
        self._simulate()
        if self._to_attribute and self._is_next_day_served():
            segment = self._to_attribute.pop()
            self._demo.backfill(segment.start, segment.end)
            self._demo.stack.deliver_all()
            self._is_saved = False
        elif not self._to_attribute and not self._is_complete:
            self._add_events()
            self._is_complete = True
            self._is_saved = False
        is_due = self._is_complete or time.monotonic() - self._saved_at >= SAVE_EVERY_SECONDS
        if is_due and not self._is_saved:
            self.save()

    def save(self) -> None:
        """Keep the state for the next demo."""
        self._demo.save(is_complete=self._is_complete)
        self._saved_at, self._is_saved = time.monotonic(), True

    def close(self) -> None:
        """End the simulation."""
        if self._process is not None:
            self._process.stop()

    def _simulate(self) -> None:
        if self._process is not None and self._process.is_done():
            self._demo.metrics.add(self._process)
            self._process = None
        if self._process is None and self._to_simulate:
            self._process = self._demo.metrics.start(self._to_simulate.pop(), is_history=True)

    def _is_next_day_served(self) -> bool:
        """Whether Prometheus has the next day's metrics, and those just before, which the first hour needs."""
        if time.monotonic() - self._polled_at < 1:
            return False
        self._polled_at = time.monotonic()
        segment = self._to_attribute[-1]
        before = Segment(segment.start - HOUR, segment.start)
        return self._demo.metrics.are_served(segment) and (
            segment.start <= self._begin or self._demo.metrics.are_served(before)
        )

    def _add_events(self) -> None:
        """Let happen what only a longer history shows: a restated hour, reviews, and a closed month."""
        demo = self._demo
        container = find_deployment(self._stack).container()
        clusters = demo.clusters_in_force()
        if not clusters:
            return
        cluster = clusters[-1]
        hour = max(self._begin, floor_day(demo.start) - timedelta(days=RESTATED_DAYS_BEFORE)) + 12 * HOUR
        nodes, _ = demo.ledger.nodes_and_charges(cluster, hour)
        if nodes and not demo.ledger.restatements(cluster, hour, hour + HOUR):
            # The node with most GPU-hours is there all hour, so that its cost is its price.
            self._correct_price(container, cluster, hour, max(nodes, key=lambda node: node.capacity.capacity_gpu_hours))
        self._review_clusters(container, clusters)
        month, _ = month_bounds(demo.end)
        if month > self._begin:
            ledger = container.ledger
            months = MonthService(container.settings_store, ledger, ledger.versions, container.rollups, container.clock)
            name = f"{month - HOUR:%Y-%m}"
            with suppress(ConflictError):  # an earlier demo closed it
                months.close(name, author="demo", reason="closed for chargeback", force=True)

    def _review_clusters(self, container: Container, clusters: Sequence[str]) -> None:
        """Review the clusters, and dismiss a recommendation as a person would."""
        demo, store = self._demo, container.recommendation_store
        reviews = [store.review(name) for name in clusters]
        if all(review is None or HOUR * review.hours_known < WEEK for review in reviews):
            self._review_earlier_weeks()
        for name in clusters:  # one by one: each has the function's whole time, on a busy machine, too
            review = {"version": 1, "scheduled_time": format_timestamp(demo.end), "cluster": name}
            demo.stack.invoke_asynchronously("RecommendFunction", review)
        demo.stack.deliver_all()
        for recommendation in [entry for name in clusters for entry in store.recommendations(name)]:
            if recommendation.state == "open" and recommendation.content.subject.workload == NEEDED_AT_NIGHT:
                container.recommendation_queries.dismiss(
                    recommendation.id, author="demo", reason="annotators in other time zones need it at night"
                )

    def _review_earlier_weeks(self) -> None:
        """Review the clusters as at the end of each earlier week, so that some recommendations are applied by now."""
        deployment, weeks = find_deployment(self._stack), (self._demo.end - self._begin) // WEEK
        logging.disable(logging.WARNING)  # each day before the history is one without metrics
        try:
            for at in [self._demo.end - WEEK * number for number in range(weeks - 1, 0, -1)]:
                deployment.container(clock=lambda at=at: at).review_service.review_clusters(
                    RecommendationsDue(version=1, scheduled_time=at), lambda: REVIEW_SECONDS
                )
        finally:
            logging.disable(logging.NOTSET)

    def _correct_price(self, container: Container, cluster: str, hour: datetime, node: NodeHour) -> None:
        """Set the price of a node's instance type in one hour by hand, and restate the hour."""
        cost = node.capacity.figures()["node_cost_usd"]
        if not cost:
            return
        now = datetime.now(UTC).replace(microsecond=0)
        price = Price(
            source="override",
            unit="node-hour",
            amount=cost * DISCOUNT_FACTOR,
            applies_to={"cluster": cluster, "instance_type": node.instance_type, "capacity_type": node.capacity_type},
            valid_from=hour,
            valid_to=hour + HOUR,
            fetched_at=now,
            author="demo",
            reason=REASON,
        )
        container.price_book.set_override(price, now=now)
        container.bus.send_due(
            restate_messages(cluster, [hour], settings_version=None, reason=REASON, correlation_id="demo-restate")
        )
        self._demo.stack.deliver_all()


class LiveHours:
    """Simulates and attributes each hour that ends while the demo runs.

    Args:
        demo: the running demo.
    """

    def __init__(self, demo: RunningDemo) -> None:
        self._demo = demo
        self._process: SegmentProcess | None = None
        self._is_simulated = False

    def advance(self) -> bool:
        """Do what can be done now, without waiting. Return whether an hour was attributed."""
        hour = self._demo.scheduled_until
        if datetime.now(UTC) < hour + HOUR + SCHEDULE_DELAY:
            return False
        segment = Segment(hour, hour + HOUR)
        if not self._is_simulated:
            self._process = self._process or self._demo.metrics.start(segment, is_history=False)
            if self._process.is_done():
                self._demo.metrics.add(self._process)
                self._process, self._is_simulated = None, True
            return False
        if not self._demo.metrics.are_served(segment):  # attributed now, the hour would be incomplete
            return False
        self._is_simulated = False
        self._demo.run_schedule(hour)
        return True
