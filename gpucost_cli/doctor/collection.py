"""Queries one cluster's Prometheus for the facts: about fifteen queries, whatever the cluster's size."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from statistics import median_low

from gpucost.core.errors import MetricsResponseError
from gpucost.core.hours import HOUR, floor_hour, to_epoch_ms
from gpucost.core.metering.accelerators import ACCELERATORS, NVIDIA, vendor_of
from gpucost.sources.prometheus.claim_collectors import CLAIM_COLLECTORS
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.cluster_labels import multiple_clusters
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.nodes import unknown_resources
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from gpucost.sources.prometheus.resource_claims import devices_of_unknown_drivers
from gpucost.sources.prometheus.tables import exported_label, pod_name, rows_at
from gpucost_cli.doctor import parsing, signals
from gpucost_cli.doctor.checks import CHECKS
from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_cli.doctor.checks.jobs import JOB_METRICS
from gpucost_cli.doctor.facts import CLAIM_INFO, KUBE_STATE_METRICS, REQUESTS, Facts, ObservedDevice, Target
from gpucost_cli.doctor.labels import RequiredLabels
from gpucost_cli.doctor.queries import COMPLETION, NODE_INFO, PHASE, DoctorQueries, count_outside_selector

STEP = timedelta(minutes=10)
"""Step of range queries. Objects that exist for less time may be missed."""
MAX_INTERVAL_TARGETS = 20
"""Number of targets whose scrape interval is read."""
LONG_QUERY_LENGTH = 110_000
"""Characters of the longest query that attribution sends: for the phases of 400 uids."""
MAX_GPUS_AT_ZERO = 20
"""Number of GPUs with a signal of 0 of which other metrics are read."""
MAX_TARGETS_WITHOUT_UP = 3
"""Number of targets without `up` of which another series is read."""


class FactsCollector:
    """Collects the facts about one cluster.

    Args:
        client: of the cluster's Prometheus.
        selector: the cluster's label values.
        required_labels: labels of namespaces and pods that the settings need.
        ranks: signals that attribution would read, best first.
        trusted_series: label matchers of each metrics source's trusted series.
        inference_metrics: counters and histograms of inference servers.
        units: GPUs per unit of further resources, from the settings.
        cluster: the cluster's name in the settings.
    """

    def __init__(
        self,
        client: PrometheusClient,
        selector: Mapping[str, str],
        required_labels: RequiredLabels,
        ranks: Sequence[Sequence[signals.Signal]],
        trusted_series: TrustedSeries | None = None,
        inference_metrics: Sequence[str] = (),
        units: Mapping[str, Fraction] | None = None,
        cluster: str = "",
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._queries = DoctorQueries(selector, trusted_series or TrustedSeries(), units or {})
        self._selector = selector
        self._required_labels = required_labels
        self._ranks = ranks
        self._inference_metrics = inference_metrics

    def collect(self, now: datetime) -> Facts:
        """Collect the facts since the start of the last full hour.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `PrometheusClient`.
        """
        # Which metrics have series, and how many. Later queries depend on it.
        start = floor_hour(now) - HOUR
        first = now - STEP * ((now - start) // STEP)
        counts = self._client.query_range(self._queries.counts(KUBE_METRICS), first, now, STEP)
        metrics = dict.fromkeys(metric for check in CHECKS for metric in check.metrics)
        count_query = self._queries.device_counts([*metrics, *self._inference_metrics])
        device_counts = self._client.query_range(count_query, first, now, STEP)
        series = parsing.max_counts(counts) | parsing.max_counts(device_counts)
        self._queries = replace(self._queries, has_phases=bool(series.get(PHASE) or not series.get(REQUESTS)))

        # The nodes, their devices and the pods that hold GPUs, at the time of the last samples.
        resources = self._client.query_range(self._queries.resources(), first, now, STEP)
        evaluated_at = _last_time([resources, counts], now)
        names = [signal.name for rank in self._ranks for signal in rank]
        by_rank = [*([signal.name for signal in rank] for rank in self._ranks), [*signals.accelerator_signal_names()]]
        max_values = self._client.query_range(self._queries.max_values(names), first, now, STEP)
        device_query = self._queries.devices(by_rank)
        devices = parsing.parse_devices(self._client.query(device_query, evaluated_at))
        nodes = self._client.query(self._queries.nodes(self._required_labels.of_nodes), evaluated_at)
        request_series = self._client.query(self._queries.holders(), evaluated_at)
        requests = parsing.parse_gpu_holders(request_series)
        nodes_by_scheduler = parsing.nodes_by_scheduler(request_series)
        unknown = unknown_resources(rows_at(nodes, to_epoch_ms(evaluated_at)), self._cluster)
        names_of_unknown = {unexplained.name for unexplained in unknown}
        holders = [
            holder
            for holder in parsing.without_gone_pods(requests, parsing.parse_nodes(nodes), devices)
            if holder.resource not in names_of_unknown  # `check_unexplained` names them; they may hold no GPU
        ]
        if not self._queries.has_phases and not series.get(COMPLETION):
            holders = parsing.without_unnamed_pods(holders, devices)

        # Labels, scrapes and jobs.
        label_counts = self._client.query(
            self._queries.labels_and_finished_pods(self._required_labels.by_metric()), evaluated_at
        )
        clusters = self._client.query(self._queries.cluster_labels(), evaluated_at)
        exporters = parsing.scrape_times_by_exporter(counts)
        scrapes = self._scrapes(exporters, devices, nodes, start, now)
        jobs = self._client.query(self._queries.jobs(JOB_METRICS), evaluated_at)
        facts = Facts(
            now=now,
            evaluated_at=evaluated_at,
            series=series,
            exporters=exporters,
            resources=parsing.max_counts(resources, "resource"),
            holders=holders,
            unexplained=[*unknown, *multiple_clusters(labels for labels, _ in clusters if "node" in labels)[1]],
            nodes=parsing.parse_nodes(nodes, holders),
            nodes_by_scheduler=nodes_by_scheduler,
            devices=devices,
            process_values=parsing.sums_by_device(
                self._client.query_range(self._queries.process_values(signals.process_signal_names()), first, now, STEP)
            ),
            max_values={signal.labels["__name__"]: parsing.max_value(signal) for signal in max_values},
            cluster_labels=parsing.values_by_label(clusters),
            label_counts=parsing.count_series_by_label(label_counts),
            owner_kinds=parsing.max_counts(self._client.query(self._queries.owners(), evaluated_at), "owner_kind"),
            finished_pods=parsing.max_counts(label_counts, STATISTIC_LABEL).get("finished", 0),
            intervals={
                target: interval
                for target, times in scrapes.items()
                if (interval := _scrape_interval_seconds(times)) is not None
            },
            scrape_gaps=_longest_gaps(scrapes, exporters),
            last_scrapes={target: max(times) for target, times in scrapes.items() if times},
            jobs_with_up=self._with_up,
            labels_outside_selector=self._labels_outside_selector(series, names, first, now),
            accepts_long_queries=self._accepts_long_queries(now),
            jobs=parsing.count_series_by_job(jobs),
            collector_labels=[labels for labels, _ in jobs],
        )
        facts = replace(facts, series=series | self._counts_of_checks(facts))

        # What only some facts call for: nodes with several exporters, and pods with claims.
        several = _nodes_with_several_exporters(facts)
        if several:  # a replaced exporter's series may last for five minutes
            before = parsing.parse_devices(self._client.query(device_query, evaluated_at - STEP))
            several &= _nodes_with_several_exporters(replace(facts, devices=before))
        admins = self._client.query(self._queries.admin_namespaces(), evaluated_at) if facts.claims_by_device else ()
        claiming: Sequence[Series] = ()
        of_reported_claims: set[tuple[str, str]] = set()
        if series.get(CLAIM_INFO) and facts.has_silent_nodes:
            claiming = self._client.query(self._queries.claiming_pods(), evaluated_at)
        if claiming and facts.silent_neuron_nodes:
            reported = rows_at(
                self._client.query(self._queries.pods_of_reported_claims(), evaluated_at), to_epoch_ms(evaluated_at)
            )
            for collector in CLAIM_COLLECTORS:
                of_reported_claims |= {
                    (exported_label(labels, "namespace"), labels.get(collector.pod, ""))
                    for labels, _ in reported.get(collector.reservations, [])
                }
        facts = replace(
            facts,
            nodes_with_several_exporters=several,
            admin_namespaces=frozenset(exported_label(labels, "namespace") for labels, _ in admins),
            claiming_pods=frozenset(pod_name(labels) for labels, _ in claiming),
            pods_of_reported_claims=frozenset(of_reported_claims),
        )
        return self._with_suspicions(facts, [name for rank in by_rank for name in rank], first)

    def _counts_of_checks(self, facts: Facts) -> dict[str, int]:
        """Number of series by metric or statistic, from the checks' own queries."""
        counts: dict[str, int] = {}
        for check in CHECKS:
            if query := check.query(self._queries, facts):
                series = self._client.query(query, facts.evaluated_at)
                has_statistics = any(STATISTIC_LABEL in labels for labels, _ in series)
                counts |= parsing.max_counts(series, STATISTIC_LABEL if has_statistics else "__name__")
        return counts

    def _with_suspicions(self, facts: Facts, signal_names: Sequence[str], first: datetime) -> Facts:
        """Add what further queries say about nodes without devices, signals of 0, and claims.

        Args:
            facts: the facts.
            signal_names: the names of all signals.
            first: the first time of the window.
        """
        unexplained = [*facts.unexplained]
        if facts.series.get(CLAIM_INFO) or facts.has_silent_nodes:
            drivers = self._client.query(self._queries.unknown_drivers(), facts.evaluated_at)
            by_metric = rows_at(drivers, to_epoch_ms(facts.evaluated_at))
            for collector in CLAIM_COLLECTORS:
                unexplained += devices_of_unknown_drivers(by_metric.get(collector.devices, []), collector.node)
        in_turn: Mapping[Target, frozenset[str]] = {}
        if _has_unreported_nodes(facts):
            by_target = self._client.query_range(self._queries.nodes_by_target(signal_names), first, facts.now, STEP)
            in_turn = parsing.nodes_in_turn(by_target)
        contradictions: Mapping[str, str] = {}
        if at_zero := _held_gpus_at_zero(facts, NVIDIA, {signal.name for signal in self._ranks[0]}):
            query = self._queries.contradictions(self._ranks, at_zero[:MAX_GPUS_AT_ZERO])
            contradictions = parsing.first_statistics(self._client.query(query, facts.evaluated_at), "UUID")
        for accelerator in ACCELERATORS:
            names = {signal.name for signal in accelerator.signals}
            if accelerator.power_metrics and (at_zero := _held_gpus_at_zero(facts, accelerator.vendor, names)):
                series = self._client.query(self._queries.power_witnesses(accelerator), facts.evaluated_at)
                contradictions = {**contradictions, **parsing.contradicted_devices(series, accelerator, at_zero)}
        return replace(facts, unexplained=unexplained, nodes_in_turn=in_turn, contradictions=contradictions)

    def _accepts_long_queries(self, now: datetime) -> bool:
        """Whether the server accepts a query as long as those about hundreds of short-lived pods."""
        try:
            self._client.query("vector(1)".ljust(LONG_QUERY_LENGTH), now)
        except MetricsResponseError:
            return False
        return True

    def _scrapes(
        self,
        exporters: Iterable[Target],
        devices: Sequence[ObservedDevice],
        nodes: Sequence[Series],
        start: datetime,
        now: datetime,
    ) -> dict[Target, list[int]]:
        """Scrape times (ms) of some targets, by `up` if it is kept, else by another series of the target."""
        kube_targets = sorted(exporters, key=_target_order)[:MAX_INTERVAL_TARGETS]
        device_by_target = {device.target: device for device in reversed(devices)}
        targets = [*kube_targets, *sorted(device_by_target, key=_target_order)[:MAX_INTERVAL_TARGETS]]
        self._with_up: frozenset[str] = frozenset()
        scrapes: dict[Target, list[int]] = {}
        with_instance = [target for target in targets if target.instance]
        if with_instance:
            up = [
                (parsing.parse_target(labels), samples)
                for labels, samples in self._client.raw_samples(self._queries.up(with_instance), start, now)
            ]
            self._with_up = frozenset(target.job for target, _ in up)
            scrapes = {target: [time for time, value in samples if value == "1"] for target, samples in up}
        info = {parsing.parse_target(labels): labels for labels, _ in nodes if labels.get(STATISTIC_LABEL) == "info"}
        without_up = [target for target in targets if target not in scrapes]
        for target in [
            *[target for target in without_up if target in info][:MAX_TARGETS_WITHOUT_UP],
            *[target for target in without_up if target in device_by_target][:MAX_TARGETS_WITHOUT_UP],
        ]:
            metric = NODE_INFO if target in info else device_by_target[target].signal
            labels = parsing.labels_that_select(info[target] if target in info else device_by_target[target].labels)
            series = self._client.raw_samples(self._queries.one_series(metric, labels), start, now)
            scrapes[target] = sorted({time for _, samples in series for time, _ in samples})
        return scrapes

    def _labels_outside_selector(
        self, series: Mapping[str, int], names: Sequence[str], first: datetime, now: datetime
    ) -> dict[str, list[Mapping[str, str]]]:
        """Labels of series that the selector leaves out, by metric, for metrics of which it selects no series."""
        metrics = [] if series.get(REQUESTS) else [REQUESTS]
        metrics += [] if any(series.get(name) for name in names) else names
        if not self._selector or not metrics:  # matchers of sources have a check of their own (jobs)
            return {}
        by_metric: dict[str, list[Mapping[str, str]]] = {}
        # In the whole window, because samples may have ended: nothing that the selector matches says when.
        outside = count_outside_selector(metrics, self._selector)
        for labels, _ in self._client.query_range(outside, first, now, STEP):
            by_metric.setdefault(labels["__name__"], []).append(
                {name: value for name, value in labels.items() if name != "__name__"}
            )
        return by_metric


def _has_unreported_nodes(facts: Facts) -> bool:
    """Whether nodes with GPUs, or with accelerators that pods hold, lack devices or information that others have."""
    held = {holder.node for holder in facts.holders} & facts.nodes.keys()
    if facts.devices and any(not facts.devices_by_node.get(name) for name in held | facts.gpu_nodes.keys()):
        return True
    have_info = {node.has_info for name, node in facts.nodes.items()}
    return len(have_info) > 1


def _held_gpus_at_zero(facts: Facts, vendor: str, signals: Collection[str]) -> Sequence[str]:
    """UUIDs of GPUs whose signal is 0 although a pod holds them, of nodes on which no pod uses any.

    Without labels of pods, all devices of a node may be held.
    """
    nodes = {holder.node for holder in facts.holders if vendor_of(holder.resource) == vendor}
    nodes |= {facts.node_of(device) for device in facts.devices if device.claim}
    uuids: set[str] = set()
    for node in nodes:
        devices = [
            device
            for device in facts.devices_by_node.get(node, ())
            if device.vendor == vendor and device.signal in signals
        ]
        held = [device for device in devices if facts.is_labeled_with_holder(device) or device.claim] or devices
        if all(device.is_zero for device in held):
            uuids |= {device.uuid for device in held}
    return sorted(uuids)


def _nodes_with_several_exporters(facts: Facts) -> frozenset[str]:
    """Nodes with a device of which several targets have series. Replicas of Prometheus scrape the same target."""
    targets: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for device in facts.gpu_devices:
        key = facts.node_of(device), device.uuid, device.mig_id
        targets.setdefault(key, set()).add((device.target.job, device.target.instance))
    return frozenset(node for (node, uuid, _), names in targets.items() if node and uuid and len(names) > 1)


def _last_time(results: Iterable[Sequence[Series]], now: datetime) -> datetime:
    """The last sample's time in the first result that has samples; `now` if none has."""
    for series in results:
        times = [samples[-1][0] for _, samples in series if samples]
        if times:
            return datetime.fromtimestamp(max(times) / 1000, UTC)
    return now


def _scrape_interval_seconds(times: Sequence[int]) -> Decimal | None:
    """Seconds between scrapes, to a tenth: the median, which gaps and jitter hardly change."""
    distances = [after - before for before, after in pairwise(sorted(times)) if after > before]
    return round(Decimal(median_low(distances)) / 1000, 1).normalize() if distances else None


def _longest_gaps(
    scrapes: Mapping[Target, Sequence[int]], exporters: Container[Target]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Start and end (ms) of the longest time without a scrape, by job and instance.

    Instances of kube-state-metrics are one: they replace each other, or say the same.
    """
    times: dict[tuple[str, str], set[int]] = {}
    for target, of_target in scrapes.items():
        key = (KUBE_STATE_METRICS, "") if target in exporters else (target.job, target.instance)
        times.setdefault(key, set()).update(of_target)
    return {
        key: max(pairwise(sorted(of_key)), key=lambda gap: gap[1] - gap[0])
        for key, of_key in times.items()
        if len(of_key) > 1
    }


def _target_order(target: Target) -> tuple[str, str, str]:
    return target.job, target.instance, target.replica
