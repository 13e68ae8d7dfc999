"""Inference servers whose counters say how many tokens they processed: their metrics by kind, and what they served.

| server | read from |
| --- | --- |
| vllm | vllm-project/vllm `vllm/v1/metrics/loggers.py`, 0.8 to 0.28; cached tokens since PR 33290 (2026-02) |
| sglang | sgl-project/sglang, its page on production metrics and its metrics collector, 0.4 to 0.5 |
| tgi | huggingface/text-generation-inference 3.3.7 `router/src/server.rs` |
| nim | NVIDIA NIM for LLMs 1.x, observability |
| triton | triton-inference-server/server `docs/user_guide/metrics.md`, 2.54 and later: it counts no tokens |
| trtllm | NVIDIA/TensorRT-LLM `tensorrt_llm/metrics/collector.py`, 1.3.0rc: tokens since PR 12545 and 12636 (2026-04) |
| dynamo | ai-dynamo/dynamo `lib/llm/src/http/service/metrics.rs`, 1.2: the frontend |

The histograms of the latency of whole requests, queue times and batch sizes are from the same files; SGLang's are in
its metrics collector (`python/sglang/srt/observability/metrics_collector.py`, until 0.5.8 `srt/metrics/collector.py`),
TGI's in `docs/source/reference/metrics.md`. They have the labels of the counters, and those of latency have `le`.

llm-d runs vLLM. The workers of NVIDIA Dynamo expose the metrics of vLLM, SGLang or TensorRT-LLM. The frontend counts
the same tokens again, so it counts only in pods with GPUs in which nothing else does.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, Self

from msgspec import Struct

CounterKind = Literal["prompt", "generated", "cached", "requests"]
"""What a counter counts: prompt tokens (with the cached ones), generated tokens, prompt tokens from a cache, requests.
"""


class MeanOfCounters(Struct, frozen=True):
    """A mean: the increase of one counter divided by that of another."""

    total: str
    count: str
    unit: Decimal = Decimal(1)
    """What 1 of the total stands for."""

    @classmethod
    def of_histogram(cls, name: str) -> Self:
        """The mean of a histogram, named without a suffix."""
        return cls(f"{name}_sum", f"{name}_count")


class InferenceServer(Struct, frozen=True):
    """The counters of an inference server, and the label that names the model."""

    name: str
    counters: Mapping[CounterKind, str]
    """The metric of each kind. Series that differ in other labels, such as the finish reason, are added up."""
    model_label: str = ""
    """"" if the server does not say which model it serves: then the model is named like the workload."""
    latency: str = ""
    """The histogram of the latency of whole requests in seconds, without `_bucket`; "" if it has none."""
    queue_time: MeanOfCounters | None = None
    """Seconds that a request waits until the server processes it; None if it does not say so."""
    batch_size: str | MeanOfCounters = ""
    """Requests that it processes at the same time: a gauge, or inferences per execution; "" if it does not say so."""
    rank_labels: tuple[str, ...] = ()
    """Labels of processes of the server that each report its whole batch."""
    is_frontend: bool = False
    """Whether it passes requests on to other servers, whose counters say the same."""
    consumer_label: str = ""
    """The label that names who sent the requests; "" if the settings name none."""
    no_consumer: str = ""
    """The label's value for requests that name none."""

    def kind_of(self, metric: str) -> CounterKind | None:
        """What a metric counts; None if it is not one of the server's."""
        return next((kind for kind, name in self.counters.items() if name == metric), None)


def counters_by_kind(
    prompt: str | None = None, generated: str | None = None, cached: str | None = None, requests: str | None = None
) -> Mapping[CounterKind, str]:
    """The metrics that are named, by what they count."""
    metrics: dict[CounterKind, str | None] = {
        "prompt": prompt,
        "generated": generated,
        "cached": cached,
        "requests": requests,
    }
    return MappingProxyType({kind: metric for kind, metric in metrics.items() if metric is not None})


INFERENCE_SERVERS = (
    InferenceServer(
        "vllm",
        counters_by_kind(
            prompt="vllm:prompt_tokens_total",
            generated="vllm:generation_tokens_total",
            # Not prefix_cache_hits: vLLM counts a request there each time that it is considered for a batch.
            cached="vllm:prompt_tokens_cached_total",
            requests="vllm:request_success_total",
        ),
        "model_name",
        latency="vllm:e2e_request_latency_seconds",
        queue_time=MeanOfCounters.of_histogram("vllm:request_queue_time_seconds"),
        batch_size="vllm:num_requests_running",
    ),
    InferenceServer(
        "sglang",
        counters_by_kind(
            prompt="sglang:prompt_tokens_total",
            generated="sglang:generation_tokens_total",
            cached="sglang:cached_tokens_total",
            requests="sglang:num_requests_total",
        ),
        "model_name",
        latency="sglang:e2e_request_latency_seconds",
        queue_time=MeanOfCounters.of_histogram("sglang:queue_time_seconds"),
        batch_size="sglang:num_running_reqs",
        # With --enable-metrics-for-all-schedulers. `dp_rank` is not one of them: those have batches of their own.
        rank_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
    ),
    InferenceServer(
        "tgi",
        counters_by_kind(
            prompt="tgi_request_input_length_sum",
            generated="tgi_request_generated_tokens_sum",
            requests="tgi_request_success",
        ),
        latency="tgi_request_duration",
        queue_time=MeanOfCounters.of_histogram("tgi_request_queue_duration"),
        batch_size="tgi_batch_current_size",
    ),
    InferenceServer(
        "nim",
        counters_by_kind(
            prompt="prompt_tokens_total", generated="generation_tokens_total", requests="request_success_total"
        ),
        "model_name",
        latency="e2e_request_latency_seconds",
        batch_size="num_requests_running",
    ),
    InferenceServer(
        "triton",
        counters_by_kind(requests="nv_inference_request_success"),
        "model",
        queue_time=MeanOfCounters(
            "nv_inference_queue_duration_us", "nv_inference_request_success", unit=Decimal("0.000001")
        ),
        batch_size=MeanOfCounters("nv_inference_count", "nv_inference_exec_count"),
    ),
    # Its counters increase when a request ends.
    InferenceServer(
        "trtllm",
        counters_by_kind(
            prompt="trtllm_prompt_tokens_total",
            generated="trtllm_generation_tokens_total",
            cached="trtllm_prompt_cached_tokens_total",
            requests="trtllm_request_success_total",
        ),
        "model_name",
        latency="trtllm_e2e_request_latency_seconds",
        queue_time=MeanOfCounters.of_histogram("trtllm_request_queue_time_seconds"),
        batch_size="trtllm_num_requests_running",
    ),
    InferenceServer(
        "dynamo",
        counters_by_kind(
            prompt="dynamo_frontend_input_sequence_tokens_sum",
            generated="dynamo_frontend_output_sequence_tokens_sum",
            cached="dynamo_frontend_cached_tokens_sum",
            # Not requests_total, which counts refused requests, too.
            requests="dynamo_frontend_output_sequence_tokens_count",
        ),
        "model",
        latency="dynamo_frontend_request_duration_seconds",
        is_frontend=True,
    ),
)


GATEWAYS = (
    # llm-d/llm-d-router pkg/epp/metrics/llm_d_router_metrics.go, 0.9: the endpoint picker, which came from the Gateway
    # API inference extension. `fairness_id` is the header x-llm-d-inference-fairness-id.
    # Without it, it is `default-flow` (pkg/epp/metadata/consts.go).
    InferenceServer(
        "llm-d-router",
        counters_by_kind(
            prompt="llm_d_epp_request_input_tokens_sum",
            generated="llm_d_epp_request_output_tokens_sum",
            cached="llm_d_epp_request_cached_tokens_sum",
            requests="llm_d_epp_request_total",
        ),
        "target_model_name",
        consumer_label="fairness_id",
        no_consumer="default-flow",
    ),
    # kubernetes-sigs/gateway-api-inference-extension pkg/epp/metrics/metrics.go, 1.5, the last version with it. It has
    # no label of a tenant; `model_name` is the model as the client named it, before it is rewritten.
    InferenceServer(
        "inference-extension",
        counters_by_kind(
            prompt="inference_objective_input_tokens_sum",
            generated="inference_objective_output_tokens_sum",
            cached="inference_objective_prompt_cached_tokens_sum",
            requests="inference_objective_request_total",
        ),
        "target_model_name",
        consumer_label="model_name",
    ),
)
"""Gateways in front of inference servers. They do not know which pod processed a token, but who sent the request."""


def latency_metrics(servers: Iterable[InferenceServer]) -> list[str]:
    """The names of the series of latency histograms that are read."""
    histograms = dict.fromkeys(server.latency for server in servers if server.latency)
    return [f"{histogram}{suffix}" for histogram in histograms for suffix in ("_bucket", "_count")]


def load_metrics(servers: Iterable[InferenceServer]) -> list[str]:
    """The names of the metrics of queue times and batch sizes."""
    names: list[str] = []
    for server in servers:
        for source in (server.queue_time, server.batch_size):
            if isinstance(source, MeanOfCounters):
                names += [source.total, source.count]
            elif source:
                names.append(source)
    return list(dict.fromkeys(names))


def metrics_of_servers(servers: Iterable[InferenceServer]) -> list[str]:
    """The names of all counters, each once."""
    return list(dict.fromkeys(metric for server in servers for metric in server.counters.values()))


class ServedTokens(Struct, frozen=True):
    """What one server in a pod processed for one model and consumer in the hour. None is unknown, never zero."""

    namespace: str
    pod: str
    server: str
    model: str
    """"" if the server does not name it."""
    prompt: int | None = None
    """Prompt tokens, with the cached ones."""
    generated: int | None = None
    cached: int | None = None
    """Prompt tokens that came from a cache."""
    requests: int | None = None
    consumer: str = ""
    """Who sent the requests, as the server's label names it; "" if unknown."""

    @property
    def has_tokens(self) -> bool:
        """Whether its tokens are known."""
        return self.prompt is not None and self.generated is not None


# Bounds the names of models and consumers, which any pod with counters may invent.
#
# Names beyond the bounds count together under one name, so that no tokens and no costs are lost.

OTHERS = "(others)"
MAX_LENGTH = 200
"""Characters of a name. A path of a model on a disk is shorter."""
MAX_NAMES_OF_POD = 50
"""Models of a pod, and consumers of its models, that are named."""
MAX_NAMES_OF_UNIT = 500
"""Models of a business unit, and its consumers, that are named in an hour."""


def bounded_names(weights: Iterable[tuple[str, int]], count: int) -> Mapping[str, str] | None:
    """Return the name that each name counts under; None if all of them are within the bounds.

    Args:
        weights: names with what they count for; those with the largest sums keep their name.
        count: how many keep their name.
    """
    sums: dict[str, int] = {}
    for name, weight in weights:
        sums[name] = sums.get(name, 0) + weight
    short = [name for name in sums if len(name) <= MAX_LENGTH]
    if len(short) == len(sums) <= count:
        return None
    kept = set(sorted(short, key=lambda name: (-sums[name], name))[:count])
    return {name: name if name in kept else OTHERS for name in sums}
