"""Label matchers of the trusted series in a cluster's Prometheus, for each source of metrics."""

from itertools import chain
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, create_model

from gpucost.core.metering.accelerators import ACCELERATORS
from gpucost.core.metering.fraction_schedulers import FRACTION_SCHEDULERS
from gpucost.core.metering.signals import Exporter
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


EXPORTERS: tuple[Exporter, ...] = (
    Exporter("kube_state_metrics", "kube-state-metrics (`kube_*`)", ("kube-system",), ("kube_",)),
    Exporter("dcgm_exporter", "dcgm-exporter (`DCGM_*`)", namespaces=(), metric_prefixes=("dcgm_",)),
    *(accelerator.scraped for accelerator in ACCELERATORS),
    Exporter(
        source="kube_dra_exporter",
        series="kube-dra-exporter (`kube_resourceslice_*`, `kube_resourceclaim_*`)",
        namespaces=("monitoring",),
        metric_prefixes=(
            "kube_resourceslice_device_capacity_",
            "kube_resourceclaim_status_allocated_device",
            "kube_resourceclaim_status_reserved_for_pod",
        ),
        discovery_labels=("pod_label_app", "pod_container_port_name"),
        discovery_values="kube-dra-exporter;http",
    ),
    *chain.from_iterable(scheduler.exporters for scheduler in FRACTION_SCHEDULERS),
    Exporter("karpenter", "Karpenter (`karpenter_*`)", ("kube-system", "karpenter"), ("karpenter_",)),
)
"""The sources of metrics. Settings can select the series of each."""

if TYPE_CHECKING:

    class MetricsSourcesSettings(Section):
        """Label matchers by source. All series of a source without matchers are read."""

else:
    MetricsSourcesSettings = create_model(
        "MetricsSourcesSettings",
        __base__=Section,
        __doc__="Label matchers by source. All series of a source without matchers are read.",
        __module__=__name__,
        **{
            exporter.source: (
                SourceMatchers | None,
                Field(None, description=f"Labels of trusted series of {exporter.series}."),
            )
            for exporter in EXPORTERS
        },
    )
