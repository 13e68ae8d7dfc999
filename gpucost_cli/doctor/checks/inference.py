"""Checks of inference servers: which of them count tokens, and which counters are missing."""

from collections.abc import Iterable

from gpucost.core.metering.inference_servers import InferenceServer, latency_metrics, load_metrics
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, doctor_check

_KINDS = {"prompt": "prompt tokens", "generated": "generated tokens", "cached": "cached tokens", "requests": "requests"}


@doctor_check(
    "the GPU exporter",
    """
inference servers, inference: … | with `inference: {enabled: true}`, no inference server counts tokens, or one lacks a counter ([inference](../explanation/inference.md)) | annotations of the pods or a PodMonitor, or the counter in the relabeling
gateway: … | with `inference.gateway`, its counters have no series, so that the [consumers](../explanation/inference.md#one-server-several-business-units) of models are unknown | scraping of the gateway's pods
latency: … | the server's latency histogram has no series, so that [fewer replicas](../explanation/recommendations.md#replicas-of-inference-servers) are never recommended. Some servers have it after their first request | the histogram's series in the relabeling
load: … | the server's [queue times or batch sizes](metrics.md#inference-servers) have no series, so that the Grafana dashboard of models lacks them | these metrics in the relabeling, as in the rendered files
""",  # noqa: E501 - one line for each row
)
def check_inference_servers(context: CheckContext) -> Iterable[Check]:
    """Check which inference servers' counters are there. They are read only if the settings enable it."""
    settings = context.settings.inference
    if not settings.enabled:
        return
    seen = [server for server in settings.all_servers() if _present(context, server)]
    if not seen:
        fault = Fault(
            "no inference server's counters have series: tokens are unknown",
            "annotate the servers' pods with prometheus.io/scrape and prometheus.io/port, and render the manifests "
            "again; or scrape them with a PodMonitor (SGLang: --enable-metrics); name other servers' counters in "
            "inference.servers of the settings",
        )
        yield context.check(
            "inference servers", _metric(settings.all_servers()[0]), "recommended", fault, status="missing", series=0
        )
    if (gateway := settings.gateway_counters()) is not None:
        yield _check_gateway(context, gateway)
    for server in seen:
        missing = [kind for kind in server.counters if not context.facts.has_series_of_any(server.counters[kind])]
        needed = [_KINDS[kind] for kind in missing if kind != "cached"]
        fault_of_server = None
        if needed:
            fault_of_server = Fault(
                f"{server.name}: {' and '.join(needed)} are not counted, so that unit costs are unknown",
                f"keep {', '.join(server.counters[kind] for kind in missing)} in the relabeling of the scrape",
            )
        elif server.is_frontend:
            note: str | None = (
                f"{server.name} is a frontend: its tokens count only in pods with GPUs. Scrape the servers behind it"
            )
        elif "prompt" not in server.counters:
            note = f"{server.name} counts requests and no tokens"
        else:
            note = f"{server.name} does not count cached tokens" if missing else None
        yield context.check(
            f"inference: {server.name}",
            _metric(server),
            "recommended",
            fault_of_server,
            note=None if fault_of_server else note,
            series=sum(context.facts.series.get(metric, 0) for metric in server.counters.values()),
        )
        if server.latency and not server.is_frontend:
            yield _check_latency(context, server)
        if load_metrics([server]):
            yield _check_load(context, server)


def _check_gateway(context: CheckContext, gateway: InferenceServer) -> Check:
    """Check the counters by which tokens are divided among consumers."""
    fault = None
    if missing := [metric for metric in gateway.counters.values() if not context.facts.has_series_of_any(metric)]:
        fault = Fault(
            f"gateway {gateway.name}: {', '.join(missing)} have no series, so that consumers are unknown",
            "scrape the gateway's pods with the labels of the namespace and pod, and keep these counters "
            "(inference.gateway of the settings)",
        )
    count = sum(context.facts.series.get(metric, 0) for metric in gateway.counters.values())
    return context.check(f"gateway: {gateway.name}", _metric(gateway), "recommended", fault, series=count)


def _check_latency(context: CheckContext, server: InferenceServer) -> Check:
    """Check the histogram without which no replicas are recommended. Some servers have it after their first request."""
    metrics = latency_metrics([server])
    fault = None
    if not all(context.facts.has_series_of_any(metric) for metric in metrics):
        fault = Fault(
            f"{server.name}: no histogram of the latency of requests, so that fewer replicas are never recommended",
            f"keep {' and '.join(metrics)} in the relabeling of the scrape; the rendered manifests do",
        )
    count = sum(context.facts.series.get(metric, 0) for metric in metrics)
    return context.check(f"latency: {server.name}", metrics[0], "optional", fault, series=count)


def _check_load(context: CheckContext, server: InferenceServer) -> Check:
    """Check queue times and batch sizes, which the dashboard of models shows."""
    metrics = load_metrics([server])
    fault = None
    if missing := [metric for metric in metrics if not context.facts.has_series_of_any(metric)]:
        fault = Fault(
            f"{server.name}: queue times or batch sizes are not in Prometheus, so that the dashboard of models lacks "
            "them",
            f"keep {' and '.join(missing)} in the relabeling of the scrape; the rendered manifests do",
        )
    count = sum(context.facts.series.get(metric, 0) for metric in metrics)
    return context.check(f"load: {server.name}", metrics[0], "optional", fault, series=count)


def _present(context: CheckContext, server: InferenceServer) -> bool:
    return context.facts.has_series_of_any(*server.counters.values())


def _metric(server: InferenceServer) -> str:
    return next(iter(server.counters.values()))
