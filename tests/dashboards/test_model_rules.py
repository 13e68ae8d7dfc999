"""The rules of inference servers, run by Prometheus' rule engine and compared with hand-computed figures.

The servers run in the pods of `small_cluster`: research-x/train (two GPUs, 1.4 of them busy) has vLLM with a model and
an adapter, bu-a/s1 (a quarter of a GPU, 0.15 busy) TGI, lone/idle (a GPU, 0.02 busy) vLLM that is never called, lone/s2
(a quarter, 0.15 busy) Triton.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from gpucost_cli.rules import documents
from tests.dashboards import promtool, small_cluster
from tests.dashboards.promtool import expectation
from tests.dashboards.small_cluster import SETTINGS, UNITS, groups, of, small

ENABLED = "inference: {enabled: true}\n"
MINUTES = 20
PARTS = ("effective", "waste", "unmeasured")
CHAT, ADAPTER = 100 + 5 * 10 - 0.9 * 50, 20 + 5 * 4
"""Weighted tokens per second: 100 prompt tokens, of which 50 are cached, and 10 generated; 20 and 4."""
TRAIN = {"namespace": "research-x", "pod": "train"}
IDLE = {"namespace": "lone", "pod": "idle"}


def counter(metric: str, per_second: float, scrapes: Sequence[str] = ("a",), **labels: str) -> Iterator[dict[str, str]]:
    """A counter that several jobs scrape."""
    for job in scrapes:
        target = {"cluster": "c", "job": job, "endpoint": f"port-{job}", "instance": "10.0.0.1:8000"}
        yield promtool.series(metric, {**target, **labels}, f"100000+{per_second * 60:g}x{MINUTES}")


def vllm(
    prompt: float, generated: float, model: str, pod: Mapping[str, str], scrapes: Sequence[str] = ("a",)
) -> Iterator[dict[str, str]]:
    labels = {**pod, "model_name": model}
    yield from counter("vllm:prompt_tokens_total", prompt, scrapes, **labels)
    yield from counter("vllm:generation_tokens_total", generated, scrapes, **labels)


def servers() -> list[dict[str, str]]:
    twice = ("a", "b")
    tgi = {"namespace": "bu-a", "pod": "s1"}
    of_other_cluster = [
        {**row, "series": row["series"].replace('cluster="c"', 'cluster="d"')} for row in vllm(7, 7, "chat", TRAIN)
    ]
    return [
        *vllm(100, 10, "chat", TRAIN, twice),
        *counter("vllm:prompt_tokens_cached_total", 50, twice, **TRAIN, model_name="chat"),
        *counter("vllm:request_success_total", 2, twice, **TRAIN, model_name="chat", finished_reason="stop"),
        *counter("vllm:request_success_total", 1, twice, **TRAIN, model_name="chat", finished_reason="length"),
        *vllm(20, 4, "chat-sql", TRAIN),
        *vllm(0, 0, "x", IDLE),
        *vllm(0, 0, "y", IDLE),
        *counter("tgi_request_input_length_sum", 3, **tgi),
        *counter("tgi_request_generated_tokens_sum", 2, **tgi),
        *counter("nv_inference_request_success", 5, namespace="lone", pod="s2", model="resnet"),
        *of_other_cluster,
    ]


def model(unit: str, server: str, name: str, **labels: str) -> dict[str, str]:
    return of(business_unit=unit, server=server, **({"model": name} if name else {}), **labels)


def test_tokens_and_requests_per_second_by_model(tmp_path: Path) -> None:
    """Two jobs that scrape a server count once; series that differ in the finish reason are added up."""
    chat, adapter = model("research", "vllm", "chat"), model("research", "vllm", "chat-sql")
    tokens = [
        ({**chat, "kind": "prompt"}, 100),
        ({**chat, "kind": "generated"}, 10),
        ({**chat, "kind": "cached"}, 50),
        ({**adapter, "kind": "prompt"}, 20),
        ({**adapter, "kind": "generated"}, 4),
        ({**model("research", "tgi", ""), "kind": "prompt"}, 3),
        ({**model("research", "tgi", ""), "kind": "generated"}, 2),
        *(({**model("lone", "vllm", name), "kind": kind}, 0) for name in "xy" for kind in ("prompt", "generated")),
    ]
    output = promtool.run(
        tmp_path,
        groups(SETTINGS + UNITS + ENABLED),
        [*small_cluster.all_series(), *servers()],
        [
            expectation("model:gpucost_tokens:rate5m", 8, *tokens),
            expectation("model:gpucost_requests:rate5m", 8, (chat, 3), (model("lone", "triton", "resnet"), 5)),
        ],
    )
    assert output == ""


def test_gpus_of_models_by_weighted_tokens(tmp_path: Path) -> None:
    """The models of a pod share its GPUs, equally if the server was not called. Parts add up to the pods'."""
    part = CHAT / (CHAT + ADAPTER)
    gpus: list[tuple[Mapping[str, str], float]] = []
    for key, parts in (
        (model("research", "vllm", "chat"), (1.4 * part, 0.6 * part, 0)),
        (model("research", "vllm", "chat-sql"), (1.4 * (1 - part), 0.6 * (1 - part), 0)),
        (model("research", "tgi", ""), (0.15, 0.1, 0)),
        (model("lone", "vllm", "x"), (0.01, 0.49, 0)),
        (model("lone", "vllm", "y"), (0.01, 0.49, 0)),
        (model("lone", "triton", "resnet"), (0.15, 0.1, 0)),
    ):
        gpus += [({**key, "part": name}, figure) for name, figure in zip(PARTS, parts, strict=True)]
    output = promtool.run(
        tmp_path,
        groups(SETTINGS + UNITS + ENABLED),
        [*small_cluster.all_series(), *servers()],
        [expectation("model:gpucost_gpus:sum", 8, *gpus), expectation("sum(model:gpucost_gpus:sum)", 8, ({}, 3.5))],
    )
    assert output == ""


def gauge(metric: str, figure: float, scrapes: Sequence[str] = ("a",), **labels: str) -> Iterator[dict[str, str]]:
    """A gauge that several jobs scrape."""
    for job in scrapes:
        target = {"cluster": "c", "job": job, "endpoint": f"port-{job}", "instance": "10.0.0.1:8000"}
        yield promtool.series(metric, {**target, **labels}, f"{figure}x{MINUTES}")


LOADS: Mapping[str, Sequence[dict[str, str]]] = {
    "vllm": [  # two engines, which two jobs scrape
        *(
            row
            for engine, waited, running in (("0", 3, 5), ("1", 1, 7))
            for row in (
                *counter("vllm:request_queue_time_seconds_sum", waited, "ab", engine=engine, **TRAIN, model_name="m"),
                *counter("vllm:request_queue_time_seconds_count", 4, "ab", engine=engine, **TRAIN, model_name="m"),
                *gauge("vllm:num_requests_running", running, "ab", engine=engine, **TRAIN, model_name="m"),
            )
        )
    ],
    "sglang": [  # two data-parallel ranks; both tensor-parallel ranks of each report its batch
        *(
            row
            for dp, running in (("0", 5), ("1", 7))
            for tp in "01"
            for row in (
                *counter(
                    "sglang:queue_time_seconds_sum", 2, dp_rank=dp, tp_rank=tp, pp_rank="0", **TRAIN, model_name="m"
                ),
                *counter(
                    "sglang:queue_time_seconds_count", 4, dp_rank=dp, tp_rank=tp, pp_rank="0", **TRAIN, model_name="m"
                ),
                *gauge(
                    "sglang:num_running_reqs", running, dp_rank=dp, tp_rank=tp, pp_rank="0", **TRAIN, model_name="m"
                ),
            )
        )
    ],
    "tgi": [
        *counter("tgi_request_queue_duration_sum", 4, **TRAIN),
        *counter("tgi_request_queue_duration_count", 8, **TRAIN),
        *gauge("tgi_batch_current_size", 12, **TRAIN),
    ],
    "nim": [*gauge("num_requests_running", 12, **TRAIN, model_name="m")],
    "triton": [  # microseconds; 60 inferences a second in 5 executions
        *counter("nv_inference_queue_duration_us", 4e6, **TRAIN, model="m"),
        *counter("nv_inference_request_success", 8, **TRAIN, model="m"),
        *counter("nv_inference_count", 60, **TRAIN, model="m"),
        *counter("nv_inference_exec_count", 5, **TRAIN, model="m"),
    ],
    "trtllm": [
        *counter("trtllm_request_queue_time_seconds_sum", 4, engine_type="trtllm", **TRAIN, model_name="m"),
        *counter("trtllm_request_queue_time_seconds_count", 8, engine_type="trtllm", **TRAIN, model_name="m"),
        *gauge("trtllm_num_requests_running", 12, engine_type="trtllm", **TRAIN, model_name="m"),
    ],
}
"""Each server waited 4 s for 8 requests per second, and processed 12 at the same time; NIM does not say the former."""


@pytest.mark.parametrize("server", LOADS)
def test_time_in_queue_and_batch_size_of_each_server(tmp_path: Path, server: str) -> None:
    labels = model("research", server, "" if server == "tgi" else "m")
    queue = () if server == "nim" else (4, 8)
    series = [*small_cluster.all_series(), *LOADS[server]]
    output = promtool.run(
        tmp_path,
        groups(SETTINGS + UNITS + ENABLED),
        series,
        [
            *(
                expectation(
                    f"model:gpucost_queue_seconds_{suffix}:rate5m", 8, *((labels, figure) for figure in figures)
                )
                for suffix, figures in (("sum", queue[:1]), ("count", queue[1:]))
            ),
            expectation("model:gpucost_batch_size:sum", 8, (labels, 12)),
            expectation("model:gpucost_batch_size:count", 8, (labels, 1)),
        ],
    )
    assert output == ""


def test_batches_of_several_pods_are_added_and_idle_servers_of_executions_have_none(tmp_path: Path) -> None:
    """An idle gauge is 0. An idle Triton has no batch."""
    input_series = small({"p": "n0", "q": "n1", "idle": "n2"})
    for pod, running in (("p", 4), ("q", 0)):
        input_series += gauge("vllm:num_requests_running", running, namespace="ns", pod=pod, model_name="m")
    for name in ("nv_inference_count", "nv_inference_exec_count", "nv_inference_request_success"):
        input_series += counter(name, 0, namespace="ns", pod="idle", model="r")
    output = promtool.run(
        tmp_path,
        groups(SETTINGS + ENABLED),
        input_series,
        [
            expectation("model:gpucost_batch_size:sum", 8, (model("ns", "vllm", "m"), 4)),
            expectation("model:gpucost_batch_size:count", 8, (model("ns", "vllm", "m"), 2)),
        ],
    )
    assert output == ""


def test_time_in_queue_and_batch_size_of_a_server_of_the_settings(tmp_path: Path) -> None:
    server = "{name: own, requests: my_requests, queue_time: my_queue, running_requests: my_batch}"
    text = f"{SETTINGS}inference: {{enabled: true, servers: [{server}]}}\n"
    pod = {"namespace": "ns", "pod": "p"}
    input_series = [*small({"p": "n"}), *gauge("my_batch", 3, **pod)]
    for suffix, rate in (("sum", 6), ("count", 2)):
        input_series += counter(f"my_queue_{suffix}", rate, **pod)
    output = promtool.run(
        tmp_path,
        groups(text),
        input_series,
        [
            expectation("model:gpucost_queue_seconds_sum:rate5m", 8, (model("ns", "own", ""), 6)),
            expectation("model:gpucost_queue_seconds_count:rate5m", 8, (model("ns", "own", ""), 2)),
            expectation("model:gpucost_batch_size:sum", 8, (model("ns", "own", ""), 3)),
        ],
    )
    assert output == ""


@pytest.mark.parametrize("side", ["decode", "prefill"])
def test_both_sides_of_a_split_count_each_token_once(tmp_path: Path, side: str) -> None:
    """A prefill server alone, in another namespace, counts all of its tokens."""
    pods = {"llm-prefill-7d9f-x": "n0", "llm-decode-0": "n1"}
    input_series = small(pods)
    for pod, generated in zip(pods, (1, 30), strict=True):
        labels = {"namespace": "ns", "pod": pod}
        input_series += vllm(100, generated, "m", labels)
        input_series += counter("vllm:prompt_tokens_cached_total", 40, **labels, model_name="m")
        input_series += counter("vllm:request_success_total", 2, **labels, model_name="m", finished_reason="stop")
    alone = [
        {**row, "series": row["series"].replace('namespace="ns"', 'namespace="alone"')}
        for row in [*small({"llm-prefill-0": "n2"}), *vllm(7, 1, "m", {"namespace": "ns", "pod": "llm-prefill-0"})]
    ]
    split, single = model("ns", "vllm", "m"), model("alone", "vllm", "m")
    text = f"{SETTINGS}inference: {{enabled: true, prompt_side: {side}}}\n"
    output = promtool.run(
        tmp_path,
        groups(text),
        [*input_series, *alone],
        [
            expectation(
                "model:gpucost_tokens:rate5m",
                8,
                ({**split, "kind": "prompt"}, 100),
                ({**split, "kind": "generated"}, 30),
                ({**split, "kind": "cached"}, 40),
                ({**single, "kind": "prompt"}, 7),
                ({**single, "kind": "generated"}, 1),
            ),
            expectation("model:gpucost_requests:rate5m", 8, (split, 2)),
            expectation(
                "sum by (business_unit) (model:gpucost_gpus:sum)",
                8,
                ({"business_unit": "ns"}, 2),
                ({"business_unit": "alone"}, 1),
            ),
        ],
    )
    assert output == ""


def test_servers_labels_and_weights_of_the_settings(tmp_path: Path) -> None:
    """A server of the settings, its labels of namespace and pod, and weights by which two models are equal."""
    text = f"""{SETTINGS}
inference:
  enabled: true
  namespace_label: ns
  pod_label: k8s_pod
  weights: {{prompt: 1, generated: 10}}
  servers: [{{name: own, prompt_tokens: my_in, generated_tokens: my_out, model_label: llm}}]
"""
    input_series = small({"p": "n"})
    for name, prompt, generated in (("first", 110, 1), ("second", 20, 10)):
        labels = {"ns": "ns", "k8s_pod": "p", "namespace": "monitoring", "pod": "gateway", "llm": name}
        input_series += [*counter("my_in", prompt, **labels), *counter("my_out", generated, **labels)]
    output = promtool.run(
        tmp_path,
        groups(text),
        input_series,
        [
            expectation(
                "sum by (model) (model:gpucost_gpus:sum)", 8, ({"model": "first"}, 0.5), ({"model": "second"}, 0.5)
            ),
            expectation(
                'model:gpucost_tokens:rate5m{kind="generated"}',
                8,
                (model("ns", "own", "first", kind="generated"), 1),
                (model("ns", "own", "second", kind="generated"), 10),
            ),
        ],
    )
    assert output == ""


def test_rules_of_models_are_there_only_where_servers_are_read(tmp_path: Path) -> None:
    assert [group["name"] for group in groups(SETTINGS)] == ["gpucost-c-pods", "gpucost-c-sums"]
    enabled = groups(SETTINGS + ENABLED)
    assert [group["name"] for group in enabled] == ["gpucost-c-pods", "gpucost-c-sums", "gpucost-c-models"]
    assert promtool.check(tmp_path, documents.render_groups("prometheus", enabled)) == ""
    assert len(enabled[-1]["rules"]) <= documents.MAX_RULES
