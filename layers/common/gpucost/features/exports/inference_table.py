"""Rows of the table `inference`: the costs and tokens of each model in one cluster-hour.

They are apart from the FOCUS rows, because a pod that serves several models is one charge there. The rows of an hour
add up to its FOCUS rows with `x_CostPart` *allocated*. Columns with the same meaning have the same name.

docs/how-to/exports.md describes each column, and docs/decisions/0091 explains the choice.
"""

from collections.abc import Iterator, Sequence

from gpucost.core.amounts import Costs, quantize
from gpucost.core.costs_by_model import ModelSum, TokenWeights
from gpucost.core.hour_record import UNKNOWN_IF_EMPTY, ModelHour, ModelKey
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.features.exports.focus_columns import Row, column_types

_COLUMN_OF_FIGURE = {
    **{name: field.column for name, field in Costs.fields().items() if field.column},
    "unknown_tokens_usd": "x_UnknownTokensCost",
    "prompt_tokens": "x_PromptTokens",
    "generated_tokens": "x_GeneratedTokens",
    "cached_tokens": "x_CachedTokens",
    "requests": "x_Requests",
    "usd_per_million_tokens": "x_CostPerMillionTokens",
    "usd_per_million_prompt_tokens": "x_CostPerMillionPromptTokens",
    "usd_per_million_generated_tokens": "x_CostPerMillionGeneratedTokens",
    "usd_per_million_cached_tokens": "x_CostPerMillionCachedTokens",
    "usd_per_request": "x_CostPerRequest",
}
"""Column of each figure of `/v1/inference`."""
_COLUMN_OF_KEY = {
    "business_unit": "x_BusinessUnit",
    "namespace": "x_Namespace",
    "workload_kind": "x_WorkloadKind",
    "workload": "x_Workload",
    "gpu_model": "x_GpuModel",
    "server": "x_InferenceServer",
    "model": "x_Model",
    "consumer": "x_Consumer",
}
_COUNTS = "x_CachedTokens x_GeneratedTokens x_HourVersion x_PromptTokens x_Requests x_SettingsVersion"

INFERENCE_COLUMNS = column_types(
    text=f"BillingCurrency x_Cluster x_HourStatus {' '.join(_COLUMN_OF_KEY.values())}",
    amounts=" ".join(["x_WeightedTokens", *(set(_COLUMN_OF_FIGURE.values()) - set(_COUNTS.split()))]),
    whole=_COUNTS,
    times="ChargePeriodEnd ChargePeriodStart",
)
"""Type of each column, in the order of the columns."""


def inference_rows(manifest: Manifest, models: Sequence[ModelHour], weights: TokenWeights | None) -> Iterator[Row]:
    """Yield a row for each key of an hour's models, in order.

    Args:
        manifest: the hour's version.
        models: its costs by model.
        weights: by which its costs were split; None if they are not known. Then columns that depend on them are null.
    """
    hours_by_key: dict[ModelKey, list[ModelHour]] = {}
    for model in models:
        hours_by_key.setdefault(model.key, []).append(model)
    for key in sorted(hours_by_key):
        total = ModelSum.of(hours_by_key[key])
        figures = total.figures(weights or TokenWeights())
        row: Row = {column: figures[name] for name, column in _COLUMN_OF_FIGURE.items()}
        if weights is None:
            row |= dict.fromkeys(f"x_CostPerMillion{kind}Tokens" for kind in ("Prompt", "Generated", "Cached"))
        weighted = None if weights is None or total.prompt_tokens is None else total.weighted_tokens(weights)
        yield row | {
            "BillingCurrency": manifest.currency,
            "ChargePeriodStart": manifest.hour,
            "ChargePeriodEnd": manifest.hour + HOUR,
            "x_Cluster": manifest.cluster,
            "x_HourStatus": manifest.status,
            "x_HourVersion": manifest.version,
            "x_SettingsVersion": manifest.settings_version,
            "x_WeightedTokens": None if weighted is None else quantize(weighted),
            **{column: getattr(key, name) for name, column in _COLUMN_OF_KEY.items()},
            **{_COLUMN_OF_KEY[name]: getattr(key, name) or None for name in UNKNOWN_IF_EMPTY},
        }
