"""`gpucost doctor` on inference servers, against a real Prometheus."""

from tests.system.doctor_cluster import Recent, healthy
from tests.system.doctor_findings import Examine, faults, named, only

ON = "inference: {enabled: true}"
VLLM = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_cached_total")
REQUESTS = "vllm:request_success_total"
LOAD = ("vllm:request_queue_time_seconds_sum", "vllm:request_queue_time_seconds_count", "vllm:num_requests_running")
LATENCY = ("vllm:e2e_request_latency_seconds_bucket", "vllm:e2e_request_latency_seconds_count")


def with_counters(*metrics: str) -> Recent:
    cluster = healthy()
    for metric in metrics:
        cluster.add(metric, job="servers", instance="10.1.0.1:8000", namespace="team", pod="p", model_name="m")
    return cluster


def test_servers_are_not_checked_while_inference_is_off(examined: Examine) -> None:
    report = examined(with_counters(*VLLM, REQUESTS))
    assert not [check for check in report.checks if "inference" in check.name]


def test_server_with_all_counters_has_no_fault(examined: Examine) -> None:
    report = examined(with_counters(*VLLM, REQUESTS, *LATENCY, *LOAD), more=ON)
    assert not faults(report)
    load = named(report, "load: vllm")
    assert (load.status, load.metric, load.series) == ("found", LOAD[0], 3)
    latency = named(report, "latency: vllm")
    assert (latency.status, latency.metric, latency.series) == ("found", LATENCY[0], 2)
    check = named(report, "inference: vllm")
    assert (check.status, check.series, check.finding) == ("found", 4, None)


def test_missing_counters_are_findings(examined: Examine) -> None:
    only(
        examined(with_counters(VLLM[0], REQUESTS, *LATENCY, *LOAD), more=ON),
        "inference: vllm",
        says="generated tokens are not counted",
        change="vllm:generation_tokens_total",
    )
    only(
        examined(healthy(), more=ON),
        "inference servers",
        says="tokens are unknown",
        change="PodMonitor",
        status="missing",
    )


def test_servers_that_count_less_have_a_note(examined: Examine) -> None:
    report = examined(with_counters(*VLLM[:2], REQUESTS), more=ON)
    assert named(report, "inference: vllm").finding == "vllm does not count cached tokens"
    report = examined(with_counters("nv_inference_request_success"), more=ON)
    assert named(report, "inference: triton").finding == "triton counts requests and no tokens"


def test_missing_latency_is_a_finding(examined: Examine) -> None:
    """Recommendations of fewer replicas need buckets and counts. Servers without any histogram are not checked."""
    only(
        examined(with_counters(*VLLM, REQUESTS, LATENCY[0], *LOAD), more=ON),
        "latency: vllm",
        says="fewer replicas are never recommended",
        change=LATENCY[1],
    )
    report = examined(with_counters("nv_inference_request_success"), more=ON)
    assert not [check for check in report.checks if check.name.startswith("latency")]


def test_missing_queue_times_or_batch_sizes_are_a_finding(examined: Examine) -> None:
    only(
        examined(with_counters(*VLLM, REQUESTS, *LATENCY, *LOAD[:2]), more=ON),
        "load: vllm",
        says="the dashboard of models lacks them",
        change=f"keep {LOAD[2]} in",
    )
    more = "inference: {enabled: true, servers: [{name: own, requests: own_requests_total}]}"
    report = examined(with_counters("own_requests_total"), more=more)
    assert not [check for check in report.checks if check.name.startswith("load")]


def test_frontends_are_said_to_count_only_in_pods_with_gpus(examined: Examine) -> None:
    counters = [
        f"dynamo_frontend_{name}"
        for name in (
            "input_sequence_tokens_sum",
            "output_sequence_tokens_sum",
            "cached_tokens_sum",
            "output_sequence_tokens_count",
        )
    ]
    report = examined(with_counters(*counters), more=ON)
    assert not faults(report)
    assert "Scrape the servers behind it" in (named(report, "inference: dynamo").finding or "")


def test_counters_of_the_gateway_are_checked(examined: Examine) -> None:
    more = "inference: {enabled: true, gateway: {name: llm-d-router}}"
    counters = [f"llm_d_epp_request_{name}" for name in ("input_tokens_sum", "output_tokens_sum", "total")]
    cluster = with_counters(*VLLM, REQUESTS, *LATENCY, *LOAD, *counters)
    only(
        examined(cluster, more=more),
        "gateway: llm-d-router",
        says="llm_d_epp_request_cached_tokens_sum have no series",
        change="inference.gateway",
    )
    cluster.add("llm_d_epp_request_cached_tokens_sum", job="gateways", namespace="team", pod="g")
    assert not faults(examined(cluster, more=more))


def test_servers_of_the_settings_are_checked(examined: Examine) -> None:
    more = "inference: {enabled: true, servers: [{name: own, requests: own_requests_total}]}"
    assert named(examined(with_counters("own_requests_total"), more=more), "inference: own").status == "found"
