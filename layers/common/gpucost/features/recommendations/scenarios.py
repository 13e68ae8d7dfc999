"""What-if scenarios from the ledger's last whole days."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fnmatch import fnmatchcase

from msgspec import Struct

from gpucost.core.amounts import CapacityCosts, Costs, to_decimal
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.costs_by_model import ModelSum
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import ModelHour
from gpucost.core.hours import floor_day
from gpucost.core.rollups import DAY, FactKey
from gpucost.features.recommendations.model_what_if import ApiPrice, ModelOutcome, compare_models
from gpucost.features.recommendations.what_if import MoveToSlices, SliceMoveOutcome, calculate_move
from gpucost.settings import CoreSettings
from gpucost.storage.ports import Clock, PublishedHours, Rollups, SettingsStore


class WhatIfService:
    """Calculates what-if scenarios.

    Args:
        settings_store: names the clusters.
        rollups: reads days and their facts.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, rollups: Rollups, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._clock = clock

    def what_if(self, move: MoveToSlices, *, days: int, cluster: str | None = None) -> tuple[SliceMoveOutcome, str]:
        """The outcome of moving GPUs in the last whole UTC days, and its currency. Days without figures are left out.

        Raises:
            InvalidInputError: the cluster or profile is unknown, there are several currencies, or nothing to move.
        """
        settings = self._settings_store.current().settings
        names = _cluster_names(settings, cluster)
        end = floor_day(self._clock())
        currencies: set[str] = set()

        def read() -> Iterator[tuple[Mapping[FactKey, Costs], CapacityCosts]]:
            for day in (end - DAY * number for number in range(days, 0, -1)):
                capacities = []
                has_figures, all_facts = False, CostsByKey[FactKey]()
                for name in names:
                    for summary in self._rollups.days(name, day, day + DAY):
                        currencies.update(summary.currencies)
                        has_figures = has_figures or bool(summary.currencies)
                        if summary.totals is not None and summary.totals.capacity is not None:
                            capacities.append(summary.totals.capacity)
                    for _, facts in self._rollups.facts(name, day, day + DAY):
                        all_facts += facts
                if has_figures or all_facts:
                    yield all_facts, CapacityCosts.total(capacities)

        outcome = calculate_move(move, read())
        return outcome, _single_currency(currencies, settings)


class ModelsOutcome(Struct, frozen=True):
    """What models cost in a period, and what their tokens would cost elsewhere."""

    start: datetime
    end: datetime
    currency: str
    models: Sequence[ModelOutcome]
    unknown_tokens_usd: Decimal
    """The cost of inference servers whose tokens are unknown. No model has it."""


class ModelWhatIfService:
    """Compares what models cost with an API's price or with another GPU.

    Args:
        settings_store: names the clusters, and has the weights of tokens.
        ledger: reads costs by model.
        clock: the current time.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._clock = clock

    def compare(
        self,
        *,
        days: int,
        api_price: ApiPrice | None,
        gpu_model: str | None,
        cluster: str | None = None,
        business_unit: str | None = None,
        model: str = "*",
    ) -> ModelsOutcome:
        """Compare the last whole UTC days. Throughput on another GPU is measured in all clusters and business units.

        Args:
            days: number of days.
            api_price: the price of the API; None: not compared.
            gpu_model: whole words of the other GPU's name; None: not compared.
            cluster: only this cluster.
            business_unit: only this business unit.
            model: shell pattern of the models' names.

        Raises:
            InvalidInputError: nothing to compare with, an unknown cluster, several currencies, or no such model.
        """
        if api_price is None and gpu_model is None:
            raise InvalidInputError("pass the price of an API, another GPU model, or both")
        settings = self._settings_store.current().settings
        selected = _cluster_names(settings, cluster)
        end = floor_day(self._clock())
        start = end - DAY * days
        currencies: set[str] = set()
        rows: list[ModelHour] = []
        everywhere: list[ModelHour] = []
        for name in selected if gpu_model is None else _cluster_names(settings, None):
            manifests = self._ledger.manifests(name, start, end)
            currencies |= {manifest.currency for manifest in manifests if manifest.status != "incomplete"}
            models_by_hour = self._ledger.models_of(manifests)
            of_cluster = [row for hour in models_by_hour for row in models_by_hour[hour] if row.key.server]
            everywhere += of_cluster
            rows += [
                row
                for row in of_cluster
                if name in selected
                and business_unit in {None, row.key.business_unit}
                and (not row.key.model or fnmatchcase(row.key.model, model))
            ]
        currency = _single_currency(currencies, settings)
        outcomes = compare_models(rows, everywhere, settings.inference.rules().weights, api_price, gpu_model)
        if not outcomes:
            raise InvalidInputError(
                f"no model like {model!r} was served on these days. `gpucost report --inference` lists models"
            )
        unknown = ModelSum.of([row for row in rows if row.prompt_tokens is None]).costs
        return ModelsOutcome(start, end, currency, outcomes, to_decimal(unknown.allocated_usd))


def _cluster_names(settings: CoreSettings, cluster: str | None) -> list[str]:
    """Return the name of one cluster, or of all of them.

    Raises:
        InvalidInputError: the cluster is unknown.
    """
    names = [cluster_settings.name for cluster_settings in settings.clusters]
    if cluster is not None and cluster not in names:
        raise InvalidInputError(f"cluster {cluster!r} is not in the settings; allowed: {', '.join(names)}")
    return names if cluster is None else [cluster]


def _single_currency(currencies: set[str], settings: CoreSettings) -> str:
    if len(currencies) > 1:
        raise InvalidInputError(
            f"these days have several currencies: {', '.join(sorted(currencies))}. Choose days or a cluster with one"
        )
    return next(iter(currencies), settings.pricing.currency)
