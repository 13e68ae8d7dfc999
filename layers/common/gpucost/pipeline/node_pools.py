"""Which node pool an instance belonged to, as the ledger saw it; fulfils `bill_ports.NodePools`."""

from collections.abc import Mapping
from datetime import datetime

from gpucost.storage.ports import PublishedHours, SettingsStore


class LedgerNodePools:
    """Node pools by instance id."""

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours) -> None:
        self._settings_store = settings_store
        self._ledger = ledger

    def __call__(self, start: datetime, end: datetime) -> Mapping[str, str]:
        """Of the nodes seen in `[start, end)`, of all clusters; one that nothing tells the pool of is left out."""
        return {
            node.provider_id.rpartition("/")[2]: node.node_pool
            for cluster in self._settings_store.current().clusters(start)
            for node in self._ledger.all_nodes(cluster, start, end)
            if node.node_pool
        }
