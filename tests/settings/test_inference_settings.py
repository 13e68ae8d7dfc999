"""The settings of inference servers and of the gateway before them."""

import pytest

from gpucost.core.errors import InvalidInputError
from gpucost.settings.inference import InferenceSettings
from gpucost.settings_document import parse_settings

CLUSTER = "clusters: [{name: a, prometheus: {url: 'http://127.0.0.1:9090'}}]\n"


def inference(text: str) -> InferenceSettings:
    return parse_settings(f"{CLUSTER}inference: {text}\n").inference


def test_built_in_gateway_has_counters_and_labels() -> None:
    gateway = inference("{enabled: true, gateway: {name: llm-d-router}}").gateway_counters()
    assert gateway is not None
    assert (gateway.model_label, gateway.consumer_label) == ("target_model_name", "fairness_id")
    assert gateway.counters["generated"] == "llm_d_epp_request_output_tokens_sum"
    changed = inference("{gateway: {name: llm-d-router, requests: r_total, consumer_label: tenant}}").gateway_counters()
    assert changed is not None
    assert (changed.counters["requests"], changed.consumer_label) == ("r_total", "tenant")
    assert changed.counters["prompt"] == gateway.counters["prompt"]
    assert inference("{enabled: true}").gateway_counters() is None


def test_label_of_consumers_is_read_from_all_servers() -> None:
    servers = inference("{consumer_label: tenant, servers: [{name: mine, requests: r_total}]}").all_servers()
    assert {server.consumer_label for server in servers} == {"tenant"}
    assert {server.consumer_label for server in inference("{enabled: true}").all_servers()} == {""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{gateway: {name: mine, requests: r_total}}", "model_label and consumer_label are required"),
        ("{gateway: {name: mine, prompt_tokens: p_total, model_label: m, consumer_label: c}}", "generated_tokens are"),
        ("{gateway: {name: llm-d-router}, consumer_label: c}", "exclude each other"),
        ("{gateway: {name: vllm, requests: r_total, model_label: m, consumer_label: c}}", "name of a server"),
        (
            "{gateway: {name: g, requests: 'vllm:request_success_total', model_label: m, consumer_label: c}}",
            "is a counter of two servers",
        ),
    ],
)
def test_wrong_gateways_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        inference(text)
