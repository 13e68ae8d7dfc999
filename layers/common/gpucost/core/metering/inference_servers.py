"""Inference servers whose counters say how many tokens they processed: the names of their metrics, by kind.

| server | read from |
| --- | --- |
| vllm | vllm-project/vllm `vllm/v1/metrics/loggers.py`, 0.8 to 0.28; cached tokens since PR 33290 (2026-02) |
| sglang | sgl-project/sglang, its page on production metrics and its metrics collector, 0.4 to 0.5 |
| tgi | huggingface/text-generation-inference 3.3.7 `router/src/server.rs` |
| nim | NVIDIA NIM for LLMs 1.x, observability |
| triton | triton-inference-server/server `docs/user_guide/metrics.md`, 2.54 and later: it counts no tokens |
| trtllm | NVIDIA/TensorRT-LLM `tensorrt_llm/metrics/collector.py`, 1.3.0rc: tokens since PR 12545 and 12636 (2026-04) |
| dynamo | ai-dynamo/dynamo `lib/llm/src/http/service/metrics.rs`, 1.2: the frontend |

The histograms of the latency of whole requests are from the same files; SGLang's is in its metrics collector
(`python/sglang/srt/metrics/collector.py`), TGI's in `docs/source/reference/metrics.md`. They have the labels of the
counters, and `le`.

llm-d runs vLLM. The workers of NVIDIA Dynamo expose the metrics of vLLM, SGLang or TensorRT-LLM. The frontend counts
the same tokens again, so it counts only in pods with GPUs in which nothing else does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

CounterKind = Literal["prompt", "generated", "cached", "requests"]
"""What a counter counts: prompt tokens (with the cached ones), generated tokens, prompt tokens from a cache, requests.
"""


@dataclass(frozen=True, slots=True)
class InferenceServer:
    """The counters of an inference server, and the label that names the model."""

    name: str
    counters: Mapping[CounterKind, str]
    """The metric of each kind. Series that differ in other labels, such as the finish reason, are added up."""
    model_label: str = ""
    """"" if the server does not say which model it serves: then the model is named like the workload."""
    latency: str = ""
    """The histogram of the latency of whole requests in seconds, without `_bucket`; "" if it has none."""
    is_frontend: bool = False
    """Whether it passes requests on to other servers, whose counters say the same."""
    consumer_label: str = ""
    """The label that names who sent the requests; "" if the settings name none."""
    no_consumer: str = ""
    """The label's value for requests that name none."""

    def kind_of(self, metric: str) -> CounterKind | None:
        """What a metric counts; None if it is not one of the server's."""
        return next((kind for kind, name in self.counters.items() if name == metric), None)


def _server(
    name: str, model_label: str, latency: str = "", *, is_frontend: bool = False, **counters: str
) -> InferenceServer:
    return InferenceServer(name, MappingProxyType(counters), model_label, latency, is_frontend)  # type: ignore[arg-type]


INFERENCE_SERVERS = (
    _server(
        "vllm",
        "model_name",
        "vllm:e2e_request_latency_seconds",
        prompt="vllm:prompt_tokens_total",
        generated="vllm:generation_tokens_total",
        # Not prefix_cache_hits: vLLM counts a request there each time that it is considered for a batch.
        cached="vllm:prompt_tokens_cached_total",
        requests="vllm:request_success_total",
    ),
    _server(
        "sglang",
        "model_name",
        "sglang:e2e_request_latency_seconds",
        prompt="sglang:prompt_tokens_total",
        generated="sglang:generation_tokens_total",
        cached="sglang:cached_tokens_total",
        requests="sglang:num_requests_total",
    ),
    _server(
        "tgi",
        "",
        "tgi_request_duration",
        prompt="tgi_request_input_length_sum",
        generated="tgi_request_generated_tokens_sum",
        requests="tgi_request_success",
    ),
    _server(
        "nim",
        "model_name",
        "e2e_request_latency_seconds",
        prompt="prompt_tokens_total",
        generated="generation_tokens_total",
        requests="request_success_total",
    ),
    _server("triton", "model", requests="nv_inference_request_success"),
    # Its counters increase when a request ends.
    _server(
        "trtllm",
        "model_name",
        "trtllm_e2e_request_latency_seconds",
        prompt="trtllm_prompt_tokens_total",
        generated="trtllm_generation_tokens_total",
        cached="trtllm_prompt_cached_tokens_total",
        requests="trtllm_request_success_total",
    ),
    _server(
        "dynamo",
        "model",
        "dynamo_frontend_request_duration_seconds",
        is_frontend=True,
        prompt="dynamo_frontend_input_sequence_tokens_sum",
        generated="dynamo_frontend_output_sequence_tokens_sum",
        cached="dynamo_frontend_cached_tokens_sum",
        # Not requests_total, which counts refused requests, too.
        requests="dynamo_frontend_output_sequence_tokens_count",
    ),
)


GATEWAYS = (
    # llm-d/llm-d-router pkg/epp/metrics/llm_d_router_metrics.go, 0.9: the endpoint picker, which came from the Gateway
    # API inference extension. `fairness_id` is the header x-llm-d-inference-fairness-id.
    # Without it, it is `default-flow` (pkg/epp/metadata/consts.go).
    InferenceServer(
        "llm-d-router",
        MappingProxyType(
            {
                "prompt": "llm_d_epp_request_input_tokens_sum",
                "generated": "llm_d_epp_request_output_tokens_sum",
                "cached": "llm_d_epp_request_cached_tokens_sum",
                "requests": "llm_d_epp_request_total",
            }
        ),
        "target_model_name",
        consumer_label="fairness_id",
        no_consumer="default-flow",
    ),
    # kubernetes-sigs/gateway-api-inference-extension pkg/epp/metrics/metrics.go, 1.5, the last version with it. It has
    # no label of a tenant; `model_name` is the model as the client named it, before it is rewritten.
    InferenceServer(
        "inference-extension",
        MappingProxyType(
            {
                "prompt": "inference_objective_input_tokens_sum",
                "generated": "inference_objective_output_tokens_sum",
                "cached": "inference_objective_prompt_cached_tokens_sum",
                "requests": "inference_objective_request_total",
            }
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


def metrics_of_servers(servers: Iterable[InferenceServer]) -> list[str]:
    """The names of all counters, each once."""
    return list(dict.fromkeys(metric for server in servers for metric in server.counters.values()))
