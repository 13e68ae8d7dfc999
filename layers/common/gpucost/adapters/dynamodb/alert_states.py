"""The memory of alert rules, in the ledger's table; fulfils `ports.AlertStates`."""

import hashlib
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from gpucost.adapters.dynamodb.table import FORMAT, Item, Table, check_format, key, text
from gpucost.domain.alerting import AlertState

_STATE = TypeAdapter(AlertState)


class DynamoAlertStates:
    """One item per cluster, rule and business unit.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def load(self, cluster: str) -> list[AlertState]:
        """All states kept for a cluster."""
        states = []
        for item in self._table.query(_partition(cluster)):
            check_format(item)
            states.append(_STATE.validate_json(text(item, "state")))
        return states

    def save(self, state: AlertState) -> AlertState:
        """Write a state on condition that its version is still the stored one; returns it with the next version.

        Raises:
            ConflictError: somebody else wrote first.
        """
        saved = replace(state, version=state.version + 1)
        item: Item = {
            **key(_partition(state.cluster), _sort_key(state)),
            "v": {"N": str(FORMAT)},
            "n": {"N": str(saved.version)},
            "state": {"S": _STATE.dump_json(saved).decode()},
        }
        if state.version:
            self._table.put(item, "n = :version", {":version": {"N": str(state.version)}})
        else:
            self._table.put(item, "attribute_not_exists(pk)")
        return saved


def _partition(cluster: str) -> str:
    return f"C#{cluster}#alerts"


def _sort_key(state: AlertState) -> str:
    """Names may be long and hold anything; a hash of both is neither."""
    return hashlib.sha256(f"{state.rule}\0{state.business_unit}".encode()).hexdigest()[:32]
