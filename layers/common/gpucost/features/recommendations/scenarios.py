"""What-if scenarios from the ledger's last whole days."""

from collections.abc import Iterator, Mapping

from gpucost.core.amounts import CapacityCosts, Costs
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import floor_day
from gpucost.core.rollups import DAY, FactKey
from gpucost.features.recommendations.what_if import MoveToSlices, SliceMoveOutcome, calculate_move
from gpucost.storage.ports import Clock, Rollups, SettingsStore


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
        names = [cluster_settings.name for cluster_settings in settings.clusters]
        if cluster is not None and cluster not in names:
            raise InvalidInputError(f"cluster {cluster!r} is not in the settings; allowed: {', '.join(names)}")
        end = floor_day(self._clock())
        currencies: set[str] = set()

        def read() -> Iterator[tuple[Mapping[FactKey, Costs], CapacityCosts]]:
            for day in (end - DAY * number for number in range(days, 0, -1)):
                capacities = []
                has_figures, all_facts = False, CostsByKey[FactKey]()
                for name in names if cluster is None else [cluster]:
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
        if len(currencies) > 1:
            raise InvalidInputError(
                f"these days have several currencies: {', '.join(sorted(currencies))}. "
                "Choose days or a cluster with one"
            )
        return outcome, next(iter(currencies), settings.pricing.currency)
