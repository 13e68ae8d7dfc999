"""Checks of the cluster's selector and of how its exporters are scraped."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations

from gpucost.core.hours import format_epoch_ms, format_timestamp, to_epoch_ms
from gpucost.core.metering.metering import MAX_BRIDGED_GAP_MS
from gpucost.sources.prometheus.client import QUERY_LENGTH_FLAG
from gpucost.sources.prometheus.cluster_labels import values_of_cluster_labels
from gpucost.sources.prometheus.queries import quote
from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, doctor_check, first_few
from gpucost_cli.doctor.facts import KUBE_STATE_METRICS, REQUESTS, Facts, Target
from gpucost_cli.doctor.queries import REQUESTED_RESOURCES
from gpucost_cli.documentation import page_path

_MIN_INSTANCES_TO_COMPARE = 2
_SIMILAR_INTERVALS = Decimal("1.5")
"""Largest ratio of intervals that are considered equal. Jitter and a few missed scrapes do not exceed it."""
_LONG_INTERVAL = Decimal(120)
"""Seconds. With longer scrape intervals, short-lived pods are missed."""


@doctor_check(
    "the cluster and its exporters",
    """
length of queries | the server refuses queries of 110,000 characters. Hours with hundreds of short-lived pods need such long queries, so they cannot be read | VictoriaMetrics: `-search.maxQueryLen=1MB`
""",  # noqa: E501 - one line for each row
)
def check_query_length(context: CheckContext) -> Iterable[Check]:
    """Check whether the server accepts long queries, unlike VictoriaMetrics by default."""
    if not context.facts.accepts_long_queries:
        fault = Fault(
            "the server refuses long queries: hours with hundreds of short-lived pods cannot be read",
            f"VictoriaMetrics: {QUERY_LENGTH_FLAG}=1MB; a proxy in front of it: its limit on the size of requests",
        )
        yield context.check("length of queries", "", "recommended", fault)


@doctor_check(
    "the cluster and its exporters",
    """
selector (required) | the settings' `selector` matches no requests, but other series exist | the selector, with the values that exist; or `external_labels` if the series have no such label
selector (recommended) | kube-state-metrics has the selector's labels, but the GPU exporter's series do not | `external_labels` of the Prometheus that scrapes it
""",  # noqa: E501 - one line for each row
)
def check_selector(context: CheckContext) -> Iterable[Check]:
    """Check whether the cluster's selector matches series of all sources."""
    selected = context.cluster.selector
    if not selected:
        return
    selector_text = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(selected.items()))
    for metric, rows in context.facts.labels_outside_selector.items():
        is_requests = metric == REQUESTS
        lacks_labels = any(not selected.keys() <= row.keys() for row in rows)
        if is_requests and context.facts.has_kube_state_metrics:
            continue  # the selector is right, and requests are missing
        if not is_requests and not (lacks_labels and context.facts.gpu_nodes):
            continue  # GPUs of other clusters do not mean that this cluster should have some
        fault = Fault(
            f"the selector {{{selector_text}}} matches no series of {metric}. The series have: {_label_values(rows)}",
            _selector_line_to_change(context, rows),
        )
        severity: Severity = "required" if is_requests else "recommended"
        yield context.check("selector", metric, severity, fault, status="missing", series=0)
    if context.facts.has_kube_state_metrics:
        yield context.check("selector", "kube_*", "required", series=sum(context.facts.series.values()))


@doctor_check(
    "the cluster and its exporters",
    """
one cluster | series of several clusters are counted as one cluster: a label such as `cluster` has several values | `selector: {cluster: …}` for each cluster in the settings. Without such a label, the doctor cannot detect several clusters
""",  # noqa: E501 - one line for each row
)
def check_single_cluster(context: CheckContext) -> Iterable[Check]:
    """Check for metrics of several clusters, which would be counted as one cluster."""
    mixed = values_of_cluster_labels(context.facts.cluster_labels)
    if not mixed:
        return
    name, values = next(iter(mixed.items()))
    is_named = context.cluster.name in values
    fault = Fault(
        f"series of {len(values)} clusters are counted as one: {name} is {first_few(values)}",
        f"settings, cluster {context.cluster.name}: selector: {{{name}: {quote(context.cluster.name)}}}"
        if is_named
        else f"settings, cluster {context.cluster.name}: selector: {{{name}: …}}, with one of these names",
    )
    yield context.check("one cluster", name, "required", fault, series=len(values))


@doctor_check(
    "the cluster and its exporters",
    """
kube-state-metrics | missing: it is unknown which pods hold GPUs. Found: the finding says how its instances relate: highly available (counted once), shards (added up), or one after the other (restarted) | install it; keep its series in `write_relabel_configs`
""",  # noqa: E501 - one line for each row
)
def check_kube_state_metrics(context: CheckContext) -> Iterable[Check]:
    """Check whether there are series of kube-state-metrics, and from how many instances."""
    facts = context.facts
    if facts.has_kube_state_metrics:
        series = len({_process_of_target(target) for target in facts.exporters})
        yield context.check(KUBE_STATE_METRICS, "kube_*", "required", note=_describe_instances(facts), series=series)
        return
    fault = Fault(
        "there are no series of kube-state-metrics: it is unknown which pods hold GPUs",
        f"if it runs already, keep its series: write_relabel_configs: regex: up|{KUBE_METRICS[0]}|…; otherwise install "
        f"it, and scrape it as {page_path('docs/how-to/existing-cluster.md')} says: "
        f"{context.install_command(KUBE_STATE_METRICS, 'kube-system')}",
    )
    if facts.labels_outside_selector.get(REQUESTS):  # the check of the selector has the finding
        yield context.check(KUBE_STATE_METRICS, "kube_*", "required", status="missing", series=0)
    else:
        yield context.check(KUBE_STATE_METRICS, "kube_*", "required", fault, status="missing", series=0)


@doctor_check(
    "the cluster and its exporters",
    """
kube-state-metrics now, GPU exporter now | it had series in the window and has none now | restore it; hours from then on are incomplete or unmeasured
""",  # noqa: E501 - one line for each row
)
def check_stale_exporters(context: CheckContext) -> Iterable[Check]:
    """Check for exporters that had series within the hour and have none now."""
    facts = context.facts
    last = max((max(times) for times in facts.exporters.values() if times), default=None)
    if last is not None and last < to_epoch_ms(facts.now):
        # Series are read every ten minutes, and remain for some minutes after their last sample. Scrapes are exact.
        scrapes = [facts.last_scrapes[target] for target in facts.exporters if target in facts.last_scrapes]
        since = format_timestamp(datetime.fromtimestamp(max(scrapes, default=last) / 1000, UTC))
        finding = (
            f"the last samples of kube-state-metrics are from {since}"
            if scrapes
            else f"kube-state-metrics had series at {since}, and has none now"
        )
        fault = Fault(
            f"{finding}: later hours are incomplete",
            "kube-state-metrics: kubectl rollout status; Prometheus: its target, and the log of remote_write",
        )
        yield context.check(f"{KUBE_STATE_METRICS} now", "kube_*", "required", fault, series=0)
    signals = [signal.name for rank in context.ranks for signal in rank if facts.has_series_of_any(signal.name)]
    if signals and facts.gpu_nodes and not facts.gpu_devices:
        fault = Fault(
            f"{signals[0]} had series earlier, but none at {format_timestamp(facts.evaluated_at)}, although GPU nodes "
            "exist",
            "dcgm-exporter: kubectl rollout status; Prometheus: its targets",
        )
        yield context.check("GPU exporter now", signals[0], "recommended", fault, series=0)


def _process_of_target(target: Target) -> tuple[str, str]:
    """The scraped process, regardless of the Prometheus replica."""
    return target.job, target.instance


def _describe_instances(facts: Facts) -> str | None:
    """How several instances relate: highly available replicas, shards, or one after the other."""
    times: dict[tuple[str, str], set[int]] = {}
    for target, target_times in facts.exporters.items():
        times.setdefault(_process_of_target(target), set()).update(target_times)
    if len(times) < _MIN_INSTANCES_TO_COMPARE:
        return _count_servers(facts.exporters)
    targets_by_object = [node.targets for node in facts.nodes.values()]
    targets_by_object += [holder.targets for holder in facts.holders]
    # Prometheus returns a series for some minutes after its last sample, so a single common time means nothing.
    if not any(len(first & second) >= _MIN_INSTANCES_TO_COMPARE for first, second in combinations(times.values(), 2)):
        relation = "one after the other, as after a restart: counted once"
    elif any(
        len({_process_of_target(target) for target in targets}) >= _MIN_INSTANCES_TO_COMPARE
        for targets in targets_by_object
    ):
        relation = "and report the same objects (high availability): counted once"
    else:
        relation = "and each reports its own objects (shards): added up"
    return f"{len(times)} instances are scraped, {relation}"


def _count_servers(targets: Iterable[Target]) -> str | None:
    replicas = {target.replica for target in targets} - {""}
    return f"{len(replicas)} Prometheus replicas write its series: counted once" if len(replicas) > 1 else None


def _scraped_exporters(facts: Facts) -> Iterable[tuple[str, str, set[Target]]]:
    """The exporters that have series: name, metric and targets."""
    if facts.exporters:
        yield KUBE_STATE_METRICS, "kube_*", set(facts.exporters)
    if facts.gpu_devices:
        yield "GPU exporter", facts.gpu_devices[0].signal, {device.target for device in facts.gpu_devices}


@doctor_check(
    "the cluster and its exporters",
    """
up of … | `up` is not kept: coverage is estimated from other series | add `up` to the metrics that `write_relabel_configs` keep
""",  # noqa: E501 - one line for each row
)
def check_up_series(context: CheckContext) -> Iterable[Check]:
    """Check whether `up` is kept, which shows when a target was scraped."""
    for name, _, targets in _scraped_exporters(context.facts):
        jobs = {target.job for target in targets}
        fault = None
        if not jobs & context.facts.jobs_with_up:
            fault = Fault(
                f"up of job {first_few(jobs)} is not kept: the coverage of hours is estimated from other series",
                "write_relabel_configs (and those of agents): regex: up|… if they keep metrics by name",
            )
        yield context.check(f"up of {name}", "up", "recommended", fault, status="missing" if fault else "found")


@doctor_check(
    "the cluster and its exporters",
    """
scrape interval of … | longer than 120 s: short-lived pods are missed. If intervals differ (a note), each target counts with its own interval | `scrape_interval: 60s`
""",  # noqa: E501 - one line for each row
)
def check_scrape_intervals(context: CheckContext) -> Iterable[Check]:
    """Check whether scrape intervals differ between targets of an exporter, or are too long."""
    for name, metric, targets in _scraped_exporters(context.facts):
        by_target = {target: context.facts.intervals[target] for target in targets if target in context.facts.intervals}
        if not by_target:
            continue
        shortest, longest = min(by_target.values()), max(by_target.values())
        fault, note = None, None
        if longest > _LONG_INTERVAL:
            fault = Fault(
                f"{name} is scraped every {longest:f} s: pods with shorter lifetimes are missed",
                "scrape configuration: scrape_interval: 60s; in a PodMonitor or ServiceMonitor, interval: 60s",
            )
        elif longest > shortest * _SIMILAR_INTERVALS:
            slowest = first_few(target.instance for target, interval in by_target.items() if interval == longest)
            note = (
                f"scrape intervals differ: {shortest:f} to {longest:f} s ({slowest}); each target counts with its own "
                "interval"
            )
        severity: Severity = "recommended" if fault else "optional"
        yield context.check(f"scrape interval of {name}", metric, severity, fault, note=note, series=len(by_target))


@doctor_check(
    "the cluster and its exporters",
    """
scrapes of … | for longer than five minutes, which attribution bridges, the exporter was not scraped: pods that started and ended within that time are unknown, or use is unmeasured | what restarted then: the exporter, or Prometheus
""",  # noqa: E501 - one line for each row
)
def check_scrape_gaps(context: CheckContext) -> Iterable[Check]:
    """Check whether exporters were scraped all the time, but for gaps that attribution bridges."""
    facts = context.facts
    for name, metric, targets in _scraped_exporters(facts):
        keys, effect = {(target.job, target.instance) for target in targets}, "use within that time is unmeasured"
        if name == KUBE_STATE_METRICS:
            keys, effect = {(name, "")}, "pods that started and ended within that time are unknown"
        gaps = {key: gap for key, gap in facts.scrape_gaps.items() if key in keys}
        seconds = max((facts.intervals[target] for target in targets if target in facts.intervals), default=Decimal(0))
        bridged = MAX_BRIDGED_GAP_MS + 1000 * seconds
        lasting = {key: gap for key, gap in gaps.items() if gap[1] - gap[0] > bridged}
        fault = None
        if lasting:
            start, end = max(lasting.values(), key=lambda gap: gap[1] - gap[0])
            instances = first_few(instance for _, instance in lasting if instance)
            fault = Fault(
                f"{name} was not scraped from {format_epoch_ms(start)} to {format_epoch_ms(end)}"
                f"{f' ({instances})' if instances else ''}: {effect}",
                f"{name}: kubectl describe pod, for restarts at that time; Prometheus: its log at that time, for "
                "restarts, memory and remote_write",
            )
        yield context.check(f"scrapes of {name}", metric, "recommended", fault, series=len(gaps))


@doctor_check(
    "the cluster and its exporters",
    """
GPU requests | a note: no pod on a node requests a GPU | –
uid of pods | kube-state-metrics before 2.0, or `uid` is dropped: a pod that is recreated with its name counts as the same pod | version 2.0, no `labeldrop` of `uid`
""",  # noqa: E501 - one line for each row
)
def check_gpu_requests(context: CheckContext) -> Iterable[Check]:
    """Check whether there are GPU requests, and whether they have uids."""
    facts = context.facts
    if not facts.has_series_of_any(REQUESTS):
        return
    count = sum(facts.resources.values())
    note = None
    if not count and not facts.unexplained:
        note = f"no pod on a node requests a GPU (resource=~{REQUESTED_RESOURCES}): all GPUs are unallocated"
    yield context.check("GPU requests", REQUESTS, "recommended", note=note, series=count)
    if any(not holder.uid for holder in facts.holders):
        fault = Fault(
            "requests have no uid: a pod that is recreated with its name counts as the same pod",
            "kube-state-metrics: version 2.0 or later, and no labeldrop of uid",
        )
        yield context.check("uid of pods", REQUESTS, "recommended", fault, series=count)


def _label_values(rows: Sequence[Mapping[str, str]]) -> str:
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).add(value)
    labels = [f"{name} is {first_few(label_values)}" for name, label_values in sorted(values.items())]
    return "; ".join(labels) or "no such label"


def _selector_line_to_change(context: CheckContext, rows: Sequence[Mapping[str, str]]) -> str:
    """The line to change: in the settings, or in Prometheus if the series have no such labels."""
    selected = context.cluster.selector
    for row in rows:
        existing = {name: row[name] for name in selected if name in row}
        if len(existing) == len(selected):
            selector_text = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(existing.items()))
            return f"settings, cluster {context.cluster.name}: selector: {{{selector_text}}}"
    labels = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(selected.items()))
    return f"Prometheus: external_labels: {{{labels}}} (or remove selector from the settings)"
