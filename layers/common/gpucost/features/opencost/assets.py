"""OpenCost's assets: the GPU nodes of the ledger."""

from datetime import datetime, timedelta

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import CapacityCosts
from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import NodeHour
from gpucost.features.opencost.filters import Filter
from gpucost.reports.parameters import select_clusters
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import PublishedHours, SettingsStore

MAX_WINDOW = timedelta(days=35)
NODE_TYPE, CATEGORY, PROVIDER = "Node", "Compute", "AWS"


class AssetProperties(Struct, frozen=True, order=True):
    """What identifies an asset, and what a filter can match."""

    cluster: str
    name: str
    provider_id: str
    instance_type: str = ""
    node_pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    gpu_model: str = ""
    category: str = CATEGORY
    provider: str = PROVIDER
    type: str = NODE_TYPE.lower()


class Asset(Struct, frozen=True):
    """A GPU node in a window."""

    properties: AssetProperties
    hours: int
    """In how many hours it is recorded."""
    capacity: CapacityCosts

    @property
    def key(self) -> str:
        """Its name in the response."""
        properties = self.properties
        return "/".join((PROVIDER, CATEGORY, properties.cluster, NODE_TYPE, properties.provider_id, properties.name))


class AssetQuery(Struct, frozen=True):
    """A parsed query."""

    start: datetime
    end: datetime
    filter: Filter


class AssetService:
    """Computes assets from the ledger.

    Args:
        settings_store: source of the cluster names.
        ledger: hours with their nodes.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours) -> None:
        self._settings_store = settings_store
        self._ledger = ledger

    def compute(self, query: AssetQuery, *, scope: Scope) -> list[Asset]:
        """Return the nodes of a window, in order of cluster and name.

        Raises:
            ParameterError: the window is too long.
            SettingsMissingError: no settings yet.
        """
        if query.end - query.start > MAX_WINDOW:
            raise ParameterError("window", f"is longer than {MAX_WINDOW.days} days. Shorten it.")
        ledger = scoped_hours(self._ledger, scope)
        totals: dict[AssetProperties, tuple[int, CapacityCosts]] = {}
        for cluster in select_clusters(None, self._settings_store.current(), scope, query.start):
            if not query.filter.includes_cluster(cluster):
                continue
            for node in ledger.all_nodes(cluster, query.start, query.end):
                properties = _properties(cluster, node)
                if query.filter.matches(properties):
                    hours, capacity = totals.get(properties, (0, CapacityCosts()))
                    totals[properties] = hours + 1, capacity + node.capacity
        return [Asset(properties, *totals[properties]) for properties in sorted(totals)]


def _properties(cluster: str, node: NodeHour) -> AssetProperties:
    return AssetProperties(
        cluster,
        node.node,
        node.provider_id,
        node.instance_type,
        node.node_pool,
        node.capacity_type,
        node.zone,
        node.gpu_model,
    )


ASSET_FIELDS = {
    "type": "type",
    "assetType": "type",
    "name": "name",
    "cluster": "cluster",
    "category": "category",
    "provider": "provider",
    "providerID": "provider_id",
}
"""The fields of OpenCost's asset filters that the ledger has, with the attributes of `AssetProperties`."""
