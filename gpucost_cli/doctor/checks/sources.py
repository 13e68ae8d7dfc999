"""Whether the right cluster is looked at, and how its exporters are scraped."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations

from gpucost.core.hours import format_timestamp, to_epoch_ms
from gpucost.sources.prometheus.client import QUERY_LENGTH_LIMIT
from gpucost.sources.prometheus.queries import quote
from gpucost_cli.doctor.checks.metrics import KUBE_METRICS
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Severity, first_few
from gpucost_cli.doctor.facts import REQUESTS, Facts, Target
from gpucost_cli.doctor.queries import GPU_RESOURCES

_KSM = "kube-state-metrics"
_SEVERAL = 2
_SIMILAR_INTERVALS = Decimal("1.5")
"""Jitter and a missed scrape or two do not make a median differ by this much."""
_LONG_INTERVAL = Decimal(120)
"""Seconds; scrapes further apart than this, or more than Prometheus' look-back of five minutes, lose short lives."""


def query_length(context: CheckContext) -> Iterable[Check]:
    """A server that refuses long queries, which is VictoriaMetrics as it is installed."""
    if not context.facts.accepts_long_queries:
        fault = Fault(
            "the server refuses long queries: hours in which some hundred pods come and go cannot be read",
            f"VictoriaMetrics: {QUERY_LENGTH_LIMIT}=1MB; a proxy before it: its limit on the size of requests",
        )
        yield context.check("length of queries", "", "recommended", fault)


def selector(context: CheckContext) -> Iterable[Check]:
    """A selector that matches nothing, or only one of the sources."""
    own = context.cluster.selector
    if not own:
        return
    written = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(own.items()))
    for metric, rows in context.facts.labels_outside_selector.items():
        is_requests = metric == REQUESTS
        bare = any(not own.keys() <= row.keys() for row in rows)
        if is_requests and context.facts.has_kube_state_metrics:
            continue  # the selector is right, and requests are missing
        if not is_requests and not (bare and context.facts.gpu_nodes):
            continue  # others' GPUs are no sign that this cluster should have some
        fault = Fault(
            f"the selector {{{written}}} matches no series of {metric}, which are there: {_label_values(rows)}",
            _selector_line(context, rows),
        )
        severity: Severity = "required" if is_requests else "recommended"
        yield context.check("selector", metric, severity, fault, status="missing", series=0)
    if context.facts.has_kube_state_metrics:
        yield context.check("selector", "kube_*", "required", series=sum(context.facts.series.values()))


def clusters(context: CheckContext) -> Iterable[Check]:
    """Several clusters whose metrics would be taken for one."""
    mixed = {name: values for name, values in context.facts.cluster_labels.items() if name and len(values) > 1}
    if not mixed:
        return
    name, values = next(iter(mixed.items()))
    own = context.cluster.name if context.cluster.name in values else values[0]
    fault = Fault(
        f"series of {len(values)} clusters are taken for one: {name} is {first_few(values)}",
        f"settings, cluster {context.cluster.name}: selector: {{{name}: {quote(own)}}}",
    )
    yield context.check("one cluster", name, "required", fault, series=len(values))


def kube_state_metrics(context: CheckContext) -> Iterable[Check]:
    """Whether it is there, and how many instances of it."""
    facts = context.facts
    if facts.has_kube_state_metrics:
        series = len({_process(one) for one in facts.exporters})
        yield context.check(_KSM, "kube_*", "required", note=_instances(facts), series=series)
        return
    install = "helm install kube-state-metrics prometheus-community/kube-state-metrics"
    fault = Fault(
        "no series of kube-state-metrics are there: nothing tells which pods hold GPUs",
        f"{install} --set prometheus.monitor.enabled=true; where it runs, let its series through: "
        f"write_relabel_configs: regex: up|{KUBE_METRICS[0]}|…",
    )
    told = facts.labels_outside_selector.get(REQUESTS)  # by the selector
    yield context.check(_KSM, "kube_*", "required", None if told else fault, status="missing", series=0)


def stale_exporters(context: CheckContext) -> Iterable[Check]:
    """Exporters that were there within the hour and are not now."""
    facts = context.facts
    last = max((max(times) for times in facts.exporters.values() if times), default=None)
    if last is not None and last < to_epoch_ms(facts.now):
        since = format_timestamp(datetime.fromtimestamp(last / 1000, UTC))
        fault = Fault(
            f"the last series of kube-state-metrics are of {since}: hours from then on are incomplete",
            "kube-state-metrics: kubectl rollout status; Prometheus: its target, and what remote_write says",
        )
        yield context.check(f"{_KSM} now", "kube_*", "required", fault, series=0)
    signals = [signal.name for rank in context.ranks for signal in rank if facts.has(signal.name)]
    if signals and facts.gpu_nodes and not facts.gpu_devices:
        fault = Fault(
            f"{signals[0]} had series, and none at {format_timestamp(facts.evaluated_at)} while GPU nodes were there",
            "dcgm-exporter: kubectl rollout status; Prometheus: its targets",
        )
        yield context.check("GPU exporter now", signals[0], "recommended", fault, series=0)


def _process(source: Target) -> tuple[str, str]:
    """Who was scraped, whichever server did it."""
    return source.job, source.instance


def _instances(facts: Facts) -> str | None:
    """What several instances are: a pair, shards, or one after the other."""
    times: dict[tuple[str, str], set[int]] = {}
    for source, run in facts.exporters.items():
        times.setdefault(_process(source), set()).update(run)
    if len(times) < _SEVERAL:
        return _servers(facts.exporters)
    seen = [*(one.targets for one in facts.nodes.values()), *(one.targets for one in facts.holders)]
    # A vanished series may be answered for some minutes more, so that one time together says nothing.
    if not any(len(one & other) >= _SEVERAL for one, other in combinations(times.values(), 2)):
        kind = "one after the other, as after a restart: counted once"
    elif any(len({_process(source) for source in one}) >= _SEVERAL for one in seen):
        kind = "and tell of the same objects (high availability): counted once"
    else:
        kind = "and each tells of its own objects (shards): added up"
    return f"{len(times)} instances are scraped, {kind}"


def _servers(sources: Iterable[Target]) -> str | None:
    replicas = {one.replica for one in sources} - {""}
    return f"{len(replicas)} equal Prometheus servers write its series: counted once" if len(replicas) > 1 else None


def _scraped_exporters(facts: Facts) -> Iterable[tuple[str, str, set[Target]]]:
    """Kinds of exporters that are there: name, a metric of theirs, and their processes."""
    if facts.exporters:
        yield _KSM, "kube_*", set(facts.exporters)
    if facts.gpu_devices:
        yield "GPU exporter", facts.gpu_devices[0].signal, {device.target for device in facts.gpu_devices}


def up(context: CheckContext) -> Iterable[Check]:
    """Whether it is kept when a target was scraped."""
    for name, _, sources in _scraped_exporters(context.facts):
        jobs = {source.job for source in sources}
        fault = None
        if not jobs & context.facts.jobs_with_up:
            fault = Fault(
                f"up of job {first_few(jobs)} is not kept: how much of an hour was seen is read off the densest series",
                "write_relabel_configs (and those of agents): regex: up|… where they keep by name",
            )
        yield context.check(f"up of {name}", "up", "recommended", fault, status="missing" if fault else "found")


def intervals(context: CheckContext) -> Iterable[Check]:
    """Scrape intervals that differ between instances of an exporter, or are too long."""
    for name, metric, sources in _scraped_exporters(context.facts):
        known = {source: context.facts.intervals[source] for source in sources if source in context.facts.intervals}
        if not known:
            continue
        shortest, longest = min(known.values()), max(known.values())
        fault, note = None, None
        if longest > _LONG_INTERVAL:
            lost = f"{name} is scraped every {longest:f} s: pods that live shorter are not seen"
            fault = Fault(lost, f"scrape configuration of {name}: interval: 60s")
        elif longest > shortest * _SIMILAR_INTERVALS:
            slow = first_few(source.instance for source, interval in known.items() if interval == longest)
            note = (
                f"instances are scraped every {shortest:f} to {longest:f} s ({slow}): each is read by its own interval"
            )
        severity: Severity = "recommended" if fault else "optional"
        yield context.check(f"scrape interval of {name}", metric, severity, fault, note=note, series=len(known))


def requests(context: CheckContext) -> Iterable[Check]:
    """What GPUs were asked for, and whether pods can be told apart."""
    facts = context.facts
    if not facts.has(REQUESTS):
        return
    count = sum(facts.resources.values())
    none = f"no pod on a node asked for a GPU (resource=~{GPU_RESOURCES}): its hours cost nothing but free GPUs"
    yield context.check("GPU requests", REQUESTS, "recommended", note=None if count else none, series=count)
    if any(not one.uid for one in facts.holders):
        fault = Fault(
            "requests carry no uid: a pod that comes back under its name is taken for the same one",
            "kube-state-metrics: version 2.0 or later, and no labeldrop of uid",
        )
        yield context.check("uid of pods", REQUESTS, "recommended", fault, series=count)
    unread = [name for name in facts.resources if not _is_read(name)]
    if unread:
        fault = Fault(
            f"requests of {first_few(unread)} are not read: their pods cost nothing",
            "NVIDIA device plugin, resources: nvidia.com/gpu, nvidia.com/gpu.shared or nvidia.com/mig-*",
        )
        series = sum(facts.resources[name] for name in unread)
        yield context.check("resource names", REQUESTS, "recommended", fault, series=series)


def _is_read(resource: str) -> bool:
    whole = {"nvidia_com_gpu", "nvidia_com_gpu_shared"}
    return resource in whole or resource.startswith(("nvidia_com_mig_", "aws_amazon_com_neuron"))


def _label_values(rows: Sequence[Mapping[str, str]]) -> str:
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).add(value)
    told = [f"{name} is {first_few(found)}" for name, found in sorted(values.items())]
    return "; ".join(told) or "they carry no such label"


def _selector_line(context: CheckContext, rows: Sequence[Mapping[str, str]]) -> str:
    """The settings' line, or the exporter's where its series carry no such label."""
    own = context.cluster.selector
    for row in rows:
        same = {name: row[name] for name in own if name in row}
        if len(same) == len(own):
            written = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(same.items()))
            return f"settings, cluster {context.cluster.name}: selector: {{{written}}}"
    labels = ", ".join(f"{name}: {quote(value)}" for name, value in sorted(own.items()))
    return f"Prometheus: external_labels: {{{labels}}} (or remove selector from the settings)"
