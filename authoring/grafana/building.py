"""Data sources, variables and panels that the dashboards share."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import bargauge, cloudwatch, common, stat, table, text, timeseries
from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.builders import prometheus as prometheus_queries
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.cloudwatch import CloudWatchQueryMode, MetricEditorMode, MetricQueryType
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

METRICS = DataSourceRef(type_val="prometheus", uid="${metrics}")
CLOUDWATCH = DataSourceRef(type_val="cloudwatch", uid="${cloudwatch}")
LEDGER = DataSourceRef(type_val="yesoreyeram-infinity-datasource", uid="${ledger}")
TAG = "gpucost"
LIST_RATE_USD = 12
"""USD per GPU-hour: the public price of the proof of concept. Panels mark amounts at this rate as estimates."""
ESTIMATE = "List-rate estimate: GPUs × the dashboard's USD per GPU-hour. The ledger has the cost at the prices you pay."
GPUS, RATIO, USD = "none", "percentunit", "currencyUSD"
IN_CLUSTER = 'cluster=~"$cluster"'
_COLUMNS = 24
PART_COLORS = {
    "effective": "#117733",
    "waste": "#CC6677",
    "unmeasured": "#DDCC77",
    "unallocated": "#88CCEE",
    "stranded": "#AA4499",
}
"""Paul Tol's muted scheme, which color-blind people can distinguish."""

Panel = Any
"""The SDK has no common class of panel builders."""


def empty_dashboard(title: str, uid: str, description: str, *, span: str = "now-6h") -> dashboards.Dashboard:
    """Build an empty dashboard in UTC with links to the others."""
    link = (
        dashboards.DashboardLink("GPU cost")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    return (
        dashboards.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .timezone("utc")
        .time(span, "now")
        .refresh("1m")
        .link(link)
    )


def data_source_variable(name: str, label: str, kind: str) -> dashboards.DatasourceVariable:
    """Build a variable that chooses a data source of a type."""
    return dashboards.DatasourceVariable(name).label(label).type(kind)


def label_variable(name: str, label: str, query: str, *, include_all: bool = True) -> dashboards.QueryVariable:
    """Build a variable that chooses one or more values of a label."""
    variable = (
        dashboards.QueryVariable(name)
        .label(label)
        .datasource(METRICS)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
    )
    if include_all:
        everything = VariableOption(selected=True, text="All", value="$__all")
        variable = variable.include_all(True).all_value(".*").current(everything)
    return variable


def live_variables() -> Sequence[Builder[Any]]:
    """Build the variables of every dashboard on recorded rules: data source, cluster, price."""
    return (
        data_source_variable("metrics", "Metrics", "prometheus"),
        label_variable("cluster", "Cluster", "label_values(cluster:gpucost_capacity_gpus:sum, cluster)"),
        dashboards.TextBoxVariable("usd")
        .label("USD per GPU-hour (list-rate estimate)")
        .default_value(str(LIST_RATE_USD))
        .current(VariableOption(text=str(LIST_RATE_USD), value=str(LIST_RATE_USD))),
    )


def promql_query(expression: str, legend: str = "", *, instant: bool = False) -> prometheus_queries.Dataquery:
    """Build a PromQL query over the time range, or with `instant` at its end, as rows of a table."""
    target = prometheus_queries.Dataquery().ref_id("A").datasource(METRICS).expr(expression)
    target = target.legend_format(legend or "__auto")
    return target.instant().format(PromQueryFormat.TABLE) if instant else target.range()


def cloudwatch_metric(
    name: str, service: str, statistic: str, *, namespace: str = "GpuCost", dimension: str = "service", label: str = ""
) -> cloudwatch.CloudWatchMetricsQuery:
    """Build a query of a CloudWatch metric that the functions publish hourly, or of one of AWS's metrics."""
    return (
        cloudwatch.CloudWatchMetricsQuery()
        .ref_id("A")
        .datasource(CLOUDWATCH)
        .query_mode(CloudWatchQueryMode.METRICS)
        .metric_query_type(MetricQueryType.SEARCH)
        .metric_editor_mode(MetricEditorMode.BUILDER)
        .region("default")
        .namespace(namespace)
        .metric_name(name)
        .dimensions({dimension: [service], **({"stack": ["$stack"]} if namespace == "GpuCost" else {})})
        .match_exact(True)
        .statistic(statistic)
        .period("3600" if namespace == "GpuCost" else "300")
        .label(label or name)
    )


@dataclass
class ApiQuery(variants.Dataquery, Builder[variants.Dataquery]):
    """A query of gpucost's HTTP API by the Infinity data source, for which the SDK has no builder.

    The data source contains the address of the API and the credentials. Grafana reads amounts as floats, so they are
    for viewing and not for accounting.
    """

    path: str
    parameters: dict[str, str]
    columns: Sequence[tuple[str, str, str]]
    """Selector in a row, heading, and type: `string`, `number` or `timestamp`."""
    rows: str = "rows"
    ref_id: str = field(default="A")

    def build(self) -> "ApiQuery":
        """Return the query itself, as the SDK expects of a builder."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the query in the plugin's model: type, source, parser, url, url_options, root_selector, columns."""
        return {
            "refId": self.ref_id,
            "datasource": LEDGER,
            "type": "json",
            "source": "url",
            "format": "table",
            "parser": "backend",
            "url": self.path,
            "url_options": {
                "method": "GET",
                "params": [{"key": key, "value": value} for key, value in self.parameters.items()],
            },
            "root_selector": self.rows,
            "columns": [
                {"selector": selector, "text": heading, "type": kind} for selector, heading, kind in self.columns
            ],
            "filters": [],
        }


def time_series_panel(title: str, unit: str, description: str = "", *, stacked: bool = False) -> timeseries.Panel:
    """Build a panel of time series, optionally stacked."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .unit(unit)
        .min(0)
        .fill_opacity(60 if stacked else 8)
        .line_width(1)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A")) if stacked else panel


def cost_parts_panel(title: str, expression: str, description: str) -> timeseries.Panel:
    """Build a panel of GPUs over time, stacked by part of the cost. Each part has the same color everywhere."""
    panel = time_series_panel(title, GPUS, description, stacked=True).with_target(promql_query(expression, "{{part}}"))
    for part, color in PART_COLORS.items():
        panel = panel.override_by_name(
            part, [DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})]
        )
    return panel


def stat_panel(title: str, unit: str, expression: str, description: str = "") -> stat.Panel:
    """Build a panel of one figure with its history in the background."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .unit(unit)
        .decimals(2)
        .reduce_options(_newest())
        .graph_mode(BigValueGraphMode.AREA)
        .color_mode(BigValueColorMode.NONE)
        .with_target(promql_query(expression))
    )


def bar_gauge_panel(title: str, unit: str, expression: str, legend: str, description: str = "") -> bargauge.Panel:
    """Build a panel of bars, for the largest values."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .unit(unit)
        .min(0)
        .reduce_options(_newest())
        .with_target(promql_query(expression, legend).instant())
    )


def _newest() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def table_panel(
    title: str, description: str, columns: Sequence[tuple[str, str, str]], labels: Sequence[str]
) -> table.Panel:
    """Build a table with a row for each combination of some labels and a column for each expression.

    Args:
        columns: heading, expression, unit.
        labels: labels that the expressions share, in the order of the first columns.
    """
    panel = table.Panel().title(title).description(description).datasource(METRICS).show_header(True)
    headings = {}
    for index, (heading, expression, unit) in enumerate(columns):
        ref_id = chr(ord("A") + index)
        headings[f"Value #{ref_id}"] = heading
        panel = panel.with_target(promql_query(expression, instant=True).ref_id(ref_id))
        panel = panel.override_by_name(
            heading, [DynamicConfigValue(id_val="unit", value=unit), DynamicConfigValue(id_val="decimals", value=2)]
        )
    panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    order = {name: index for index, name in enumerate([*labels, *headings])}
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": headings}
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=organized))


def text_panel(title: str, markdown: str) -> text.Panel:
    """Build a text panel."""
    return text.Panel().title(title).content(markdown)


def with_size(panel: Panel, columns: int = _COLUMNS, height: int = 8) -> Panel:
    """Set the size of a panel in Grafana's grid, which has 24 columns."""
    return panel.span(columns).height(height)


def live_note() -> text.Panel:
    """Build the text panel that explains live figures."""
    return text_panel(
        "Live figures and the ledger",
        "These panels are **live**: the GPUs that Prometheus sees each minute, times one rate. The **ledger** is "
        "authoritative: after each hour it counts the seconds in which every pod held its GPUs, at the price that you "
        "pay, and it restates the hour when a bill changes.\n\n"
        "| | live | ledger |\n| --- | --- | --- |\n"
        "| time | one sample a minute | from first to last sample, by the second |\n"
        "| price | one rate for all GPUs | by node: spot, on-demand or the bill |\n"
        "| scrape gaps | no figures | bridged, or *unobserved* |\n"
        "| settings | as when the rules were generated | as in force in that hour |\n\n"
        "Live and ledger figures of an hour differ by a few minutes for each start, end or change of a pod. "
        "docs/explanation/live-and-ledger.md gives the exact bound. Use the dashboard *GPU ledger* for accounting.",
    )


def with_panels(
    dashboard: dashboards.Dashboard, variables: Sequence[Builder[Any]], sections: Sequence[tuple[str, Sequence[Panel]]]
) -> dashboards.Dashboard:
    """Add variables, and panels in titled rows, to a dashboard."""
    for variable in variables:
        dashboard = dashboard.with_variable(variable)
    for title, panels in sections:
        dashboard = dashboard.with_row(dashboards.Row(title))
        for panel in panels:
            dashboard = dashboard.with_panel(panel)
    return dashboard
