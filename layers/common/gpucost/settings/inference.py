"""The settings of inference servers: whether their counters are read, and what a token costs relative to others."""

from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import Field, model_validator

from gpucost.core.costs_by_model import InferenceRules, TokenWeights
from gpucost.core.metering.inference_servers import (
    GATEWAYS,
    INFERENCE_SERVERS,
    InferenceServer,
    MeanOfCounters,
    counters_by_kind,
    latency_metrics,
    load_metrics,
    metrics_of_servers,
)
from gpucost.settings.metrics_sources import LabelName
from gpucost.settings.section import BOUNDED_DIGITS, Name, Section, Slug, duplicates, matching_pattern

MetricName = Annotated[str, matching_pattern(r"[a-zA-Z_:][a-zA-Z0-9_:]*", "a Prometheus metric's name")]
Weight = Annotated[Decimal, Field(ge=0, le=1000), BOUNDED_DIGITS]
_DEFAULTS = InferenceRules()


class TokenWeightSettings(Section):
    """What a token costs relative to others. The defaults are the ratios of Anthropic's Claude models on Amazon Bedrock
    ($3, $15 and $0.30 per million tokens of Claude Sonnet 4.6)."""

    prompt: Weight = _DEFAULTS.weights.prompt
    """A prompt token that is not from a cache."""
    generated: Weight = _DEFAULTS.weights.generated
    """A generated token."""
    cached: Weight = _DEFAULTS.weights.cached
    """A prompt token from a cache."""

    @model_validator(mode="after")
    def _has_a_weight(self) -> "TokenWeightSettings":
        if not (self.prompt or self.generated):
            raise ValueError("prompt and generated are both 0; at least one must be positive")
        return self


class InferenceServerSettings(Section):
    """The counters of an inference server that gpucost does not know."""

    name: Slug
    """The server's name in reports. A built-in name replaces the built-in server."""
    prompt_tokens: MetricName | None = None
    """Counter of prompt tokens, including the cached ones."""
    generated_tokens: MetricName | None = None
    """Counter of generated tokens."""
    cached_tokens: MetricName | None = None
    """Counter of prompt tokens that came from a cache."""
    requests: MetricName | None = None
    """Counter of requests."""
    request_latency: MetricName | None = None
    """Histogram of the latency of whole requests in seconds, without `_bucket`: for recommendations on replicas."""
    queue_time: MetricName | None = None
    """Histogram of the seconds that requests wait, without `_sum`: for the Grafana dashboard of models."""
    running_requests: MetricName | None = None
    """Gauge of the requests that the server processes at the same time: for the Grafana dashboard of models."""
    model_label: LabelName | None = None
    """The label that names the model. By default the model is named like the workload."""

    @model_validator(mode="after")
    def _counts_something(self) -> "InferenceServerSettings":
        if self.requests is None and (self.prompt_tokens is None or self.generated_tokens is None):
            raise ValueError("prompt_tokens and generated_tokens are required, or requests")
        return self

    def server(self) -> InferenceServer:
        """The server for the catalog."""
        return InferenceServer(
            self.name,
            counters_by_kind(self.prompt_tokens, self.generated_tokens, self.cached_tokens, self.requests),
            self.model_label or "",
            self.request_latency or "",
            queue_time=MeanOfCounters.of_histogram(self.queue_time) if self.queue_time else None,
            batch_size=self.running_requests or "",
        )


class InferenceGatewaySettings(Section):
    """A gateway in front of inference servers, whose counters say who sent the requests. Built-in: llm-d-router (0.9)
    and inference-extension (the endpoint picker of the Gateway API inference extension 1.5)."""

    name: Slug
    """A built-in gateway, or another one, whose counters and labels are then required."""
    prompt_tokens: MetricName | None = None
    """Counter of prompt tokens, including the cached ones."""
    generated_tokens: MetricName | None = None
    """Counter of generated tokens."""
    cached_tokens: MetricName | None = None
    """Counter of prompt tokens that came from a cache."""
    requests: MetricName | None = None
    """Counter of requests."""
    model_label: LabelName | None = None
    """The label that names the model as the servers' counters do. For built-in gateways target_model_name."""
    consumer_label: LabelName | None = None
    """The label that names who sent the requests. For llm-d-router fairness_id; for inference-extension model_name, the
    name by which the client asked for the model."""

    @model_validator(mode="after")
    def _is_built_in_or_complete(self) -> "InferenceGatewaySettings":
        names = [gateway.name for gateway in GATEWAYS]
        if self.name not in names:
            if self.model_label is None or self.consumer_label is None:
                raise ValueError(
                    "model_label and consumer_label are required for a gateway that is not built in. "
                    f"Built in are {', '.join(names)}"
                )
            if self.requests is None and (self.prompt_tokens is None or self.generated_tokens is None):
                raise ValueError("prompt_tokens and generated_tokens are required, or requests")
        return self

    def counters(self) -> InferenceServer:
        """The counters and labels."""
        built_in = next((gateway for gateway in GATEWAYS if gateway.name == self.name), InferenceServer(self.name, {}))
        return InferenceServer(
            self.name,
            MappingProxyType(
                {
                    **built_in.counters,
                    **counters_by_kind(self.prompt_tokens, self.generated_tokens, self.cached_tokens, self.requests),
                }
            ),
            self.model_label or built_in.model_label,
            consumer_label=self.consumer_label or built_in.consumer_label,
            no_consumer=built_in.no_consumer,
        )


class InferenceSettings(Section):
    """Costs of models that inference servers serve: vLLM, SGLang, TGI, NIM, Triton, TensorRT-LLM, and others by
    their counters."""

    enabled: bool = False
    """Whether the counters of inference servers are read: one more query for each hour, and one for each day for
    recommendations."""
    weights: TokenWeightSettings = TokenWeightSettings.model_construct()
    """By which a pod's cost goes to its models, and a model's cost to prompt and generated tokens."""
    servers: Annotated[tuple[InferenceServerSettings, ...], Field(max_length=20)] = ()
    """Servers in addition to the built-in ones."""
    consumer_label: LabelName | None = None
    """The label of the counters that names who sent the requests, such as a team or tenant. The costs of each model are
    then split among them by weighted tokens. `consumers` of `business_units` says which unit a name belongs to."""
    gateway: InferenceGatewaySettings | None = None
    """A gateway in front of the servers that counts tokens by consumer, where the servers do not."""
    namespace_label: LabelName = "namespace"
    """The label of the counters that names the server's namespace."""
    pod_label: LabelName = "pod"
    """The label of the counters that names the server's pod."""
    prefill_workloads: Annotated[tuple[Name, ...], Field(max_length=50)] = _DEFAULTS.prefill_workloads
    """Shell patterns of workloads that compute prompts for others (prefill/decode disaggregation)."""
    decode_workloads: Annotated[tuple[Name, ...], Field(max_length=50)] = _DEFAULTS.decode_workloads
    """Shell patterns of workloads that generate tokens from prompts which others computed."""
    prompt_side: Literal["prefill", "decode"] = _DEFAULTS.prompt_side
    """Which side's prompt tokens count, where a model has both sides in a namespace, because both count each prompt."""

    @model_validator(mode="after")
    def _sources_are_consistent(self) -> "InferenceSettings":
        if repeated := duplicates([server.name for server in self.servers]):
            raise ValueError(f"servers: {min(repeated)!r} is named twice")
        sources = self.all_sources()
        if self.gateway is not None and self.consumer_label is not None:
            raise ValueError("consumer_label and gateway exclude each other; keep the one that counts consumers")
        if repeated := duplicates([source.name for source in sources]):
            raise ValueError(f"gateway: {min(repeated)!r} is the name of a server, too")
        metrics = [metric for source in sources for metric in source.counters.values()]
        if repeated := duplicates(metrics):
            raise ValueError(f"servers: {min(repeated)} is a counter of two servers; replace a server by its name")
        return self

    def all_servers(self) -> tuple[InferenceServer, ...]:
        """The built-in servers and those of the settings."""
        added = {server.name: server.server() for server in self.servers}
        servers = (*(server for server in INFERENCE_SERVERS if server.name not in added), *added.values())
        if self.consumer_label is None:
            return servers
        return tuple(replace(server, consumer_label=self.consumer_label) for server in servers)

    def all_sources(self) -> tuple[InferenceServer, ...]:
        """The servers and the gateway, whose counters are read."""
        gateway = self.gateway_counters()
        return self.all_servers() if gateway is None else (*self.all_servers(), gateway)

    def collected_metrics(self) -> list[str]:
        """The metrics of servers and the gateway that a collector has to keep, each once."""
        if not self.enabled:
            return []
        servers = self.all_servers()
        metrics = [*metrics_of_servers(self.all_sources()), *latency_metrics(servers), *load_metrics(servers)]
        return list(dict.fromkeys(metrics))

    def gateway_counters(self) -> InferenceServer | None:
        """The gateway for the queries."""
        return None if self.gateway is None else self.gateway.counters()

    def rules(self) -> InferenceRules:
        """The rules of attribution."""
        weights = TokenWeights(self.weights.prompt, self.weights.generated, self.weights.cached)
        return InferenceRules(weights, self.prefill_workloads, self.decode_workloads, self.prompt_side)
