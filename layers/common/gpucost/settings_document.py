"""The settings document: the sections of the core and of every feature, and the store that keeps it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.settings.documents import parse_document
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
        client: a client of DynamoDB.
        table: the table's name.
        clock: the time now, for the cache.
    """

    def __init__(self, client: Any, table: str, *, clock: Callable[[], datetime]) -> None:
        super().__init__(client, table, SettingsDocument, clock=clock)
