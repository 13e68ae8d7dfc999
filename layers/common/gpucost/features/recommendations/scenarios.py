"""Scenarios from the ledger: what the last whole days would have looked like."""

from collections.abc import Iterator, Mapping

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import floor_day
from gpucost.core.model import Capacity, Costs
from gpucost.core.rollups import DAY, FactKey
from gpucost.features.recommendations.what_if import Move, Outcome, what_if
from gpucost.storage.ports import Clock, Rollups, SettingsStore


class WhatIfService:
    """Works out scenarios.

    Args:
        settings_store: names the clusters.
        rollups: days and their facts.
        clock: the time now.
    """

    def __init__(self, settings_store: SettingsStore, rollups: Rollups, *, clock: Clock) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._clock = clock

    def what_if(self, move: Move, *, days: int, cluster: str | None = None) -> tuple[Outcome, str]:
        """The last whole UTC days with some GPUs moved, and their currency; days without any figures are left out.

        Raises:
            InvalidInputError: an unknown cluster or profile, several currencies, or there is nothing to move.
        """
        settings = self._settings_store.current().settings
        names = [cluster_settings.name for cluster_settings in settings.clusters]
        if cluster is not None and cluster not in names:
            raise InvalidInputError(f"cluster {cluster!r} is not in the settings; there are: {', '.join(names)}")
        end = floor_day(self._clock())
        currencies: set[str] = set()

        def read() -> Iterator[tuple[Mapping[FactKey, Costs], Capacity]]:
            for day in (end - DAY * number for number in range(days, 0, -1)):
                facts: dict[FactKey, Costs] = {}
                capacities = []
                has_figures = False
                for name in names if cluster is None else [cluster]:
                    for summary in self._rollups.days(name, day, day + DAY):
                        hours_with_figures = [cluster_settings for cluster_settings in summary.hours if cluster_settings.status != "incomplete"]
                        currencies.update(cluster_settings.currency for cluster_settings in hours_with_figures)
                        has_figures = has_figures or bool(hours_with_figures)
                        if summary.totals is not None and summary.totals.capacity is not None:
                            capacities.append(summary.totals.capacity)
                    for _, day_facts in self._rollups.facts(name, day, day + DAY):
                        for key, costs in day_facts.items():
                            facts[key] = Costs.total((facts[key], costs)) if key in facts else costs
                if has_figures or facts:
                    yield facts, Capacity.total(capacities)

        outcome = what_if(move, read())
        if len(currencies) > 1:
            raise InvalidInputError(f"these days are of several currencies: {', '.join(sorted(currencies))}")
        return outcome, next(iter(currencies), settings.pricing.currency)
