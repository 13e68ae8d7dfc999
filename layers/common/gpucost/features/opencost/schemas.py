"""The responses of OpenCost's routes, for the OpenAPI document."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpucost.http.schemas import Amount, Instant

Answer = TypeVar("Answer")


class _OpenCostModel(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True)


class AllocationProperties(_OpenCostModel):
    """Properties that all pods of the allocation have in common. Others are omitted."""

    cluster: str = ""
    node: str = ""
    controller: str = ""
    controller_kind: str = Field(default="", examples=["deployment"])
    namespace: str = ""
    pod: str = ""
    labels: dict[str, str] = Field(default_factory=dict)


class AllocationWindow(_OpenCostModel):
    """The window of the set."""

    start: Instant
    end: Instant


class GpuAllocation(_OpenCostModel):
    """GPUs, as in OpenCost's responses of 2025."""

    is_gpu_shared: bool | None = Field(alias="isGPUShared", description="Always null")
    gpu_usage_average: Amount | None
    gpu_request_average: Amount | None


class OpenCostAllocation(_OpenCostModel):
    """The GPUs that the pods of one allocation held. Everything except GPUs is 0."""

    name: str
    properties: AllocationProperties
    window: AllocationWindow
    start: Instant
    end: Instant
    minutes: Amount = Field(description="Length of the window")
    cpu_cores: Amount
    cpu_core_request_average: Amount
    cpu_core_usage_average: Amount
    cpu_core_hours: Amount
    cpu_cost: Amount
    cpu_cost_adjustment: Amount
    cpu_cost_idle: Amount
    cpu_efficiency: Amount
    gpu_count: Amount | None = Field(description="Mean physical GPUs held over the window")
    gpu_request_average: Amount | None = Field(description="As gpuCount")
    gpu_usage_average: Amount | None = Field(
        description="Mean physical GPUs used over the window, where utilization was measured; null if it was not"
    )
    gpu_hours: Amount | None = Field(description="GPU-hours held: a 1/7 MIG slice for 7 hours is 1")
    gpu_cost: Amount | None = Field(description="Allocated cost plus shared idle cost; null without a price")
    gpu_cost_adjustment: Amount
    gpu_cost_idle: Amount | None = Field(description="Shared idle cost in gpuCost")
    gpu_efficiency: Amount | None = Field(
        description="Used ÷ held, 0 to 1, for the time in which utilization was measured"
    )
    network_transfer_bytes: Amount
    network_receive_bytes: Amount
    network_cost: Amount
    network_cross_zone_cost: Amount
    network_cross_region_cost: Amount
    network_internet_cost: Amount
    network_cost_adjustment: Amount
    load_balancer_cost: Amount
    load_balancer_cost_adjustment: Amount
    pv_bytes: Amount
    pv_byte_hours: Amount
    pv_cost: Amount
    pvs: None
    pv_cost_adjustment: Amount
    ram_bytes: Amount
    ram_byte_request_average: Amount
    ram_byte_usage_average: Amount
    ram_byte_hours: Amount
    ram_cost: Amount
    ram_cost_adjustment: Amount
    ram_cost_idle: Amount
    ram_efficiency: Amount
    external_cost: Amount
    shared_cost: Amount
    total_cost: Amount | None = Field(description="As gpuCost")
    total_efficiency: Amount | None = Field(description="As gpuEfficiency, because nothing else has a cost")
    raw_allocation_only: None
    lb_allocations: None
    gpu_allocation: GpuAllocation


class _Response(_OpenCostModel, Generic[Answer]):
    code: Literal[200]
    status: Literal["success"]
    data: Answer


class AllocationResponse(_Response[list[dict[str, OpenCostAllocation]]]):
    """GET /allocation/compute and /allocation: a set of allocations by name, for every step of the window."""


class AllocationSummary(_OpenCostModel):
    """The figures of an allocation that OpenCost's summary has."""

    name: str
    start: Instant
    end: Instant
    cpu_core_request_average: Amount
    cpu_core_usage_average: Amount
    cpu_cost: Amount
    cpu_cost_idle: Amount
    gpu_request_average: Amount | None
    gpu_usage_average: Amount | None
    gpu_cost: Amount | None
    gpu_cost_idle: Amount | None
    network_cost: Amount
    load_balancer_cost: Amount
    pv_cost: Amount
    ram_byte_request_average: Amount
    ram_byte_usage_average: Amount
    ram_cost: Amount
    ram_cost_idle: Amount
    shared_cost: Amount
    external_cost: Amount
    total_efficiency: Amount | None
    total_cost: Amount | None


class SummarySet(_OpenCostModel):
    """The summaries of one step."""

    allocations: dict[str, AllocationSummary]
    window: AllocationWindow


class SummaryRange(_OpenCostModel):
    """The summaries of a window."""

    step: int = Field(description="Nanoseconds; always 0, because steps of the calendar differ in length")
    sets: list[SummarySet]
    window: AllocationWindow


class SummaryResponse(_Response[SummaryRange]):
    """GET /allocation/summary."""


class AssetProperties(_OpenCostModel):
    """What identifies a node."""

    category: str
    provider: str
    service: str
    cluster: str
    name: str
    provider_id: str = Field(alias="providerID")


class OpenCostAsset(_OpenCostModel):
    """A GPU node. Its CPUs and memory are 0; their cost is part of totalCost."""

    type: Literal["Node"]
    properties: AssetProperties
    labels: dict[str, str]
    window: AllocationWindow
    start: Instant
    end: Instant
    minutes: Amount = Field(description="Of the hours in which the node is recorded")
    node_type: str = Field(description="Instance type", examples=["p4d.24xlarge"])
    pool: str
    cpu_cores: Amount
    ram_bytes: Amount
    cpu_core_hours: Amount
    ram_byte_hours: Amount
    gpu_hours: Amount = Field(alias="GPUHours", description="Capacity in physical GPUs")
    gpu_count: Amount
    preemptible: Amount = Field(description="1 for spot instances")
    discount: Amount
    cpu_cost: Amount
    gpu_cost: Amount | None = Field(description="As totalCost; null without a price")
    ram_cost: Amount
    adjustment: Amount
    total_cost: Amount | None = Field(description="The node's cost; null without a price")


class AssetResponse(_Response[dict[str, OpenCostAsset] | list[dict[str, OpenCostAsset]]]):
    """GET /assets: nodes by key; with filterTypes a list with one set, as in Kubecost."""


class Configs(_OpenCostModel):
    """The part of OpenCost's configuration that clients read."""

    currency_code: str = Field(examples=["USD"])


class ConfigsResponse(_Response[Configs]):
    """GET /getConfigs."""
