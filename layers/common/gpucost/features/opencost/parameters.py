"""The parameters of OpenCost's routes, as the OpenAPI document describes them."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpucost.core.query.filters import check_parameter_text
from gpucost.features.opencost.properties import AGGREGATIONS
from gpucost.features.opencost.queries import ACCUMULATIONS
from gpucost.features.opencost.windows import WINDOW_FORMATS

WINDOW = Field(
    description=f"Period, in full UTC hours, at most 35 days: {WINDOW_FORMATS} (RFC 3339, or Unix seconds). As in "
    "OpenCost, 7d ends with today, and weeks start on Sunday. Every window ends with the newest published hour",
    examples=["7d", "lastmonth", "2026-11-18T00:00:00Z,2026-11-19T00:00:00Z", "1795046400,1795132800"],
)
_FLAG = "true or false; also 1, t, T, TRUE, True and 0, f, F, FALSE, False"
_EMPTY = "Older filter by a property that is not stored; only empty"
_LIST = "Older filter: a comma-separated list; * at the end of a value matches any rest"


class _Parameters(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    def texts(self) -> dict[str, str]:
        """Return the parameters that were sent, by their names in the query.

        Raises:
            ParameterError: text that cannot be a name.
        """
        texts = self.model_dump(by_alias=True, exclude_unset=True)
        for name, text in texts.items():
            check_parameter_text(name, text)
        return texts


class AllocationParameters(_Parameters):
    """The parameters that OpenCost reads."""

    window: str = WINDOW
    aggregate: str = Field(
        default="",
        description=f"Comma-separated: {', '.join(AGGREGATIONS)}. Labels must be listed in the settings' cost_labels. "
        "Default: cluster,node,namespace,pod. By node or pod at most 48 hours",
        examples=["namespace", "cluster,controller", "label:team"],
    )
    step: str = Field(
        default="",
        description="Length of a set: full hours, or hour, day, week. Default: the whole window",
        examples=["1d", "12h", "day"],
    )
    accumulate: str = Field(
        default="",
        description=f"{', '.join(ACCUMULATIONS)}. true and all: one set. hour, day, week, month and quarter: a set for "
        "each, in the calendar (UTC), in place of step",
        examples=["true", "day"],
    )
    accumulate_by: str = Field(default="", description="As accumulate, and comes first", examples=["day", "all"])
    include_idle: str = Field(
        default="", description=f"Add `__idle__`: node costs that no pod held. {_FLAG}", examples=["true"]
    )
    idle: str = Field(default="", description="The older name of includeIdle; comes first", examples=["true"])
    share_idle: str = Field(
        default="",
        description="Share idle costs among the cluster's allocations by cost. Requires includeIdle=true",
        examples=["false"],
    )
    filter: str = Field(
        default="",
        description="OpenCost's filter language, version 2, over cluster, node, namespace, controllerName, "
        "controllerKind, pod and label[name]",
        examples=['namespace:"bu-a","bu-b"+controllerKind!:"job"'],
    )
    filter_clusters: str = Field(default="", description=_LIST, examples=["prod-*"])
    filter_nodes: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_namespaces: str = Field(default="", description=_LIST, examples=["bu-a,bu-*"])
    filter_controller_kinds: str = Field(default="", description=_LIST, examples=["deployment"])
    filter_controllers: str = Field(default="", description=f"{_LIST}; with or without a kind", examples=["job:train"])
    filter_pods: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_labels: str = Field(default="", description=f"{_LIST}, of label:value", examples=["team:search"])
    filter_departments: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_environments: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_owners: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_products: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_teams: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_containers: str = Field(default="", description=_EMPTY, examples=[""])
    filter_services: str = Field(default="", description=_EMPTY, examples=[""])
    filter_annotations: str = Field(default="", description=_EMPTY, examples=[""])
    include_aggregated_metadata: str = Field(
        default="", description="Add the labels that all pods of an allocation have in common", examples=["true"]
    )
    idle_by_node: str = Field(
        default="", description="Only false is supported: idle costs are computed by cluster", examples=["false"]
    )
    include_proportional_asset_resource_costs: str = Field(
        default="", description="Only false is supported", examples=["false"]
    )


class AssetParameters(_Parameters):
    """The parameters of assets. Others, such as aggregate and accumulate, are ignored, as in OpenCost."""

    window: str = WINDOW
    filter: str = Field(
        default="",
        description="OpenCost's filter language over type, name, cluster, category, provider and providerID",
        examples=['type:"Node"+cluster:"prod-eu"'],
    )
    filter_types: str = Field(
        default="",
        description="Older filter. With it, the response is a list of one set, as Kubecost's",
        examples=["Node"],
    )
    filter_clusters: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_names: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_categories: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_providers: str = Field(default="", description=_LIST, examples=["a,b-*"])
    filter_provider_ids: str = Field(default="", alias="filterProviderIDs", description=_LIST, examples=["a,b-*"])
    filter_accounts: str = Field(default="", description=_EMPTY, examples=[""])
    filter_labels: str = Field(default="", description=_EMPTY, examples=[""])
    filter_projects: str = Field(default="", description=_EMPTY, examples=[""])
    filter_regions: str = Field(default="", description=_EMPTY, examples=[""])
    filter_services: str = Field(default="", description=_EMPTY, examples=[""])
