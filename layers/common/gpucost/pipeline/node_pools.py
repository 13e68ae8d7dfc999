"""Reads which node pool an instance belonged to from the ledger."""

from collections.abc import Mapping
from datetime import datetime

from gpucost.core.metering.instance_types import instance_id_of
from gpucost.storage.ports import PublishedHours, SettingsStore


class LedgerNodePools:
    """Node pools by instance id, as the nodes of published hours name them."""

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours) -> None:
        self._settings_store = settings_store
        self._ledger = ledger

    def __call__(self, start: datetime, end: datetime) -> Mapping[str, str]:
        """Return the node pools of all clusters' nodes in `[start, end)`; nodes without a known one are left out."""
        return {
            instance_id_of(node.provider_id): node.node_pool
            for cluster in self._settings_store.current().clusters(start)
            for node in self._ledger.all_nodes(cluster, start, end)
            if node.node_pool
        }
