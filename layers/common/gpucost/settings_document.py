"""The settings document: the sections of the core and of every feature, and the store that keeps it."""

from collections.abc import Callable
from datetime import datetime

from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.settings.documents import ReadDocument, read_document
from gpucost.storage.ports import Table
from gpucost.storage.settings_store import DynamoSettingsStore


class SettingsDocument(SettingsWithAlerts):
    """The whole settings document: the sections of the core (`CoreSettings`) and those of every feature."""


def read_settings(text: str) -> ReadDocument[SettingsDocument]:
    """Read and validate a settings document (YAML, of which JSON is a part), and keep its text.

    Raises:
        SettingsError: one sentence that names the key and what is allowed.
    """
    return read_document(text, SettingsDocument)


def parse_settings(text: str) -> SettingsDocument:
    """Read and validate a settings document.

    Raises:
        SettingsError: as `read_settings`.
    """
    return read_settings(text).settings


class SettingsDocumentStore(DynamoSettingsStore[SettingsDocument]):
    """The store of whole documents.

    Args:
        table: the ledger's table.
        clock: the time now, for the cache.
    """

    def __init__(self, table: Table, *, clock: Callable[[], datetime]) -> None:
        super().__init__(table, SettingsDocument, clock=clock)
