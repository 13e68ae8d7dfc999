"""The dashboard of models: tokens per second, the GPUs of inference servers, and what a million tokens costs about."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from authoring.grafana.building import (
    ESTIMATE,
    GPUS,
    IN_CLUSTER,
    RATIO,
    USD,
    bar_gauge_panel,
    empty_dashboard,
    label_variable,
    live_variables,
    stat_panel,
    table_panel,
    with_panels,
    with_size,
)
from authoring.grafana.live import Level, cost_parts_panels, query_panel

_IN_MODEL = f'{IN_CLUSTER},business_unit=~"$business_unit",model=~"$model"'
_MODELS = Level("model", _IN_MODEL)
_PER_SECOND, _REQUESTS, _SECONDS = "short", "reqps", "s"
_QUEUE_NOTE = "Mean seconds that requests waited until their server processed them, over five minutes."
_BATCH_NOTE = "Mean requests that each pod processed at the same time, over five minutes."
_PROCESSED = 'kind=~"prompt|generated"'
_PER_MILLION = (
    f"GPUs × the dashboard's USD per GPU-hour ÷ prompt and generated tokens of the last five minutes. {ESTIMATE}"
)


def dashboard() -> Dashboard:
    """Build the dashboard for teams that serve models."""
    tokens = _MODELS.sum("tokens:rate5m", "model, kind")
    cost = _cost_per_million("model")
    servers = _MODELS.sum("gpus:sum", "server")
    used, waste = (_MODELS.part(part, "server") for part in ("effective", "waste"))
    now = [
        stat_panel("Tokens per second", _PER_SECOND, _sum("tokens:rate5m", _PROCESSED), "Prompt and generated tokens."),
        stat_panel("Requests per second", _REQUESTS, _sum("requests:rate5m")),
        stat_panel("GPUs of servers", GPUS, _sum("gpus:sum"), "GPUs of pods whose servers have counters."),
        stat_panel("Waiting, USD per hour", USD, f"{_MODELS.part('waste')} * $usd", f"GPUs not used. {ESTIMATE}"),
        stat_panel("USD per million tokens (estimate)", USD, _cost_per_million(), _PER_MILLION),
    ]
    columns = [
        ("Prompt tokens per second", _sum("tokens:rate5m", 'kind="prompt"', "business_unit, model"), _PER_SECOND),
        ("Generated tokens per second", _sum("tokens:rate5m", 'kind="generated"', "business_unit, model"), _PER_SECOND),
        ("GPUs", _MODELS.sum("gpus:sum", "business_unit, model"), GPUS),
        ("Waiting GPUs", _MODELS.part("waste", "business_unit, model"), GPUS),
        ("USD per million tokens (estimate)", _cost_per_million("business_unit, model"), USD),
        ("Time in queue", _queue_time("business_unit, model"), _SECONDS),
        ("Batch size", _batch_size("business_unit, model"), _PER_SECOND),
    ]
    return with_panels(
        empty_dashboard("GPU models", "gpucost-models", "Tokens and GPUs of inference servers by model, live."),
        [
            *live_variables(),
            label_variable("business_unit", "Business unit", _label_values("business_unit")),
            label_variable("model", "Model", _label_values("model")),
        ],
        [
            ("Now", [with_size(panel, width, 5) for panel, width in zip(now, (5, 4, 5, 5, 5), strict=True)]),
            (
                "Tokens",
                [
                    query_panel(
                        "Tokens per second by model",
                        _PER_SECOND,
                        tokens,
                        "{{model}} {{kind}}",
                        "Cached tokens are part of the prompt tokens.",
                    ),
                    query_panel("USD per million tokens by model (estimate)", USD, cost, "{{model}}", _PER_MILLION),
                    with_size(table_panel("Models", ESTIMATE, columns, ["business_unit", "model"]), 24, 9),
                ],
            ),
            (
                "Load",
                [
                    query_panel("Time in queue by model", _SECONDS, _queue_time("model"), "{{model}}", _QUEUE_NOTE),
                    query_panel("Batch size by model", _PER_SECOND, _batch_size("model"), "{{model}}", _BATCH_NOTE),
                ],
            ),
            (
                "GPUs of servers",
                [
                    *cost_parts_panels(
                        "GPUs of servers by part", _MODELS, "Effective: the GPUs worked. Waste: the servers waited."
                    ),
                    query_panel(
                        "Utilization by server",
                        RATIO,
                        f"{used} / ({used} + {waste} > 0)",
                        "{{server}}",
                        "Effective ÷ (effective + waste).",
                        maximum=1,
                    ),
                    query_panel("Waiting GPUs by server", GPUS, waste, "{{server}}", "Held by pods and not used."),
                    query_panel("GPUs by server", GPUS, servers, "{{server}}"),
                    with_size(
                        bar_gauge_panel(
                            "Most waiting, USD per hour",
                            USD,
                            f"topk(10, {_MODELS.part('waste', 'model')} * $usd)",
                            "{{model}}",
                            ESTIMATE,
                        ),
                        12,
                    ),
                ],
            ),
        ],
    )


def _label_values(label: str) -> str:
    return f"label_values(model:gpucost_gpus:sum{{{IN_CLUSTER}}}, {label})"


def _sum(record: str, matchers: str = "", by: str = "") -> str:
    grouped = f"sum by ({by}) " if by else "sum"
    return f"{grouped}({_MODELS.series(record, matchers)})"


def _cost_per_million(by: str = "") -> str:
    """Cost of GPUs per hour ÷ millions of tokens per hour; absent without tokens."""
    return f"{_sum('gpus:sum', by=by)} * $usd * 1e6 / ({_sum('tokens:rate5m', _PROCESSED, by)} * 3600 > 0)"


def _queue_time(by: str) -> str:
    """Mean seconds in the queue; absent without requests."""
    return f"{_sum('queue_seconds_sum:rate5m', by=by)} / ({_sum('queue_seconds_count:rate5m', by=by)} > 0)"


def _batch_size(by: str) -> str:
    """Mean batch size of the pods."""
    return f"{_sum('batch_size:sum', by=by)} / {_sum('batch_size:count', by=by)}"
