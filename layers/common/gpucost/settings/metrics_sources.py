"""Label matchers of the trusted series in a cluster's Prometheus, for each source of metrics."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gpucost.settings.section import Name, Section, matching_pattern

LabelName = Annotated[
    str, matching_pattern(r"[a-zA-Z_][a-zA-Z0-9_]*", "a Prometheus label's name, such as cluster or team_name")
]


def _as_values(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise ValueError(
        "must be a value or a list of values, for example kube-state-metrics or [dcgm-exporter, dcgm-exporter-dra]"
    )


LabelValues = Annotated[tuple[Name, ...], BeforeValidator(_as_values, json_schema_input_type=Name | tuple[Name, ...])]
SourceMatchers = Annotated[dict[LabelName, LabelValues], Field(min_length=1)]
"""Labels that a series must have, each with one of the given values."""


class MetricsSourcesSettings(Section):
    """Label matchers by source. All series of a source without matchers are read."""

    kube_state_metrics: SourceMatchers | None = None
    """Labels of trusted series of kube-state-metrics (`kube_*`)."""
    dcgm_exporter: SourceMatchers | None = None
    """Labels of trusted series of dcgm-exporter (`DCGM_*`)."""
    neuron_monitor: SourceMatchers | None = None
    """Labels of trusted series of neuron-monitor (`neuron*`)."""
    amd_device_metrics_exporter: SourceMatchers | None = None
    """Labels of trusted series of AMD's device-metrics-exporter (`gpu_gfx_*`, `amd_gpu_*`)."""
    gaudi_metric_exporter: SourceMatchers | None = None
    """Labels of trusted series of Intel's gaudi-metric-exporter (`habanalabs_*`)."""
    xpumd: SourceMatchers | None = None
    """Labels of trusted series of xpumd, the daemon of Intel's XPU Manager (`hw_gpu_*`)."""
    kube_dra_exporter: SourceMatchers | None = None
    """Labels of trusted series of kube-dra-exporter (`kube_resourceslice_*`, `kube_resourceclaim_*`)."""
    hami_scheduler: SourceMatchers | None = None
    """Labels of trusted series of HAMi's scheduler (`hami_vgpu_*`, `hami_gpu_*`)."""
    hami_vgpu_monitor: SourceMatchers | None = None
    """Labels of trusted series of HAMi's vGPU monitors (`hami_container_*`)."""
    karpenter: SourceMatchers | None = None
    """Labels of trusted series of Karpenter (`karpenter_*`)."""
