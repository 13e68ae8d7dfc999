"""Builds the recording rules of inference servers in one cluster: tokens per second, GPUs and load by model.

The same servers, weights and sides of prefill and decode count as in the ledger's costs by model. A counter that is not
there has no series, so unknown tokens are absent and never 0. Frontends are left out: the ledger counts them only in
pods in which no other server counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpucost.core.metering.inference_servers import CounterKind, InferenceServer, MeanOfCounters
from gpucost.settings.inference import InferenceSettings
from gpucost.sources.prometheus.queries import Queries
from gpucost.sources.prometheus.server_counters import COPY_LABELS
from gpucost_cli.rules.promql import (
    Rule,
    equals,
    first_label,
    glob_to_regex,
    matches,
    recorded_selector,
    single_series,
    with_label,
)

_RATE = "rate({}[5m])"
_MEAN = "avg_over_time({}[5m])"
TOKENS, REQUESTS = "pod_model:gpucost_tokens:rate5m", "pod_model:gpucost_requests:rate5m"
_WEIGHT, _SHARE = "pod_model:gpucost_weight:rate5m", "pod_model:gpucost_share:ratio"
_BATCH = "pod_model:gpucost_batch_size:avg5m"
_TOKEN_KINDS: tuple[CounterKind, ...] = ("prompt", "generated", "cached")
_BY = "namespace, pod, server, model"


@dataclass(frozen=True)
class ModelRules:
    """Builds the rules of one cluster. They query those of its pods.

    Args:
        cluster: name of the cluster, a label of every recorded series.
        queries: builds selectors of its metrics.
        settings: the servers and their weights.
    """

    cluster: str
    queries: Queries
    settings: InferenceSettings

    def rules(self) -> Iterator[Rule]:
        """Yield the rules. Each may query the rules before it."""
        for record, kinds in ((TOKENS, _TOKEN_KINDS), (REQUESTS, ("requests",))):
            if rates := [*self._rates(kinds)]:
                yield Rule(record, " or ".join(rates))
        yield Rule(_WEIGHT, self._weights())
        yield Rule(_SHARE, self._shares())
        yield Rule("model:gpucost_tokens:rate5m", self._sum_by_unit(self._counted_tokens(), "kind"))
        yield Rule("model:gpucost_requests:rate5m", self._sum_by_unit(self._counted_requests()))
        yield Rule("model:gpucost_gpus:sum", self._gpus())
        yield from self._queue_times()
        yield from self._batch_sizes()

    def _rates(self, kinds: Sequence[CounterKind]) -> Iterator[str]:
        for server in self.settings.all_servers():
            for kind in kinds:
                if kind in server.counters and not server.is_frontend:
                    yield with_label(self._by_model(server, server.counters[kind]), "kind", kind)

    def _by_model(self, server: InferenceServer, metric: str, function: str = _RATE) -> str:
        """Return a metric by pod, server and model. Copies of a series count once, and the others are added up."""
        copies = ", ".join((COPY_LABELS, *server.rank_labels))
        figures = f"max without ({copies}) ({function.format(self.queries.series_selector(metric))})"
        for label, name in (
            ("namespace", self.settings.namespace_label),
            ("pod", self.settings.pod_label),
            ("model", server.model_label),
        ):
            if name and name != label:
                figures = first_label(figures, label, (name,))
        by = "namespace, pod" + (", model" if server.model_label else "")
        return with_label(f"sum by ({by}) ({figures})", "server", server.name)

    def _weights(self) -> str:
        """Weighted tokens per second of each pod and model; requests of servers that do not count all tokens."""
        weights = self.settings.rules().weights
        prompt, generated, cached = (
            f"sum by ({_BY}) ({self._recorded(TOKENS, equals('kind', kind))})" for kind in _TOKEN_KINDS
        )
        tokens = (
            f"{prompt} * {weights.prompt} + {generated} * {weights.generated}"
            f" - ({cached} or {prompt} * 0) * {weights.prompt - weights.cached}"
        )
        requests = f"sum by ({_BY}) ({self._recorded(REQUESTS)})"
        return f"{tokens} or ({requests} unless on (namespace, pod) ({tokens}))"

    def _shares(self) -> str:
        """The share of its pod that each model has. Models of a pod that was not called have equal shares."""
        weight = self._recorded(_WEIGHT)
        on_pod = "on (namespace, pod) group_left ()"
        by_weight = f"{weight} / {on_pod} (sum by (namespace, pod) ({weight}) > 0)"
        return f"{by_weight} or ({weight} * 0 + 1) / {on_pod} count by (namespace, pod) ({weight})"

    def _counted_tokens(self) -> str:
        """Tokens without those that both sides of a split into prefill and decode count.

        Where prompt or generated tokens are missing, as in the ledger none are known.
        """
        decode_counts_prompts = self.settings.prompt_side == "decode"
        tokens = self._recorded(TOKENS)
        for kind in ("prompt", "generated"):
            tokens += f" and on ({_BY}) {self._recorded(TOKENS, equals('kind', kind))}"
        for kind, is_counted_by_decode in (("prompt", decode_counts_prompts), ("generated", True), ("cached", False)):
            tokens += f" unless {self._counted_twice(TOKENS, is_counted_by_decode, equals('kind', kind))}"
        return tokens

    def _counted_requests(self) -> str:
        return f"{self._recorded(REQUESTS)} unless {self._counted_twice(REQUESTS, True)}"

    def _counted_twice(self, metric: str, is_counted_by_decode: bool, *matchers: str) -> str:
        """Series of the other side, where the side that counts processes the same model in the namespace."""
        prefill, decode = (
            matches("pod", *(f"{glob_to_regex(pattern)}(-.*)?" for pattern in patterns)) if patterns else 'pod=""'
            for patterns in (self.settings.prefill_workloads, self.settings.decode_workloads)
        )
        counting, other = (decode, prefill) if is_counted_by_decode else (prefill, decode)
        processing = f"(({self._recorded(TOKENS, equals('kind', 'prompt'), counting)}) > 0)"
        return f"({self._recorded(metric, *matchers, other)} and on (namespace, model) {processing})"

    def _sum_by_unit(self, vector: str, *labels: str) -> str:
        by = ", ".join(("business_unit", "server", "model", *labels))
        units = f"group by (namespace, pod, business_unit) ({self._recorded('pod:gpucost_allocated_gpus')})"
        owner = single_series(units, "namespace, pod")
        return f"sum by ({by}) (({vector}) * on (namespace, pod) group_left (business_unit) {owner})"

    def _gpus(self) -> str:
        """GPUs of each model by part of the cost."""
        parts = []
        for part in ("effective", "waste", "unmeasured"):
            gpus = self._recorded("pod:gpucost_gpus", equals("part", part))
            of_model = f"{self._recorded(_SHARE)} * on (namespace, pod) group_left () sum by (namespace, pod) ({gpus})"
            parts.append(with_label(self._sum_by_unit(of_model), "part", part))
        return " or ".join(parts)

    def _queue_times(self) -> Iterator[Rule]:
        """Seconds that requests waited and their number, per second, whose quotient is the mean."""
        sources = [(server, server.queue_time) for server in self.settings.all_servers() if server.queue_time]
        seconds = " or ".join(f"{self._by_model(server, mean.total)} * {mean.unit}" for server, mean in sources)
        requests = " or ".join(self._by_model(server, mean.count) for server, mean in sources)
        yield Rule("model:gpucost_queue_seconds_sum:rate5m", self._sum_by_unit(seconds))
        yield Rule("model:gpucost_queue_seconds_count:rate5m", self._sum_by_unit(requests))

    def _batch_sizes(self) -> Iterator[Rule]:
        """The batch size of each pod, then their sum and number, whose quotient is the mean."""
        sizes = []
        for server in self.settings.all_servers():
            match server.batch_size:
                case MeanOfCounters(total, count):
                    sizes.append(f"{self._by_model(server, total)} / ({self._by_model(server, count)} > 0)")
                case str(gauge) if gauge:
                    sizes.append(self._by_model(server, gauge, _MEAN))
        yield Rule(_BATCH, " or ".join(sizes))
        yield Rule("model:gpucost_batch_size:sum", self._sum_by_unit(self._recorded(_BATCH)))
        yield Rule("model:gpucost_batch_size:count", self._sum_by_unit(f"{self._recorded(_BATCH)} * 0 + 1"))

    def _recorded(self, metric: str, *matchers: str) -> str:
        return recorded_selector(metric, self.cluster, *matchers)
