"""The settings document: the sections of the core and of every feature, and the store that keeps it."""

from collections.abc import Callable
from datetime import datetime

from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.settings.documents import parse_document
from gpucost.storage.ports import Table
from gpucost.storage.settings_store import DynamoSettingsStore


class SettingsDocument(SettingsWithAlerts):
    """The whole settings document: the sections of the core (`CoreSettings`) and those of every feature."""


def parse_settings(text: str) -> SettingsDocument:
    """Read and validate a settings document (YAML, of which JSON is a part).

    Raises:
        SettingsError: one sentence that names the key and what is allowed.
    """
    return parse_document(text, SettingsDocument)


class SettingsDocumentStore(DynamoSettingsStore[SettingsDocument]):
    """The store of whole documents.

    Args:
        table: the ledger's table.
        clock: the time now, for the cache.
    """

    def __init__(self, table: Table, *, clock: Callable[[], datetime]) -> None:
        super().__init__(table, SettingsDocument, clock=clock)
