"""The settings document, how it is read, and the store that keeps it."""

from collections.abc import Callable
from datetime import datetime

from gpucost.features.alerting.settings import SettingsDocument
from gpucost.settings.documents import ReadDocument, read_document
from gpucost.storage.ports import Table
from gpucost.storage.settings_store import DynamoSettingsStore

__all__ = ["SettingsDocument", "SettingsDocumentStore", "parse_settings", "read_settings"]


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
