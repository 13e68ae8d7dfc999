"""The dashboard of the ledger's figures, from the HTTP API by the Infinity data source."""

from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue, VariableOption

from authoring.grafana.building import (
    LEDGER,
    USD,
    ApiQuery,
    Panel,
    data_source_variable,
    empty_dashboard,
    text_panel,
    time_series_panel,
    with_panels,
    with_size,
)

_PERIOD = {"window": "${window}"}
_MONEY = [
    ("allocated_usd", "Allocated", "number"),
    ("effective_usd", "Effective", "number"),
    ("waste_usd", "Waste", "number"),
    ("unmeasured_usd", "Unmeasured", "number"),
]
_EXPLANATION = """These are the figures of the **ledger**: allocations by the second, at the price that you pay, \
restated when a bill changes. Incomplete hours have no figures. The live dashboards show the GPUs of this minute, \
times one rate. docs/explanation/live-and-ledger.md says by how much the two may differ.

Grafana shows exact decimals as floats. For accounting, use `/v1/costs?format=csv` or the FOCUS exports."""


def dashboard() -> dashboards.Dashboard:
    """Build the dashboard on the ledger's figures, which it reads from the API, for finance partners."""
    windows = ("24h", "7d", "week", "month", "lastmonth")
    window = dashboards.CustomVariable("window").label("Period").values(",".join(windows))
    daily = {**_PERIOD, "granularity": "day", "group_by": "business_unit"}
    by_day = [("start", "Day", "timestamp"), ("group.business_unit", "Business unit", "string"), *_MONEY]
    units = [("business_unit", "Business unit", "string"), *_MONEY, ("allocated_gpu_hours", "GPU-hours", "number")]
    workloads = [
        ("cluster", "Cluster", "string"),
        ("business_unit", "Business unit", "string"),
        ("namespace", "Namespace", "string"),
        ("workload", "Workload", "string"),
        ("waste_usd", "Waste", "number"),
    ]
    pools = [
        ("group.cluster", "Cluster", "string"),
        ("group.node_pool", "Node pool", "string"),
        *_MONEY,
        ("idle_usd", "Idle", "number"),
        ("cost_usd", "Cost", "number"),
    ]
    hours = [
        ("cluster", "Cluster", "string"),
        ("hour", "Hour", "timestamp"),
        ("status", "Status", "string"),
        ("version", "Version", "number"),
    ]
    by_model = {**_PERIOD, "group_by": "model"}
    models = [
        ("group.model", "Model", "string"),
        ("prompt_tokens", "Prompt tokens", "number"),
        ("generated_tokens", "Generated tokens", "number"),
        *_MONEY,
        ("usd_per_million_tokens", "Per million tokens", "number"),
        ("usd_per_million_tokens_at_full_use", "At full use", "number"),
        ("usd_per_request", "Per request", "number"),
    ]
    unit_costs = [
        ("start", "Day", "timestamp"),
        ("group.model", "Model", "string"),
        ("usd_per_million_tokens", "Per million tokens", "number"),
    ]
    by_pool = {**_PERIOD, "granularity": "total", "group_by": "cluster,node_pool", "idle": "separate"}
    return with_panels(
        empty_dashboard("GPU ledger", "gpucost-ledger", "Cost of GPUs by hour, from the ledger.", span="now-31d"),
        [
            data_source_variable("ledger", "Ledger (Infinity)", "yesoreyeram-infinity-datasource"),
            window.current(VariableOption(selected=True, text="7d", value="7d")),
        ],
        [
            (
                "Period",
                [
                    with_size(_table("Business units", ApiQuery("/v1/business-units", _PERIOD, units)), 16, 9),
                    with_size(text_panel("About these figures", _EXPLANATION), 8, 9),
                    with_size(_daily("By day and business unit", ApiQuery("/v1/costs", daily, by_day)), 24, 9),
                ],
            ),
            (
                "Waste and idle cost",
                [
                    with_size(
                        _table("Most waste", ApiQuery("/v1/waste", {**_PERIOD, "limit": "20"}, workloads)), 12, 10
                    ),
                    with_size(_table("Node pools and their idle cost", ApiQuery("/v1/costs", by_pool, pools)), 12, 10),
                ],
            ),
            (
                "Models",
                [
                    with_size(
                        _counts(
                            _table("Models", ApiQuery("/v1/inference", {**by_model, "granularity": "total"}, models)),
                            "Prompt tokens",
                            "Generated tokens",
                        ),
                        24,
                        9,
                    ),
                    with_size(
                        _daily(
                            "Cost of a million tokens by day and model",
                            ApiQuery("/v1/inference", {**by_model, "granularity": "day"}, unit_costs),
                        ),
                        24,
                        9,
                    ),
                ],
            ),
            (
                "State of the data",
                [with_size(_table("Hours", ApiQuery("/v1/hours", {"window": "24h"}, hours)), 24, 10)],
            ),
        ],
    )


def _table(title: str, query: ApiQuery) -> Panel:
    return table.Panel().title(title).datasource(LEDGER).show_header(True).unit(USD).decimals(2).with_target(query)


def _counts(panel: Panel, *headings: str) -> Panel:
    """Show the numbers of some columns as counts and not as money."""
    for heading in headings:
        panel = panel.override_by_name(heading, [DynamicConfigValue(id_val="unit", value="short")])
    return panel


def _daily(title: str, query: ApiQuery) -> Panel:
    """Build a daily chart. Grafana splits the plugin's rows into a series for each name."""
    split = DataTransformerConfig(id_val="prepareTimeSeries", options={"format": "multi"})
    panel = time_series_panel(title, USD).datasource(LEDGER)
    return panel.with_target(query).with_transformation(split)
