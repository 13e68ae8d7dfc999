"""Stores settings that a later version of the product wrote, and this one cannot read."""

from typing import Any

from gpucost.storage.table import SCHEMA_VERSION


def push_newer_format(client: Any, table: str, version: int) -> str:
    """Store such a version, and return the expected reason."""
    item = {"pk": {"S": "SETTINGS"}, "sk": {"S": f"{version:08d}"}, "v": {"N": "99"}}
    client.put_item(TableName=table, Item=item)
    return (
        f"version {version} of the settings: item 'SETTINGS' of the ledger has schema version 99; "
        f"this release reads up to {SCHEMA_VERSION}. Deploy the release that wrote it, or a newer one"
    )
