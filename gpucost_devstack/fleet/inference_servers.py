"""Counters of inference servers for a scenario, with the names and labels of each server, and the true tokens.

Names and labels are those of vllm-project/vllm `vllm/v1/metrics/loggers.py` (0.8 to 0.28), sgl-project/sglang 0.5
(production metrics), huggingface/text-generation-inference 3.3.7 `router/src/server.rs`, NVIDIA NIM for LLMs 1.x
(observability), triton-inference-server/server 2.54 `docs/user_guide/metrics.md`, NVIDIA/TensorRT-LLM 1.3.0rc
`tensorrt_llm/metrics/collector.py`, ai-dynamo/dynamo 1.2 `lib/llm/src/http/service/metrics.rs`. Those of gateways are
of llm-d/llm-d-router 0.9 `pkg/epp/metrics/llm_d_router_metrics.go` and
kubernetes-sigs/gateway-api-inference-extension 1.5 `pkg/epp/metrics/metrics.go`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import count

from gpucost_devstack.fleet.scenario import InferenceServer, Interval, Minutes, ModelLoad, Pod, Scenario
from gpucost_devstack.fleet.scraping import MINUTE_MS, Scraping
from gpucost_devstack.fleet.series import SimulatedSeries
from gpucost_devstack.fleet.truth import ToleratedAmount, true_hour

KINDS = ("prompt", "generated", "cached", "requests")
_METRICS: Mapping[str, Mapping[str, Sequence[tuple[str, Mapping[str, str], Fraction | int]]]] = {
    "vllm": {
        "prompt": [("vllm:prompt_tokens_total", {"engine": "0"}, 1)],
        "generated": [("vllm:generation_tokens_total", {"engine": "0"}, 1)],
        "cached": [("vllm:prompt_tokens_cached_total", {"engine": "0"}, 1)],
        "requests": [
            ("vllm:request_success_total", {"engine": "0", "finished_reason": reason}, part)
            for reason, part in {"stop": Fraction(3, 4), "length": Fraction(1, 4), "abort": Fraction(0)}.items()
        ],
    },
    "sglang": {
        "prompt": [
            ("sglang:prompt_tokens_total", {"is_streaming": text}, Fraction(1, 2)) for text in ("true", "false")
        ],
        "generated": [("sglang:generation_tokens_total", {"is_streaming": "true"}, 1)],
        "cached": [
            ("sglang:cached_tokens_total", {"cache_source": source}, Fraction(1, 2)) for source in ("device", "host")
        ],
        "requests": [("sglang:num_requests_total", {"is_streaming": "true"}, 1)],
    },
    "tgi": {
        "prompt": [("tgi_request_input_length_sum", {}, 1)],
        "generated": [("tgi_request_generated_tokens_sum", {}, 1)],
        "requests": [("tgi_request_success", {}, 1)],
    },
    "nim": {
        "prompt": [("prompt_tokens_total", {}, 1)],
        "generated": [("generation_tokens_total", {}, 1)],
        "requests": [("request_success_total", {}, 1)],
    },
    "triton": {"requests": [("nv_inference_request_success", {"version": "1"}, 1)]},
    "trtllm": {
        "prompt": [("trtllm_prompt_tokens_total", {"engine_type": "trtllm"}, 1)],
        "generated": [("trtllm_generation_tokens_total", {"engine_type": "trtllm"}, 1)],
        "cached": [("trtllm_prompt_cached_tokens_total", {"engine_type": "trtllm"}, 1)],
        "requests": [
            ("trtllm_request_success_total", {"engine_type": "trtllm", "finished_reason": reason}, Fraction(1, 2))
            for reason in ("stop", "length")
        ],
    },
    "dynamo": {
        "prompt": [("dynamo_frontend_input_sequence_tokens_sum", {}, 1)],
        "generated": [("dynamo_frontend_output_sequence_tokens_sum", {}, 1)],
        "cached": [("dynamo_frontend_cached_tokens_sum", {}, 1)],
        "requests": [("dynamo_frontend_output_sequence_tokens_count", {}, 1)],
    },
}
_GATEWAY_METRICS: Mapping[str, Mapping[str, str]] = {
    "llm-d-router": {
        "prompt": "llm_d_epp_request_input_tokens_sum",
        "generated": "llm_d_epp_request_output_tokens_sum",
        "cached": "llm_d_epp_request_cached_tokens_sum",
        "requests": "llm_d_epp_request_total",
    },
    "inference-extension": {
        "prompt": "inference_objective_input_tokens_sum",
        "generated": "inference_objective_output_tokens_sum",
        "cached": "inference_objective_prompt_cached_tokens_sum",
        "requests": "inference_objective_request_total",
    },
}
_MODEL_LABELS = {
    "vllm": "model_name",
    "sglang": "model_name",
    "nim": "model_name",
    "triton": "model",
    "trtllm": "model_name",
    "dynamo": "model",
}
_RANKS = ({"tp_rank": "0", "pp_rank": "0"}, {"tp_rank": "1", "pp_rank": "0"})
"""Of one engine; each reports all of its requests (SGLang with --enable-metrics-for-all-schedulers)."""
QUEUE_SECONDS_PER_REQUEST = Fraction(1, 4)
INFERENCES_PER_EXECUTION = 4
"""Of Triton. Other servers process as many requests at the same time as they get in a minute."""
_LOADS: Mapping[str, Sequence[tuple[str, Mapping[str, str], str, Fraction | int]]] = {
    "vllm": [
        ("vllm:request_queue_time_seconds_sum", {"engine": "0"}, "waited", 1),
        ("vllm:request_queue_time_seconds_count", {"engine": "0"}, "requests", 1),
        ("vllm:num_requests_running", {"engine": "0"}, "running", 1),
    ],
    "sglang": [
        (metric, {"engine_type": "unified", **ranks}, kind, 1)
        for ranks in _RANKS
        for metric, kind in (
            ("sglang:queue_time_seconds_sum", "waited"),
            ("sglang:queue_time_seconds_count", "requests"),
            ("sglang:num_running_reqs", "running"),
        )
    ],
    "tgi": [
        ("tgi_request_queue_duration_sum", {}, "waited", 1),
        ("tgi_request_queue_duration_count", {}, "requests", 1),
        ("tgi_batch_current_size", {}, "running", 1),
    ],
    "nim": [("num_requests_running", {}, "running", 1)],
    "triton": [
        ("nv_inference_queue_duration_us", {"version": "1"}, "waited", 10**6),
        ("nv_inference_count", {"version": "1"}, "requests", 1),
        ("nv_inference_exec_count", {"version": "1"}, "requests", Fraction(1, INFERENCES_PER_EXECUTION)),
    ],
    "trtllm": [
        ("trtllm_request_queue_time_seconds_sum", {"engine_type": "trtllm"}, "waited", 1),
        ("trtllm_request_queue_time_seconds_count", {"engine_type": "trtllm"}, "requests", 1),
        ("trtllm_num_requests_running", {"engine_type": "trtllm"}, "running", 1),
    ],
}
"""Metrics of queues and batches, each with its labels, what it reports, and the factor."""
_APPEARS_WITH_FIRST_REQUEST = {"tgi", "trtllm", "dynamo"}
"""Servers whose metrics do not exist before the first request."""
_EXISTS_BEFORE = {"trtllm_prompt_cached_tokens_total"}
"""Except these."""
WEIGHTS = {"prompt": Fraction(1), "generated": Fraction(5), "cached": Fraction(1, 10)}
"""The truth: default weights of tokens. Cached tokens are a part of the prompt tokens."""


def targets(scenario: Scenario) -> Iterator[tuple[InferenceServer, Scraping]]:
    """Each server's targets: one for each job that scrapes it."""
    for number, server in enumerate(scenario.servers):
        for job, offset in server.jobs.items():
            yield (
                server,
                replace(
                    server.scraping,
                    job=job,
                    instance=server.scraping.instance or f"10.1.0.{number}:{server.port}",
                    offset_seconds=Fraction(server.scraping.offset_seconds) + offset,
                    lifetime=(server.scraped_from, server.pod.released_at),
                ),
            )


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """All series of all targets, and `up`."""
    for server, scraping in targets(scenario):
        target_labels = _target_labels(server, scraping)
        attempts = scraping.times(scenario.start, scenario.end)
        minutes = {at: _minute(at) for at in attempts}
        starts = _process_starts(scenario, server, scraping)
        yield SimulatedSeries("up", target_labels, [(at, "1" if at in starts else "0") for at in attempts])
        by_labels: dict[tuple[str, str], list[ModelLoad]] = {}
        for load in server.loads:
            by_labels.setdefault((load.model, load.consumer if server.consumer_label else ""), []).append(load)
        for (model, consumer), loads in by_labels.items():
            for kind, metrics in _METRICS[server.kind].items():
                of_model = {_MODEL_LABELS[server.kind]: model} if server.kind in _MODEL_LABELS else {}
                if consumer:
                    of_model[server.consumer_label] = consumer
                if not metric_is_kept(server, kind):
                    continue
                before = {start: _served_until(loads, kind, start) for start in {*starts.values()}}
                counts = [(at, _served_until(loads, kind, minutes[at]) - before[start]) for at, start in starts.items()]
                for metric, labels, part in metrics:
                    is_late = server.kind in _APPEARS_WITH_FIRST_REQUEST and metric not in _EXISTS_BEFORE
                    exists_at_once = not (is_late or consumer)
                    samples = [(at, str(int(count * part))) for at, count in counts if count or exists_at_once]
                    yield SimulatedSeries(metric, {**target_labels, **labels, **of_model}, samples)


def _minute(at: int) -> Fraction | int:
    return Fraction(at, MINUTE_MS) if at % MINUTE_MS else at // MINUTE_MS


def _target_labels(server: InferenceServer, scraping: Scraping) -> dict[str, str]:
    return {
        "job": scraping.job,
        "instance": scraping.instance,
        server.namespace_label: server.pod.namespace,
        server.pod_label: server.pod.name,
        "container": "server",
        "endpoint": scraping.job[-4:],
    }


def _process_starts(scenario: Scenario, server: InferenceServer, scraping: Scraping) -> dict[int, Minutes]:
    """When the process that answers a scrape started, by the time of the scrape."""
    attempts = scraping.times(scenario.start, scenario.end)
    processes = {at: server.process_at(_minute(at)) for at in attempts if scraping.succeeds(at)}
    return {at: process[0] for at, process in processes.items() if process}


def _served_until(loads: Sequence[ModelLoad], kind: str, minute: Minutes) -> Fraction | int:
    """What all loads have served until a time."""
    return sum(load.served_until(kind, minute) for load in loads)


def load_series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """Times in the queue and batch sizes of all servers."""
    for server, scraping in targets(scenario):
        labels_of_target = _target_labels(server, scraping)
        starts = _process_starts(scenario, server, scraping)
        for model in dict.fromkeys(load.model for load in server.loads):
            loads = [load for load in server.loads if load.model == model]
            of_model = {_MODEL_LABELS[server.kind]: model} if server.kind in _MODEL_LABELS else {}
            figures: dict[str, list[tuple[int, Fraction | int]]] = {"requests": [], "waited": [], "running": []}
            before = {start: _served_until(loads, "requests", start) for start in {*starts.values()}}
            for at, start in starts.items():
                minute = _minute(at)
                until = _served_until(loads, "requests", minute)
                requests = until - before[start]
                figures["requests"].append((at, requests))
                figures["waited"].append((at, requests * QUEUE_SECONDS_PER_REQUEST))
                figures["running"].append((at, until - _served_until(loads, "requests", minute - 1)))
            for metric, labels, kind, factor in _LOADS.get(server.kind, ()):
                is_late = server.kind in _APPEARS_WITH_FIRST_REQUEST
                samples = [
                    (at, str(float(figure * factor)))
                    for (at, figure), (_, requests) in zip(figures[kind], figures["requests"], strict=True)
                    if requests or not is_late
                ]
                yield SimulatedSeries(metric, {**labels_of_target, **labels, **of_model}, samples)


def gateway_series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """All series of all gateways, and `up`. Counters begin with the first request of their model and consumer."""
    for number, gateway in enumerate(scenario.gateways):
        lifetime = gateway.processes[0][0], gateway.processes[-1][1]
        scraping = replace(gateway.scraping, job="gateways", instance=f"10.2.0.{number}:9090", lifetime=lifetime)
        target_labels = {
            "job": scraping.job,
            "instance": scraping.instance,
            "namespace": gateway.namespace,
            "pod": gateway.pod,
        }
        attempts = scraping.times(scenario.start, scenario.end)
        running = {
            at: process
            for at in attempts
            for process in gateway.processes
            if scraping.succeeds(at) and process[0] <= Fraction(at, MINUTE_MS) < process[1]
        }
        yield SimulatedSeries("up", target_labels, [(at, "1" if at in running else "0") for at in attempts])
        for load in gateway.loads:
            labels = {"target_model_name": load.model, "model_name": load.consumer, "priority": "0"}
            if gateway.kind == "llm-d-router":
                labels |= {"model_name": load.model, "fairness_id": load.consumer}
            for kind, metric in _GATEWAY_METRICS[gateway.kind].items():
                counts = {
                    at: load.served(kind, (process[0], Fraction(at, MINUTE_MS))) for at, process in running.items()
                }
                of_kind = {name: text for name, text in labels.items() if name != "priority" or kind == "requests"}
                yield SimulatedSeries(
                    metric,
                    {**target_labels, **of_kind},
                    [(at, str(int(count))) for at, count in sorted(counts.items()) if count],
                )


def metric_is_kept(server: InferenceServer, kind: str) -> bool:
    """Whether a kind of counter is exposed and stored."""
    return kind not in server.missing_kinds


@dataclass
class TrueModel:
    """The truth of one model of one workload in an hour. Unknown counts are None."""

    gpu_hours: ToleratedAmount = field(default_factory=lambda: ToleratedAmount(Fraction(0), Fraction(0)))
    counts: dict[str, ToleratedAmount | None] = field(default_factory=dict)


TrueKey = tuple[str, str, str, str, str]
"""Namespace, workload, server, model and the business unit that used it; "" for what is unknown or does not apply."""


def true_models(scenario: Scenario, number: int) -> dict[TrueKey, TrueModel]:
    """The true GPU-hours and tokens of all models, by the number of an hour from the base.

    Tokens that a server processes between its last scrape and its end are in no counter: the tolerance.
    """
    hour = (60 * number, 60 * number + 60)
    models: dict[TrueKey, TrueModel] = {}
    servers_of_pod: dict[str, list[InferenceServer]] = {}
    for server in scenario.servers if "enabled: true" in scenario.settings else ():
        if not server.counts_again:
            servers_of_pod.setdefault(server.pod.id, []).append(server)
    lines = true_hour(scenario, number).lines
    group_of_pod = {member: name for name, members in scenario.server_groups.items() for member in members}
    groups: dict[str, list[object]] = {}
    for line in lines:
        groups.setdefault(group_of_pod.get(line.pod.name, line.pod.id), []).append(line)
    if not any(line.pod.id in servers_of_pod for line in lines):
        return {}
    for members in groups.values():
        pods = {line.pod.id: line.pod for line in members}  # type: ignore[attr-defined]
        servers = [server for pod_id in pods for server in servers_of_pod.get(pod_id, ())]
        gpu_hours = {line.pod.id: line.allocated_gpu_hours for line in members}  # type: ignore[attr-defined]
        _add_group(models, pods, servers, gpu_hours, hour, number)
    return models


def _add_group(
    models: dict[TrueKey, TrueModel],
    pods: Mapping[str, Pod],
    servers: Sequence[InferenceServer],
    gpu_hours: Mapping[str, ToleratedAmount],
    hour: Interval,
    number: int,
) -> None:
    is_unknown = not servers or any(number in server.unknown_hours for server in servers)
    has_tokens = all(metric_is_kept(server, "generated") and server.kind != "triton" for server in servers)
    all_hours = sum((amount.value for amount in gpu_hours.values()), Fraction(0))
    parts = [(server, load) for server in servers for load in _used_loads(server, hour)]
    weights = [_weight(server, load, hour, has_tokens=has_tokens) for server, load in parts]
    if not any(weights):
        weights = [Fraction(1)] * len(parts)
    for pod_id, pod in pods.items():
        workload = pod.owners[-1][1] if pod.owners else pod.name
        if is_unknown:
            key = (pod.namespace, workload, servers[0].kind if servers else "", "", "")
            row = models.setdefault(key, TrueModel(counts=dict.fromkeys(KINDS)))
            row.gpu_hours += gpu_hours[pod_id]
            continue
        for (server, load), weight in zip(parts, weights, strict=True):
            model = load.model if server.kind in _MODEL_LABELS else workload
            row = models.setdefault((pod.namespace, workload, server.kind, model, load.used_by), TrueModel())
            part = weight / sum(weights)
            slack = server.tolerance_of_split if len(parts) > 1 else Fraction(0)
            held = gpu_hours[pod_id]
            row.gpu_hours += ToleratedAmount(held.value * part, held.tolerance + held.value * slack)
            for kind in KINDS:
                is_counted = kind in _METRICS[server.kind] and metric_is_kept(server, kind)
                if kind != "requests" and not has_tokens:
                    is_counted = False
                true = _true_count(server, load, kind, hour) if kind in server.counted_kinds else None
                share = Fraction(held.value, all_hours) if all_hours else Fraction(1, len(pods))
                before = row.counts.get(kind, ToleratedAmount(Fraction(0), Fraction(0)))
                if not is_counted or before is None:
                    row.counts[kind] = None
                elif true is None:
                    row.counts[kind] = before
                else:
                    rounding = Fraction(1) + held.tolerance * true.value
                    row.counts[kind] = before + ToleratedAmount(
                        true.value * share, true.tolerance + (rounding if len(pods) > 1 else 0)
                    )


def _used_loads(server: InferenceServer, hour: Interval) -> list[ModelLoad]:
    """A server's loads in an hour. A model that was not called has one, of no consumer."""
    by_model: dict[str, list[ModelLoad]] = {}
    for load in server.loads:
        by_model.setdefault(load.model, []).append(load)
    loads = []
    for of_model in by_model.values():
        used = [load for load in of_model if any(_true_count(server, load, kind, hour).value for kind in KINDS)]
        loads += used or [replace(of_model[0], consumer="", used_by="")]
    return loads


def _weight(server: InferenceServer, load: ModelLoad, hour: Interval, *, has_tokens: bool) -> Fraction:
    counts = {kind: _true_count(server, load, kind, hour).value for kind in KINDS}
    if not has_tokens:
        return counts["requests"]
    cached = counts["cached"] if metric_is_kept(server, "cached") and "cached" in _METRICS[server.kind] else Fraction(0)
    return (
        (counts["prompt"] - cached) * WEIGHTS["prompt"]
        + cached * WEIGHTS["cached"]
        + counts["generated"] * WEIGHTS["generated"]
    )


def _true_count(server: InferenceServer, load: ModelLoad, kind: str, hour: Interval) -> ToleratedAmount:
    served, lost = Fraction(0), Fraction(0)
    interval = server.scraping.longest_interval_minutes + Fraction(max(server.jobs.values()), 60)
    for start, end in server.processes:
        during = (max(start, hour[0]), min(end, hour[1]))
        if during[1] > during[0]:
            served += load.served(kind, during)
        if hour[0] < end <= hour[1]:
            lost += load.served(kind, (max(start, end - interval), end))
    # A counter is read at the last scrape before each edge of the hour, in a process that runs across it.
    at_edges = []
    for edge in hour:
        process = server.process_at(edge)
        age = next(age for age in count() if not any(start <= edge - age < end for start, end in server.scraping.gaps))
        since = edge - max(interval, Fraction(age))
        at_edges.append(Fraction(load.served(kind, (max(process[0], since), edge)) if process else 0))
    return ToleratedAmount(served, lost + abs(at_edges[0] - at_edges[1]) + len(_METRICS[server.kind].get(kind, ())))
