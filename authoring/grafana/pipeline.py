"""The dashboard of the pipeline: whether metrics arrive, rules run and hours are computed in time."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as dashboards

from authoring.grafana.building import (
    CLOUDWATCH,
    GPUS,
    IN_CLUSTER,
    RATIO,
    Panel,
    cloudwatch_metric,
    data_source_variable,
    empty_dashboard,
    live_variables,
    promql_query,
    stat_panel,
    time_series_panel,
    with_panels,
    with_size,
)

_UNMEASURED = f'sum by (cluster) (cluster:gpucost_gpus:sum{{{IN_CLUSTER},part="unmeasured"}})'
_ALLOCATED = f"sum by (cluster) (cluster:gpucost_allocated_gpus:sum{{{IN_CLUSTER}}})"


def dashboard() -> dashboards.Dashboard:
    """Build the dashboard for the operators of gpucost. Its second half queries CloudWatch."""
    stacks = dashboards.QueryVariable("stack").label("Stack").datasource(CLOUDWATCH)
    stack_names: dict[str, object] = {
        "queryType": "dimensionValues",
        "region": "default",
        "namespace": "GpuCost",
        "metricName": "HoursSent",
        "dimensionKey": "stack",
        "dimensionFilters": {},
        "refId": "stack",
    }
    queues = dashboards.QueryVariable("dead_letters").label("Dead-letter queue").datasource(CLOUDWATCH)
    queue_names: dict[str, object] = {
        "queryType": "dimensionValues",
        "region": "default",
        "namespace": "AWS/SQS",
        "metricName": "ApproximateNumberOfMessagesVisible",
        "dimensionKey": "QueueName",
        "dimensionFilters": {},
        "refId": "dead_letters",
    }
    return with_panels(
        empty_dashboard(
            "GPU cost pipeline", "gpucost-pipeline", "Whether metrics arrive and hours are computed.", span="now-2d"
        ),
        [
            *live_variables()[:2],
            data_source_variable("cloudwatch", "CloudWatch", "cloudwatch"),
            stacks.query(stack_names),
            queues.query(queue_names).regex("/^$stack-DeadLetterQueue/"),
        ],
        [("Metrics", _metrics()), ("Hours (CloudWatch)", _hours()), ("Service (CloudWatch)", _service())],
    )


def _metrics() -> Sequence[Panel]:
    newest = f"timestamp(cluster:gpucost_capacity_gpus:sum{{{IN_CLUSTER}}})"
    scrapes = time_series_panel("Successful scrapes", RATIO, "Share of the targets of a job.").max(1)
    devices = time_series_panel("Devices with a utilization metric", GPUS, "GPUs and MIG devices.")
    return [
        with_size(
            stat_panel(
                "Last rule evaluation",
                "s",
                f"time() - max by (cluster) ({newest})",
                "Seconds ago. Rules are evaluated every minute.",
            ),
            4,
            8,
        ),
        with_size(
            scrapes.with_target(promql_query(f"avg by (cluster, job) (up{{{IN_CLUSTER}}})", "{{cluster}} {{job}}")), 10
        ),
        with_size(
            time_series_panel(
                "Unmeasured", RATIO, "Share of the allocated GPUs whose pods run without a utilization metric."
            )
            .max(1)
            .with_target(promql_query(f"{_UNMEASURED} / ({_ALLOCATED} > 0)", "{{cluster}}")),
            10,
        ),
        with_size(
            devices.with_target(
                promql_query(
                    "count by (cluster) (group by (cluster, node, UUID, GPU_I_ID) "
                    f"(device:gpucost_use:ratio{{{IN_CLUSTER}}}))",
                    "{{cluster}}",
                )
            ),
            12,
        ),
        with_size(
            time_series_panel("Alerts of the rules", GPUS, "Pending and firing.").with_target(
                promql_query(f'sum by (cluster, alertname, alertstate) (ALERTS{{{IN_CLUSTER},gpucost="true"}})')
            ),
            12,
        ),
    ]


def _hours() -> Sequence[Panel]:
    return [
        _chart(
            "Hours",
            GPUS,
            ("HoursSent", "dispatch", "Sum"),
            ("HoursPublished", "attribute", "Sum"),
            ("HoursIncomplete", "attribute", "Sum"),
            ("HoursGivenUp", "attribute", "Sum"),
        ),
        _chart(
            "Overdue hours, unreadable settings, failed clusters",
            GPUS,
            ("HoursOverdue", "dispatch", "Maximum"),
            ("SettingsVersionsUnreadable", "dispatch", "Maximum"),
            ("ClustersFailed", "dispatch", "Maximum"),
        ),
        _chart("Delay from the end of an hour to its figures", "s", ("LagSeconds", "attribute", "p90")),
        _chart(
            "Coverage of the allocation source",
            RATIO,
            ("AllocationCoverage", "attribute", "Average"),
            ("AllocationCoverage", "attribute", "Minimum"),
        ),
    ]


def _service() -> Sequence[Panel]:
    dead_letters = cloudwatch_metric(
        "ApproximateNumberOfMessagesVisible", "$dead_letters", "Maximum", namespace="AWS/SQS", dimension="QueueName"
    )
    waiting = (
        time_series_panel("Messages in the dead-letter queue", GPUS).datasource(CLOUDWATCH).with_target(dead_letters)
    )
    return [
        _chart(
            "Duration of each step",
            "s",
            ("AttributeSeconds", "attribute", "p90"),
            ("PublishSeconds", "attribute", "p90"),
        ),
        _chart(
            "Lines, queries and capacity units",
            GPUS,
            ("LinesWritten", "attribute", "Sum"),
            ("Queries", "attribute", "Sum"),
            ("CapacityUnits", "attribute", "Sum"),
        ),
        _chart("Samples that queries processed", "short", ("SamplesProcessed", "attribute", "Sum")),
        _chart(
            "Prices and exports",
            GPUS,
            ("PriceSourcesFailed", "prices", "Maximum"),
            ("HoursToRestate", "dispatch", "Maximum"),
            ("ExportDaysLeft", "export", "Maximum"),
        ),
        with_size(waiting, 12),
    ]


def _chart(title: str, unit: str, *metrics: tuple[str, str, str]) -> Panel:
    panel = time_series_panel(title, unit).datasource(CLOUDWATCH)
    for index, (name, service, statistic) in enumerate(metrics):
        label = name if statistic != "Minimum" else f"{name} (minimum)"
        panel = panel.with_target(
            cloudwatch_metric(name, service, statistic, label=label).ref_id(chr(ord("A") + index))
        )
    return with_size(panel, 12)
