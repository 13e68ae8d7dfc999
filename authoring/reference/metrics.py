"""The reference of metrics: those that gpucost sends to CloudWatch, records in Prometheus, and reads."""

import ast
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from samtranslator.yaml_helper import yaml_parse

from authoring.reference.markdown import code, page, table
from authoring.reference.template import alarms_of, metric_of, runbook_section
from authoring.reference.vendors import vendors_table
from gpucost.core.metering.accelerators import ACCELERATOR_SIGNALS, ACCELERATORS
from gpucost.core.metering.energy import ENERGY_COUNTERS, POWER_GAUGES
from gpucost.core.metering.inference_servers import INFERENCE_SERVERS, MeanOfCounters
from gpucost.core.metering.signals import SIGNALS
from gpucost.runtime.observability import METRICS_NAMESPACE
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.metrics_sources import METRICS_SOURCES, metrics_source_of
from gpucost_cli.doctor.checks.allocation_metrics import METRIC_FAMILIES
from gpucost_cli.doctor.labels import required_labels
from gpucost_cli.manifests import dashboard_metrics, series
from gpucost_cli.rules import documents
from gpucost_devstack.template import REPOSITORY, TEMPLATE

MEANINGS: Mapping[str, str] = {
    "AllocationCoverage": "The share of expected scrapes of pods and nodes that an hour has, from 0 to 1",
    "AttributeSeconds": "Seconds of reading and attributing hours",
    "CapacityUnits": "DynamoDB capacity units that the invocation used",
    "ClustersFailed": "Clusters whose hours could not be checked or sent",
    "ExportDaysLeft": "Days that are due to be exported and are not yet",
    "HoursGivenUp": "Hours that stayed incomplete until the end of their look-back",
    "HoursIncomplete": "Hours whose result is incomplete",
    "HoursOverdue": "Hours that are not complete although they are due",
    "HoursPublished": "Hours that were written with a new result",
    "HoursSent": "Hours that were sent to the queues",
    "HoursToRestate": "Hours that are rated again because prices or settings changed",
    "LagSeconds": "Seconds between the end of an hour and its result",
    "LinesWritten": "Lines (pods in an hour) of the hour",
    "PastPricesChanged": "Prices of past hours that a refresh changed",
    "PriceSourcesFailed": "Price sources that could not be refreshed",
    "PricesChanged": "Prices that a refresh added or changed",
    "PublishSeconds": "Seconds of writing hours to the ledger",
    "Queries": "Queries to Prometheus",
    "SamplesProcessed": "Samples that Prometheus or AMP processed for the queries, as its response reports them",
    "SettingsVersionsUnreadable": "Newer settings documents that cannot be read, so that an older one is in force",
}
"""What each CloudWatch metric counts; a test compares the names with the code."""
ENERGY = [
    *(
        (code(name), f"{'joules' if joules == 1 else 'millijoules'} since the driver was loaded; a counter")
        for name, joules in ENERGY_COUNTERS.items()
    ),
    *((code(name), "watts") for name in POWER_GAUGES),
]
INTRODUCTION = """
## Metrics in CloudWatch

The functions write metrics in the namespace `GpuCost`, in the embedded metric format. Their dimensions are `service` (the function) and `stack`, because CloudWatch charges for every series of a metric. Figures of a cluster are in the functions' logs. [template.md](template.md#alarms) lists the alarms.
"""  # noqa: E501 - one line for each paragraph
RECORDED = """
## Series that recording rules write

`gpucost manifests rules` renders these rules from the settings. Every series has the label `cluster`. [grafana.md](../how-to/grafana.md) explains the labels and the meaning of the series that dashboards use.
"""  # noqa: E501 - one line for each paragraph
READ = """
## Metrics that gpucost reads

`gpucost doctor` says which of these a cluster lacks ([findings](doctor.md)), and `gpucost manifests render` writes relabeling rules that keep only these.

### kube-state-metrics
"""  # noqa: E501 - one line for each paragraph

VENDORS = """
What is not in this table, such as a resource, a DRA driver or a device of another vendor, is named with its amount in the notes of the hour and by `gpucost doctor`. *Resources* are regular expressions.
"""  # noqa: E501 - one line for each paragraph


def metrics_page() -> str:
    """Render the page."""
    template = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))
    alarms = {
        metric: f"[{name}](../how-to/runbook.md#{runbook_section(name)})"
        for name, alarm in alarms_of(template).items()
        for namespace, metric in [metric_of(alarm["Properties"])]
        if namespace == METRICS_NAMESPACE
    }
    emitted = [
        (code(name), ", ".join(code(function) for function in functions), MEANINGS[name], alarms.get(name, ""))
        for name, functions in sorted(emitted_metrics().items())
    ]
    families = [
        (code(family.metric), family.severity, f"Without it, {family.consequence}") for family in METRIC_FAMILIES
    ]
    signals = [
        (
            code(signal.name),
            signal.family,
            f"{signal.scale:f}",
            "yes" if signal.works_under_mig else "no",
            signal.exporter_versions,
        )
        for signal in (*SIGNALS.values(), *ACCELERATOR_SIGNALS)
    ]
    counters = [
        (code(metric), server.name, kind, code(server.model_label) if server.model_label else "")
        for server in INFERENCE_SERVERS
        for kind, metric in server.counters.items()
    ]
    loads = [
        (
            server.name,
            _mean(server.queue_time) if server.queue_time else "",
            code(server.batch_size) if isinstance(server.batch_size, str) else _mean(server.batch_size),
        )
        for server in INFERENCE_SERVERS
        if server.queue_time or server.batch_size
    ]
    histograms = [(code(f"{server.latency}_bucket"), server.name) for server in INFERENCE_SERVERS if server.latency]
    others = [(code(name), (metrics_source_of(name) or "").replace("_", "-")) for name in sorted(other_metrics_read())]
    return page(
        "Metrics",
        "the code that emits, records and reads them",
        INTRODUCTION,
        table(("Metric", "Functions", "Meaning", "Alarm"), emitted),
        RECORDED,
        table(("Series", "By"), [(code(name), name.partition(":")[0].replace("_", " ")) for name in recorded_series()]),
        READ,
        table(("Metric", "Need", "Consequence"), families),
        "### Utilization of GPUs and other accelerators",
        "Any signal of dcgm-exporter can be the settings' `utilization.signal`. Those of others are always read.",
        table(("Metric", "Measures", "Value at full use", "Works on partitions", "Exporter versions"), signals),
        "### Vendors",
        VENDORS,
        vendors_table(),
        "### Energy of GPUs",
        "The [energy](../explanation/energy.md) of a GPU is that of its counter; of its power, if it has no counter.",
        table(("Metric", "Value"), ENERGY),
        "### Inference servers",
        "Read only with `inference: {enabled: true}` in the settings ([inference](../explanation/inference.md)).",
        table(("Metric", "Server", "Counts", "Label of the model"), counters),
        "Recommendations on replicas read the latency of whole requests, and the same histogram's `_count`.",
        table(("Metric", "Server"), histograms),
        "The Grafana dashboard of models shows queue times and batch sizes.",
        table(("Server", "Time in the queue", "Batch size"), loads),
        "### Recommendations and dashboards",
        "Attribution does not need these. Recommendations and Grafana dashboards read them.",
        table(("Metric", "Source"), others),
    )


def _mean(mean: MeanOfCounters) -> str:
    factor = "" if mean.unit == 1 else f" × {mean.unit}"
    return f"{code(mean.total)} ÷ {code(mean.count)}{factor}"


def emitted_metrics() -> dict[str, list[str]]:
    """The names of CloudWatch metrics in the code, each with the functions that emit it."""
    functions: dict[str, set[str]] = {}
    for path in sorted((REPOSITORY / "functions").glob("*/app.py")):
        for name in _names_in_calls(path.read_text(encoding="utf-8"), "add_metric"):
            functions.setdefault(name, set()).add(path.parent.name)
    for path in sorted((REPOSITORY / "layers" / "common" / "gpucost").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "tally" in text:  # counted anywhere, added to the metrics by `attribute`
            for name in (*_names_in_calls(text, "add", "tally"), *_names_in_calls(text, "timed", "tally")):
                functions.setdefault(name, set()).add("attribute")
    return {name: sorted(names) for name, names in functions.items()}


def _names_in_calls(text: str, method: str, receiver: str = "metrics") -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=called, value=ast.Name(id=name)), args=[ast.Constant(value=str() as metric), *_]
            ) if (called, name) == (method, receiver):
                yield metric


def recorded_series() -> list[str]:
    """The names of recorded series, in the order in which they are computed."""
    settings = parse_settings((REPOSITORY / "cluster" / "settings.yaml").read_text(encoding="utf-8"))
    groups = documents.recording_groups(settings, settings.clusters, datetime(2026, 1, 1, tzinfo=UTC))
    return list(dict.fromkeys(rule["record"] for group in groups for rule in group["rules"]))


def other_metrics_read() -> set[str]:
    """The metrics of known exporters that are read and are neither in a cluster's allocation nor signals."""
    settings = parse_settings((REPOSITORY / "cluster" / "settings.yaml").read_text(encoding="utf-8"))
    kept = set(series.kube_state_metrics_families(required_labels(settings), dashboards=True))
    of_accelerators = (series.accelerator_pattern(vendor, dashboards=True) for vendor in ACCELERATORS)
    for pattern in (series.dcgm_exporter_pattern(dashboards=True), *of_accelerators, series.karpenter_pattern()):
        kept |= {name.replace("\\", "") for name in pattern.split("|")}
    kept |= {name for name in dashboard_metrics.queried_metrics() if metrics_source_of(name) in METRICS_SOURCES}
    described = (
        {name.strip("`") for name, _ in ENERGY}
        | {family.metric for family in METRIC_FAMILIES}
        | {*SIGNALS, *(signal.name for signal in ACCELERATOR_SIGNALS)}
    )
    return {name for name in kept - described if re.fullmatch(r"\w+", name)}
