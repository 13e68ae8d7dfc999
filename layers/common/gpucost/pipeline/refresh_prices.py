"""Refreshes the price book: fetches prices of the instance types in use from AWS, in few calls.

Refreshing twice changes nothing. If a source or region fails, the others are still refreshed.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct, field

from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.metering.instance_types import SAGEMAKER_PREFIX
from gpucost.core.pricing.prices import SPOT_VALID_FOR, OperatingSystem, Price, region_of, region_of_zone_id
from gpucost.pipeline.refresh_bill import BillRefreshService
from gpucost.runtime.messages import PricesDue
from gpucost.settings import CoreSettings
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore
from gpucost.storage.price_book import PriceStore, PriceUpdate

if TYPE_CHECKING:
    from gpucost.sources.aws_prices import AwsPriceList, Ec2InstanceTypes, Ec2SpotHistory

FetchedSource = Literal["spot", "on-demand", "shapes", "cur"]
FETCHED_SOURCES: tuple[FetchedSource, ...] = get_args(FetchedSource)
SPOT_HISTORY = timedelta(days=90)
"""How far back EC2 returns spot prices."""
SPOT_OVERLAP = timedelta(hours=2)
"""Fetched again each time, in case EC2 published a price late."""
INSTANCE_TYPES_PER_REQUEST = 10
"""How many instance types without up-to-date spot prices are fetched together."""
IN_USE_PERIOD = timedelta(days=7)
"""How old a cluster's newest hour may be to show which instance types are in use."""
RATING_DELAY = timedelta(minutes=4)
"""After the hour: a minute before dispatch sends the hour that has ended."""
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]{1,40}\.[a-z0-9-]{1,40}")
"""Names that EC2 could have. It refuses requests with others, for all clusters of a region."""
TypesByRegion = Mapping[str, Collection[str]]
"""Instance types by region."""


class SourceRefresh(Struct, frozen=True):
    """The result of refreshing one source."""

    source: FetchedSource
    prices_changed: int
    """How many instance types (by zone or region) have changed prices or shapes; for the bill, how many hours."""
    past_prices_changed: int
    """How many changes affect times that may have been rated."""
    unlisted_types: tuple[str, ...] = ()
    """`region type` of instance types that are in use and that AWS does not list."""
    notes: tuple[str, ...] = ()
    bytes_scanned: int = 0
    """By Athena, which charges by them."""


class PricesRefresh(Struct):
    """The result of a refresh."""

    refreshed: list[SourceRefresh] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """One sentence per source and region that could not be refreshed."""


class PriceRefreshService:
    """Handles `PricesDue`.

    Args:
        settings_store: settings, with the clusters, operating systems and tenancy.
        ledger: recent hours, which show the instance types in use.
        book: the price book to refresh.
        spot: fetches spot prices.
        price_list: fetches on-demand prices.
        catalogue: fetches shapes of instance types.
        bill: refreshes the bill.
        fetched: the sources that this deployment fetches.
        clock: returns the current time.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        book: PriceStore,
        *,
        spot: "Ec2SpotHistory",
        price_list: "AwsPriceList",
        catalogue: "Ec2InstanceTypes",
        bill: BillRefreshService,
        fetched: Collection[str],
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._book = book
        self._spot = spot
        self._price_list = price_list
        self._catalogue = catalogue
        self._bill = bill
        self._fetched = fetched
        self._clock = clock

    def refresh(self, due: PricesDue) -> PricesRefresh | None:
        """Refresh what a message requests; return None before the first settings push.

        Raises:
            InvalidInputError: this deployment does not fetch the requested source.
            SourceError: the table failed.
        """
        if due.source is not None and due.source not in self._fetched:
            raise InvalidInputError(
                f"{due.source} is not fetched by this deployment, which fetches: "
                f"{', '.join(sorted(self._fetched)) or 'nothing'}; "
                "the stack's parameters SpotPrices, OnDemandPrices, InstanceShapes and BillPrices switch them on"
            )
        try:
            settings = self._settings_store.current().settings
        except SettingsMissingError:
            return None
        result = PricesRefresh()
        seen, newest_hour = self._types_in_use(settings, result)
        priced = {source: _by_region(self._book.newest(source)) for source in ("spot", "on-demand")}
        in_use = {
            region: {*seen.get(region, ()), *priced["spot"].get(region, ()), *priced["on-demand"].get(region, ())}
            for region in {*seen, *priced["spot"], *priced["on-demand"]}
        }
        for source in FETCHED_SOURCES:
            if source not in self._fetched or due.source not in (None, source):
                continue
            if source == "spot":
                self._refresh_spot(settings, _ec2_types(in_use), newest_hour, result)
            elif source == "on-demand":
                listed = priced["on-demand"] if due.new_only else {}
                self._refresh_on_demand(settings, _without_stored_types(in_use, listed), newest_hour, result)
            elif source == "cur":
                if not due.new_only:
                    self._refresh_bill(settings, due, result)
            else:
                shapes = self._book.in_force(self._clock(), self._clock()).shapes if due.new_only else {}
                of_ec2 = _ec2_types(in_use)
                self._refresh_shapes(_without_stored_types(of_ec2, dict.fromkeys(of_ec2, shapes)), newest_hour, result)
        return result

    def _refresh_spot(
        self, settings: CoreSettings, in_use: TypesByRegion, newest_hour: datetime | None, result: PricesRefresh
    ) -> None:
        systems = settings.pricing.operating_systems
        stored = self._book.newest("spot")

        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            for since, requested in _spot_requests(stored, region, types, systems, self._clock()):
                now = self._clock()
                prices = self._spot.fetch(region, requested, systems, since=since, now=now)
                update = self._book.merge_prices(
                    "spot", prices, since=since, rated_until=_rated_until(now, newest_hour), now=now
                )
                # A type without spot capacity in a region has no price history, so no type counts as unknown.
                yield update, set(requested)

        self._refresh_regions("spot", in_use, refresh_region, result)

    def _refresh_on_demand(
        self, settings: CoreSettings, in_use: TypesByRegion, newest_hour: datetime | None, result: PricesRefresh
    ) -> None:
        section = settings.pricing

        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            now = self._clock()
            prices = self._price_list.fetch(
                region, types, section.operating_systems, tenancy=section.on_demand.tenancy, now=now
            )
            update = self._book.merge_prices("on-demand", prices, rated_until=_rated_until(now, newest_hour), now=now)
            yield update, {price.applies_to["instance_type"] for price in prices}

        self._refresh_regions("on-demand", in_use, refresh_region, result)

    def _refresh_shapes(self, in_use: TypesByRegion, newest_hour: datetime | None, result: PricesRefresh) -> None:
        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            shapes = self._catalogue.fetch(region, types)
            now = self._clock()
            update = self._book.update_shapes(shapes, rated_until=_rated_until(now, newest_hour), now=now)
            yield update, {shape.instance_type for shape in shapes}

        self._refresh_regions("shapes", in_use, refresh_region, result)

    def _refresh_bill(self, settings: CoreSettings, due: PricesDue, result: PricesRefresh) -> None:
        try:
            refreshed = self._bill.refresh(
                settings, [datetime.fromisoformat(f"{month}-01T00:00:00Z") for month in due.months]
            )
        except (SourceError, ConflictError) as error:
            result.failures.append(f"the bill: {error}")
            return
        changed = len(refreshed.changed_hours)
        result.refreshed.append(
            SourceRefresh("cur", changed, changed, notes=refreshed.notes, bytes_scanned=refreshed.bytes_scanned)
        )

    def _refresh_regions(
        self,
        source: FetchedSource,
        in_use: TypesByRegion,
        refresh_region: Callable[[str, Collection[str]], Iterable[tuple[PriceUpdate, set[str]]]],
        result: PricesRefresh,
    ) -> None:
        prices, changes, unknown = 0, 0, []
        for region, types in sorted(in_use.items()):
            if not types:
                continue
            listed: set[str] = set()
            try:
                for update, names in refresh_region(region, types):
                    prices += update.changed_count
                    changes += len(update.changes)
                    listed |= names
            except (SourceError, ConflictError) as error:  # a failing region delays only itself
                result.failures.append(f"{source} prices of {region}: {error}")
                continue
            unknown += [f"{region} {name}" for name in sorted(set(types) - listed)]
        result.refreshed.append(SourceRefresh(source, prices, changes, tuple(unknown)))

    def _types_in_use(
        self, settings: CoreSettings, result: PricesRefresh
    ) -> tuple[dict[str, set[str]], datetime | None]:
        """Return the instance types in use, by region, in each cluster's newest hour, and the newest of these hours."""
        in_use: dict[str, set[str]] = {}
        newest = None
        for cluster in settings.clusters:
            try:
                newest_hour, names = self._newest_types(cluster.name)
            except SourceError as error:  # a failing cluster delays only itself
                result.failures.append(f"instance types of {cluster.name}: {error}")
                continue
            if newest_hour is not None:
                newest = max(newest_hour, newest or newest_hour)
            for region, name in names:
                in_use.setdefault(region, set()).add(name)
        return in_use, newest

    def _newest_types(self, cluster: str) -> tuple[datetime | None, set[tuple[str, str]]]:
        """Return a cluster's newest hour with figures, and the regions and instance types of its nodes."""
        now = self._clock()
        manifests = self._ledger.manifests(cluster, floor_hour(now - IN_USE_PERIOD), floor_hour(now) + HOUR)
        rated = [manifest.hour for manifest in manifests if manifest.status != "incomplete"]
        if not rated:
            return None, set()
        nodes, _ = self._ledger.nodes_and_charges(cluster, rated[-1])
        # If no metrics describe the nodes, the lines name the instance types that pods ran on.
        described = nodes or self._ledger.lines(cluster, rated[-1])
        types = {(region_of(node.zone), node.instance_type) for node in described}
        return rated[-1], {(region, name) for region, name in types if region and _INSTANCE_TYPE.fullmatch(name)}


def _spot_requests(
    stored: Iterable[Price], region: str, types: Collection[str], systems: Collection[OperatingSystem], now: datetime
) -> list[tuple[datetime, set[str]]]:
    """Return which instance types' spot prices to fetch together, and from when on.

    Types that are up to date are fetched together. The others are fetched a few at a time, so that a long history is
    stored in parts, and not lost if the function runs out of time.
    """
    valid_until: dict[tuple[str, str], datetime] = {}
    newest: datetime | None = None
    for price in stored:
        attributes = price.applies_to
        if region_of_zone_id(attributes["zone_id"]) != region or price.valid_from is None or price.valid_to is None:
            continue
        key = (attributes["instance_type"], attributes["operating_system"])
        valid_until[key] = max(price.valid_to, valid_until.get(key, price.valid_to))
        newest = max(price.valid_from, newest or price.valid_from)
    oldest = now - SPOT_HISTORY
    starts: dict[str, datetime] = {}
    for name in types:
        ends = [valid_until.get((name, system)) for system in systems]
        starts[name] = min((end - SPOT_VALID_FOR if end else oldest) for end in ends)
    # Prices that are valid beyond now were fetched together, at the newest time or later.
    current = {name for name in types if starts[name] + SPOT_VALID_FOR > now}
    behind = sorted({*types} - current)
    requests = []
    size = INSTANCE_TYPES_PER_REQUEST
    for names in (current, *({*behind[start : start + size]} for start in range(0, len(behind), size))):
        if names:
            since = min(starts[name] for name in names)
            if names is current and newest is not None:
                since = max(since, newest)
            requests.append((max(since - SPOT_OVERLAP, oldest), names))
    return requests


def _rated_until(now: datetime, newest_hour: datetime | None) -> datetime:
    """Return the end of the newest hour that may have been rated: the last hour, once it may have been dispatched."""
    last_end = floor_hour(now)
    if now - last_end >= RATING_DELAY or (newest_hour is not None and newest_hour + HOUR >= last_end):
        return last_end
    return last_end - HOUR


def _by_region(prices: Iterable[Price]) -> dict[str, set[str]]:
    """Return the instance types of prices, by region."""
    types: dict[str, set[str]] = {}
    for price in prices:
        region = price.applies_to.get("region") or region_of_zone_id(price.applies_to.get("zone_id", ""))
        if region:
            types.setdefault(region, set()).add(price.applies_to["instance_type"])
    return types


def _ec2_types(in_use: TypesByRegion) -> dict[str, set[str]]:
    """The types that EC2 knows. Those of SageMaker HyperPod have no spot market, and the shapes of EC2's."""
    return {
        region: {name for name in types if not name.startswith(SAGEMAKER_PREFIX)} for region, types in in_use.items()
    }


def _without_stored_types(in_use: TypesByRegion, priced: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    return {region: {*types} - {*priced.get(region, ())} for region, types in in_use.items()}
