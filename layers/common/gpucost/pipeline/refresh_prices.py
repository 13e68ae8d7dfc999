"""The prices function's job: what is in use is asked of AWS in few calls, and laid over what the price book holds.

Refreshing twice changes nothing. A source or region that fails leaves the others refreshed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, get_args

from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.pricing.prices import SPOT_VALID_FOR, OperatingSystem, Price, region_of, region_of_zone_id
from gpucost.pipeline.refresh_bill import BillService
from gpucost.runtime.messages import PricesDue
from gpucost.settings import Settings
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore
from gpucost.storage.price_book import PriceStore
from gpucost.storage.price_ports import InstanceTypes, PriceList, PriceUpdate, SpotHistory

Source = Literal["spot", "on-demand", "shapes", "cur"]
SOURCES: tuple[Source, ...] = get_args(Source)
SPOT_HISTORY = timedelta(days=90)
"""How far back EC2 tells spot prices."""
OVERLAP = timedelta(hours=2)
"""What is asked again, lest a point that EC2 published late is missed."""
TYPES_PER_REQUEST = 10
"""Instance types whose spot prices are not up to date, in one chain of requests."""
IN_USE_LOOKBACK = timedelta(days=7)
"""How old a cluster's newest hour may be to tell what is in use."""
RATING_DELAY = timedelta(minutes=4)
"""Past the hour: a minute before dispatch sends the hour that has closed."""
InUse = Mapping[str, Collection[str]]
"""Instance types by region."""


@dataclass(frozen=True, slots=True)
class SourceRefresh:
    """What one source's refresh led to."""

    source: Source
    prices: int
    """Things whose prices, or their validity, or shapes are not what they were; hours, of the bill."""
    changes: int
    """Of times that may have been rated."""
    unknown: tuple[str, ...] = ()
    """`region type` of what is in use and AWS does not list."""
    notes: tuple[str, ...] = ()
    bytes_scanned: int = 0
    """By Athena, which charges for them."""


@dataclass(slots=True)
class RefreshResult:
    """What a refresh led to."""

    refreshed: list[SourceRefresh] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """One sentence per source and region that could not be refreshed."""


class PricesService:
    """Handles `PricesDue`.

    Args:
        settings_store: names the clusters, their operating systems and the tenancy.
        ledger: recent hours, which tell the instance types in use.
        book: to be refreshed.
        spot: spot prices.
        price_list: on-demand prices.
        catalogue: shapes.
        bill: what AWS charged.
        fetched: the sources that this deployment may ask.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        book: PriceStore,
        *,
        spot: SpotHistory,
        price_list: PriceList,
        catalogue: InstanceTypes,
        bill: BillService,
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

    def refresh(self, due: PricesDue) -> RefreshResult | None:
        """Refresh what is due; None before the first settings push.

        Raises:
            InvalidInputError: a source is asked for that this deployment does not fetch.
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
        seen, newest_hour = self._in_use(settings)
        priced = {source: _by_region(self._book.newest(source)) for source in ("spot", "on-demand")}
        in_use = {
            region: {*seen.get(region, ()), *priced["spot"].get(region, ()), *priced["on-demand"].get(region, ())}
            for region in {*seen, *priced["spot"], *priced["on-demand"]}
        }
        result = RefreshResult()
        for source in SOURCES:
            if source not in self._fetched or due.source not in (None, source):
                continue
            if source == "spot":
                self._refresh_spot(settings, in_use, newest_hour, result)
            elif source == "on-demand":
                known = priced["on-demand"] if due.new_only else {}
                self._refresh_on_demand(settings, _except_priced(in_use, known), newest_hour, result)
            elif source == "cur":
                if not due.new_only:
                    self._refresh_bill(settings, due, result)
            else:
                shapes = self._book.in_force(self._clock(), self._clock()).shapes if due.new_only else {}
                self._refresh_shapes(_except_priced(in_use, dict.fromkeys(in_use, shapes)), newest_hour, result)
        return result

    def _refresh_spot(
        self, settings: Settings, in_use: InUse, newest_hour: datetime | None, result: RefreshResult
    ) -> None:
        systems = settings.pricing.operating_systems
        known = self._book.newest("spot")

        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            for since, own in _spot_requests(known, region, types, systems, self._clock()):
                now = self._clock()
                prices = self._spot.fetch(region, own, systems, since=since, now=now)
                replaced = self._book.replace(
                    "spot", prices, since=since, rated_until=_rated_until(now, newest_hour), now=now
                )
                # A type without spot capacity in a region has no history: nothing is missing.
                yield replaced, set(own)

        self._each_region("spot", in_use, refresh_region, result)

    def _refresh_on_demand(
        self, settings: Settings, in_use: InUse, newest_hour: datetime | None, result: RefreshResult
    ) -> None:
        section = settings.pricing

        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            now = self._clock()
            prices = self._price_list.fetch(
                region, types, section.operating_systems, tenancy=section.on_demand.tenancy, now=now
            )
            replaced = self._book.replace("on-demand", prices, rated_until=_rated_until(now, newest_hour), now=now)
            yield replaced, {price.applies_to["instance_type"] for price in prices}

        self._each_region("on-demand", in_use, refresh_region, result)

    def _refresh_shapes(self, in_use: InUse, newest_hour: datetime | None, result: RefreshResult) -> None:
        def refresh_region(region: str, types: Collection[str]) -> Iterator[tuple[PriceUpdate, set[str]]]:
            shapes = self._catalogue.fetch(region, types)
            now = self._clock()
            replaced = self._book.replace_shapes(shapes, rated_until=_rated_until(now, newest_hour), now=now)
            yield replaced, {shape.instance_type for shape in shapes}

        self._each_region("shapes", in_use, refresh_region, result)

    def _refresh_bill(self, settings: Settings, due: PricesDue, result: RefreshResult) -> None:
        try:
            refreshed = self._bill.refresh(
                settings, [datetime.fromisoformat(f"{month}-01T00:00:00Z") for month in due.months]
            )
        except (SourceError, ConflictError) as error:
            result.failures.append(f"the bill: {error}")
            return
        changed = len(refreshed.changed)
        result.refreshed.append(
            SourceRefresh("cur", changed, changed, notes=refreshed.notes, bytes_scanned=refreshed.bytes_scanned)
        )

    def _each_region(
        self,
        source: Source,
        in_use: InUse,
        refresh_region: Callable[[str, Collection[str]], Iterable[tuple[PriceUpdate, set[str]]]],
        result: RefreshResult,
    ) -> None:
        prices, changes, unknown = 0, 0, []
        for region, types in sorted(in_use.items()):
            if not types:
                continue
            listed: set[str] = set()
            try:
                for update, names in refresh_region(region, types):
                    prices += update.prices
                    changes += len(update.changes)
                    listed |= names
            except (SourceError, ConflictError) as error:  # one region's trouble delays only itself
                result.failures.append(f"{source} prices of {region}: {error}")
                continue
            unknown += [f"{region} {name}" for name in sorted(set(types) - listed)]
        result.refreshed.append(SourceRefresh(source, prices, changes, tuple(unknown)))

    def _in_use(self, settings: Settings) -> tuple[dict[str, set[str]], datetime | None]:
        """What the newest hour of each cluster shows in use; and the newest of these hours."""
        now = self._clock()
        in_use: dict[str, set[str]] = {}
        newest = None
        for cluster in settings.clusters:
            manifests = self._ledger.manifests(cluster.name, floor_hour(now - IN_USE_LOOKBACK), floor_hour(now) + HOUR)
            rated = [manifest.hour for manifest in manifests if manifest.status != "incomplete"]
            if not rated:
                continue
            newest = max(rated[-1], newest or rated[-1])
            nodes, _ = self._ledger.nodes(cluster.name, rated[-1])
            # Where no metrics describe the nodes, the lines name those that pods ran on.
            for one in nodes or self._ledger.lines(cluster.name, rated[-1]):
                region = region_of(one.zone)
                if region and one.instance_type:
                    in_use.setdefault(region, set()).add(one.instance_type)
        return in_use, newest


def _spot_requests(
    known: Iterable[Price],
    region: str,
    types: Collection[str],
    systems: Collection[OperatingSystem],
    now: datetime,
) -> list[tuple[datetime, set[str]]]:
    """From when on the spot prices of which types are asked: of those up to date together, of the others a few at a
    time, so that a long history is kept as it comes and not lost with a function that runs out of time."""
    reached: dict[tuple[str, str], datetime] = {}
    newest: datetime | None = None
    for price in known:
        facts = price.applies_to
        if region_of_zone_id(facts["zone_id"]) != region or price.valid_from is None or price.valid_to is None:
            continue
        key = (facts["instance_type"], facts["operating_system"])
        reached[key] = max(price.valid_to, reached.get(key, price.valid_to))
        newest = max(price.valid_from, newest or price.valid_from)
    oldest = now - SPOT_HISTORY
    starts: dict[str, datetime] = {}
    for name in types:
        ends = [reached.get((name, system)) for system in systems]
        starts[name] = min((end - SPOT_VALID_FOR if end else oldest) for end in ends)
    # What is valid beyond now was fetched together, at the newest point or later.
    current = {name for name in types if starts[name] + SPOT_VALID_FOR > now}
    behind = sorted({*types} - current)
    chains = []
    for own in (current, *({*behind[at : at + TYPES_PER_REQUEST]} for at in range(0, len(behind), TYPES_PER_REQUEST))):
        if own:
            since = min(starts[name] for name in own)
            if own is current and newest is not None:
                since = max(since, newest)
            chains.append((max(since - OVERLAP, oldest), own))
    return chains


def _rated_until(now: datetime, newest_hour: datetime | None) -> datetime:
    """The end of the newest hour that may have been rated: the one just closed is, once dispatch may have sent it."""
    closed = floor_hour(now)
    if now - closed >= RATING_DELAY or (newest_hour is not None and newest_hour + HOUR >= closed):
        return closed
    return closed - HOUR


def _by_region(prices: Iterable[Price]) -> dict[str, set[str]]:
    """Instance types by region, of prices in the book."""
    types: dict[str, set[str]] = {}
    for price in prices:
        region = price.applies_to.get("region") or region_of_zone_id(price.applies_to.get("zone_id", ""))
        if region:
            types.setdefault(region, set()).add(price.applies_to["instance_type"])
    return types


def _except_priced(in_use: InUse, known: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    return {region: {*types} - {*known.get(region, ())} for region, types in in_use.items()}
