"""The trusted sources in the settings, and their matchers in queries."""

import pytest

from gpucost.core.errors import SettingsError
from gpucost.core.metering.accelerators import NEURON_SIGNAL
from gpucost.core.metering.signals import SIGNALS
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.queries import Queries


def sources(text: str) -> TrustedSeries:
    cluster = f'{{name: demo, prometheus: {{url: "http://127.0.0.1:9090"}}, sources: {text}}}'
    document = f"clusters: [{cluster}]\npricing: {{source: constant, gpu_hourly_usd: 1}}\n"
    return TrustedSeries.from_settings(parse_settings(document).clusters[0].sources)


def test_matchers_apply_to_metrics_of_their_source_only() -> None:
    queries = Queries(
        {"cluster": "a"},
        [],
        trusted_series=sources(
            '{kube_state_metrics: {job: ksm, namespace: "kube-system"}, dcgm_exporter: {job: [dcgm, "dcgm.dra"]}}'
        ),
    )
    assert queries.series_selector("kube_node_info") == 'kube_node_info{cluster="a",job="ksm",namespace="kube-system"}'
    assert queries.series_selector("DCGM_FI_DEV_FB_USED") == 'DCGM_FI_DEV_FB_USED{cluster="a",job=~"dcgm|dcgm\\\\.dra"}'
    assert queries.series_selector("karpenter_nodepools_limit") == 'karpenter_nodepools_limit{cluster="a"}'
    assert 'namespace="kube-system"' in queries.up(["ksm"], ["10.0.0.1:8080"], "kube_state_metrics")


def test_queries_without_matchers_are_unchanged() -> None:
    signals = [[SIGNALS["DCGM_FI_PROF_GR_ENGINE_ACTIVE"], NEURON_SIGNAL]]
    assert len(Queries({}, signals).device_selectors(0, "UUID", ["GPU-1"])) == 1
    apart = Queries({}, signals, trusted_series=sources("{neuron_monitor: {job: neuron}}"))
    first, second = apart.device_selectors(0, "instance", ["10.0.0.1:9400"])
    assert "job" not in first
    assert 'job="neuron"' in second


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{ksm: {job: a}}", "unknown key 'clusters[0].sources.ksm'; allowed there: kube_state_metrics, dcgm_exporter"),
        ("{kube_state_metrics: {}}", "clusters[0].sources.kube_state_metrics"),
        ("{kube_state_metrics: job}", "clusters[0].sources.kube_state_metrics: must be a mapping"),
        ("{dcgm_exporter: {job: []}}", "clusters[0].sources.dcgm_exporter.job: must be a value or a list of values"),
        ("{dcgm_exporter: {job: 7}}", "clusters[0].sources.dcgm_exporter.job: must be a value or a list of values"),
        ('{dcgm_exporter: {job: ""}}', "clusters[0].sources.dcgm_exporter.job"),
        ("{dcgm_exporter: {the-job: a}}", "must be a Prometheus label's name"),
    ],
)
def test_empty_matchers_are_refused(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        sources(text)
    assert says in str(refused.value)
