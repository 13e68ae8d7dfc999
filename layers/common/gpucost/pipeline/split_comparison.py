"""Compares what each split policy would charge for the same hours, from stored usage."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts
from gpucost.core.attribution import build_record
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import HourRecord
from gpucost.core.pricing.price_split import SPLIT_POLICIES
from gpucost.pipeline.attribute import attribution_rules
from gpucost.pipeline.pricing import Pricer, split_policy_of
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import SettingsStore


class SplitSums(Struct):
    """The sums that one policy would charge."""

    policy_name: str
    costs_by_unit: CostsByKey[str] = field(default_factory=CostsByKey)
    capacity: CapacityCosts | None = field(default_factory=CapacityCosts)
    """None if the capacity of any hour is unknown."""
    hour_count: int = 0
    """Cluster-hours with stored usage."""
    currency: str = "USD"
    notes: dict[str, None] = field(default_factory=dict)
    """Which prices are missing under this policy, each once."""

    def add(self, record: HourRecord) -> None:
        """Add an hour.

        Raises:
            InvalidInputError: its currency differs from that of the hours before.
        """
        if self.hour_count and record.currency != self.currency:
            raise InvalidInputError(
                f"the hours are in {self.currency} and {record.currency}, which cannot be added up; compare one "
                "cluster (--cluster), or a period before or after the change of currency"
            )
        self.currency = record.currency
        self.costs_by_unit += record.by_business_unit()
        self.capacity = CapacityCosts.total_if_complete(
            [self.capacity, record.totals.capacity if record.totals else None]
        )
        self.hour_count += 1


class SplitComparer:
    """Rates stored hours with every split policy, and changes nothing.

    The policies are the built-in ones, and the one with own weights if the settings have it.
    """

    def __init__(self, settings_store: SettingsStore, ledger: Ledger, pricer: Pricer) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._pricer = pricer

    def compare(self, clusters: Sequence[str], start: datetime, end: datetime) -> list[SplitSums]:
        """Return the sums of the hours in `[start, end)` for each policy, from the same usage, prices and settings.

        Raises:
            InvalidInputError: the hours have several currencies.
            SourceError: the ledger could not be read.
        """
        configured = split_policy_of(self._settings_store.current().settings.pricing)
        policies = {**SPLIT_POLICIES, configured.name: configured}
        sums = {name: SplitSums(name) for name in policies}
        for cluster in clusters:
            for manifest in self._ledger.manifests(cluster, start, end):
                usage = self._ledger.usage(manifest)
                if usage is None:
                    continue
                settings = self._settings_store.version(manifest.settings_version).settings
                rules = attribution_rules(
                    settings, self._pricer.pricing_of_hours(settings, [manifest.hour])[manifest.hour]
                )
                for name, policy in policies.items():
                    record = build_record(usage, replace(rules, pricing=replace(rules.pricing, split_policy=policy)))
                    sums[name].add(record)
                    sums[name].notes |= dict.fromkeys(note for note in record.notes if note not in usage.notes)
        return list(sums.values())
