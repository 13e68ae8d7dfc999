"""Generates parameter values that schemathesis cannot: consistent ones, within the stored month.

Two in three valid cases get such values. The other cases are unchanged.
"""

import random
from typing import Any

import schemathesis

PERIODS = [
    ("2026-11-19T00:00:00Z", "2026-11-19T06:00:00Z"),
    ("2026-11-18T23:00:00Z", "2026-11-19T01:00:00Z"),
    ("2026-11-17T00:00:00Z", "2026-11-20T00:00:00Z"),
    ("2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z"),
    ("2026-11-18T05:00:00Z", "2026-11-19T03:00:00Z"),
    ("2026-10-21T00:00:00Z", "2026-11-20T00:00:00Z"),
    ("2026-11-19T22:00:00Z", "2026-11-20T02:00:00Z"),
]
OFTEN = [9, 9, 3, 9, 3, 1, 3]
"""Short periods are more frequent, because a month by hour takes a second."""
WINDOWS = ["today", "yesterday", "2d", "12h", "24h", "2026-11-18T05:00:00Z,2026-11-19T03:00:00Z"]
GROUPS = ["business_unit", "cluster", "namespace", "workload", "node_pool", "zone", "label:team", "pod", "node", ""]
ALLOCATED_BY = [
    "",
    "all",
    "cluster",
    "namespace",
    "controller",
    "controllerKind",
    "label:team",
    "namespace,pod",
    "node",
]
FILTERS = ["", 'namespace:"bu-a"', 'controllerKind!:"job"+cluster:"prod-eu"', 'label[team]~:"x"|pod<~:"serve"']
NAMES: dict[str, list[Any]] = {
    "cluster": ["prod-us-east-1", "prod-eu"],
    "namespace": ["bu-a", "bu-a,bu-b", "!kube-*", "nothing-*"],
    "business_unit": ["research", "!assistant"],
    "label": ["team:x", "!team:*"],
    "name": ["research", "assistant", "unknown"],
    "group_by": GROUPS,
    "aggregate": ALLOCATED_BY,
    "filter": FILTERS,
    "step": ["1h", "6h", "1d", "1w"],
    "sort": ["-waste_usd", "allocated_usd", "start"],
    "resolution": ["1m"],
}


@schemathesis.hook
def map_case(_context: schemathesis.HookContext, case: Any) -> Any:
    """Give a valid case values that select stored hours. The same case always gets the same values."""
    generated = case.meta is not None and case.meta.generation.mode.is_positive
    choice = random.Random(repr((case.path, sorted((case.query or {}).items(), key=repr))))
    if not generated or choice.random() < 1 / 3:
        return case
    query, taken = dict(case.query or {}), {parameter.name for parameter in case.operation.query}
    if case.operation.path.startswith(("/allocation", "/assets")):
        query["window"] = choice.choice(WINDOWS)
    elif "window" in taken and choice.random() < 1 / 3:
        query = {name: value for name, value in query.items() if name not in ("start", "end")}
        query["window"] = choice.choice(WINDOWS[:5])
    elif "start" in taken:
        query.pop("window", None)
        query["start"], query["end"] = choice.choices(PERIODS, weights=OFTEN)[0]
    for name in list(query):
        if name in ("cursor", "format") or (name not in NAMES and name not in ("start", "end", "window")):
            if isinstance(query[name], str) and name not in ("format", "idle", "granularity"):
                query.pop(name)  # a random cursor, node or zone finds nothing
        elif name in NAMES:
            query[name] = choice.choice(NAMES[name])
    if "group_by" in taken and choice.random() < 1 / 2:
        query["group_by"] = ",".join(choice.sample(GROUPS[:-1], choice.randint(1, 3)))
    case.query = query
    if "name" in (case.path_parameters or {}):
        case.path_parameters = {"name": choice.choice(NAMES["name"])}
    return case
