"""Building blocks of scenarios: steps, and requests to every route."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Step = dict[str, Any]
HOUR = timedelta(hours=1)
ACCOUNT = "arn:aws:iam::210987654321"
SESSION = "arn:aws:sts::210987654321:assumed-role"

CALLERS: dict[str, dict[str, Any]] = {
    "admin": {"authorizer": {"iam": {"userArn": f"{ACCOUNT}:user/admin"}}},
    "viewer": {"authorizer": {"iam": {"userArn": f"{SESSION}/finance/ann"}}},
    "research": {"authorizer": {"iam": {"userArn": f"{SESSION}/research/bob"}}},
    "two units": {
        "authorizer": {"jwt": {"claims": {"groups": "[ml-team everybody]"}, "scopes": None}},
        "authorization": "Bearer e30.eyJncm91cHMiOiBbIm1sLXRlYW0iLCAiZXZlcnlib2R5Il19.c2ln",
    },
    "stranger": {"authorizer": {"iam": {"userArn": f"{ACCOUNT}:user/stranger"}}},
    "anonymous": {},
}
GRANTS = [
    {"principal": f"{ACCOUNT}:user/admin", "roles": ["admin"]},
    {"principal": f"{ACCOUNT}:role/finance", "roles": ["viewer"]},
    {"principal": f"{ACCOUNT}:role/research", "roles": ["bu:research"]},
    {"claim": {"name": "groups", "value": "ml-team"}, "roles": ["bu:research", "bu:assistant"]},
]


def text(moment: datetime) -> str:
    """A time as it is written everywhere."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Script:
    """A list of steps, each with its time."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.steps: list[Step] = []

    def add(self, name: str, do: str, **more: Any) -> None:
        """Add a step. A number makes its name unique."""
        names = {step["name"] for step in self.steps}
        unique = next(text for text in (name, *(f"{name} ({n})" for n in range(2, 10_000))) if text not in names)
        self.steps.append({"name": unique, "at": self.now.isoformat(), "do": do, **more})

    def settings(self, document: Mapping[str, Any]) -> None:
        """Push a document."""
        self.add("settings", "settings", document=document)

    def command(
        self, *arguments: str, form: str = "text", name: str = "", fails: bool = False, files: Any = None
    ) -> None:
        """Run a command against the deployment."""
        words = list(arguments)
        if "--stack" not in words and "--api" not in words:
            words += ["--stack", "golden"]
        if form != "text":
            words += ["--format", form]
        self.add(
            name or f"gpucost {' '.join(arguments)}"[:120],
            "command",
            arguments=words,
            format=form,
            files=files or {},
            fails=fails,
        )

    def invoke(self, function: str, **event: Any) -> None:
        """Invoke a function as its schedule does."""
        self.add(f"{function} {text(self.now)}", "invoke", function=function, event={"version": 1, **event})

    def deliver(self) -> None:
        """Deliver waiting messages."""
        self.add(f"deliver {text(self.now)}", "deliver")

    def tick(self, hour: datetime) -> None:
        """Run the schedule at five minutes past an hour, and deliver all messages."""
        self.now = hour + timedelta(minutes=5)
        self.invoke("dispatch", scheduled_time=text(self.now))
        self.deliver()

    def ask(
        self,
        path: str,
        query: Mapping[str, str] | str | None = None,
        *,
        by: str = "admin",
        pages: bool = False,
        fails: bool | None = False,
    ) -> None:
        """Add a request. `fails` says whether it must be refused. None accepts both."""
        shown = (
            query if isinstance(query, str) else "&".join(f"{name}={value}" for name, value in (query or {}).items())
        )
        name = f"{by}: {path}" + (f"?{shown}" if shown else "")
        self.add(name, "pages" if pages else "request", path=path, query=query or {}, fails=fails, **{"as": by})


def requests(start: datetime, end: datetime, units: Sequence[str]) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Every route with several sets of parameters: path, query, whether to follow the cursor.

    Args:
        start: of a period of some days.
        end: of the same.
        units: business units, the first with most workloads.
    """
    whole = {"start": text(start), "end": text(end)}
    lately = {"start": text(end - 6 * HOUR), "end": text(end)}
    for path in ("/v1/costs", "/v1/fleet", "/v1/business-units", "/v1/hours"):
        yield path, {}, False
    for granularity in ("hour", "day", "week", "month", "total"):
        yield "/v1/costs", {**whole, "granularity": granularity, "group_by": "business_unit"}, False
        yield "/v1/fleet", {**whole, "granularity": granularity}, False
    for idle in ("hidden", "separate", "shared-by-allocation", "shared-evenly"):
        yield "/v1/costs", {**whole, "granularity": "day", "group_by": "namespace,cluster", "idle": idle}, False
        yield "/v1/costs", {**lately, "granularity": "hour", "group_by": "node_pool", "idle": idle}, False
    for dimension in (
        "cluster",
        "namespace",
        "workload_kind",
        "workload",
        "node_pool",
        "instance_type",
        "capacity_type",
        "gpu_model",
        "resource",
        "zone",
        "label:team",
    ):
        yield "/v1/costs", {"window": "2d", "granularity": "total", "group_by": dimension, "sort": "-waste_usd"}, False
    yield "/v1/costs", {**lately, "granularity": "hour", "group_by": "pod,node", "limit": "25"}, True
    yield (
        "/v1/costs",
        {**whole, "granularity": "day", "group_by": "workload,zone", "limit": "7", "sort": "-allocated_usd,workload"},
        True,
    )
    for form in ("csv", "jsonl"):
        yield (
            "/v1/costs",
            {**lately, "granularity": "total", "group_by": "business_unit,workload", "format": form},
            False,
        )
    for name, value in (
        ("namespace", "bu-a,bu-b"),
        ("namespace", "!bu-*"),
        ("workload_kind", "Deployment"),
        ("capacity_type", "spot"),
        ("gpu_model", "NVIDIA A10G"),
        ("business_unit", units[0]),
        ("label", "team:*"),
        ("node_pool", "!*"),
    ):
        yield "/v1/costs", {**whole, "granularity": "day", "group_by": "business_unit,workload", name: value}, False
    yield "/v1/costs", {**lately, "granularity": "hour", "group_by": "pod", "pod": "chat-*", "idle": "separate"}, False
    for window in ("24h", "today", "yesterday", "week", "lastweek", "month", "lastmonth"):
        yield "/v1/costs", {"window": window, "granularity": "total"}, False
    yield "/v1/business-units", {"window": "7d"}, False
    for unit in units:
        yield f"/v1/business-units/{unit}", {**whole, "granularity": "day"}, False
        yield f"/v1/business-units/{unit}/workloads", {**whole, "sort": "-allocated_usd"}, False
        yield f"/v1/business-units/{unit}/trend", {"window": "yesterday"}, False
        yield f"/v1/business-units/{unit}/trend", {"window": "month"}, False
        yield "/v1/forecasts", {"business_unit": unit, "period": "month"}, False
        yield "/v1/forecasts", {"business_unit": unit, "period": "quarter"}, False
    yield f"/v1/business-units/{units[0]}/workloads", {**whole, "limit": "1"}, True
    yield "/v1/waste", {**whole, "limit": "2"}, True
    yield "/v1/waste", {"window": "2d", "business_unit": f"!{units[0]}"}, False
    yield "/v1/hours", whole, False
    yield "/v1/nodes", {**lately, "limit": "9"}, True
    yield "/v1/lines", {**lately, "limit": "40"}, True
    yield "/v1/lines", {**lately, "business_unit": units[0], "workload": "*"}, False
    yield "/v1/nodepools", lately, False
    yield "/v1/quotas", lately, False
    yield "/v1/restatements", whole, False
    yield "/v1/prices", whole, False
    days = {"start": text(_midnight(start) + timedelta(days=1)), "end": text(_midnight(end))}
    yield "/v1/exports", days, False
    yield "/v1/alerts", whole, False
    yield "/v1/silences", {}, False
    for state in ("open", "all"):
        yield "/v1/recommendations", {"state": state}, False
    yield "/health", {}, False
    yield from opencost(start, end)


def opencost(start: datetime, end: datetime) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Requests of OpenCost's tools."""
    path = "/allocation/compute"
    first = _midnight(start) if _midnight(start) == start else _midnight(start) + timedelta(days=1)
    whole, lately = f"{text(first)},{text(_midnight(end))}", f"{text(end - 6 * HOUR)},{text(end)}"
    for aggregate in (
        "all",
        "cluster",
        "namespace",
        "controllerKind",
        "controller",
        "deployment",
        "statefulset",
        "job",
        "label:team",
        "team",
        "namespace,controller",
        "cluster,namespace,label:team",
    ):
        yield path, {"window": whole, "aggregate": aggregate, "step": "1d"}, False
    for aggregate in ("node", "pod", "namespace,pod"):
        yield path, {"window": lately, "aggregate": aggregate, "accumulate": "true"}, False
    yield path, {"window": lately}, False
    for more in (
        {"includeIdle": "true"},
        {"includeIdle": "true", "shareIdle": "true"},
        {"includeAggregatedMetadata": "true"},
        {"step": "2h", "includeIdle": "true", "shareIdle": "true"},
        {"accumulate": "true", "includeIdle": "true"},
        {"filter": 'namespace:"bu-a","bu-b"'},
        {"filter": 'namespace!<~:"bu"+controllerKind:"deployment"'},
        {"filter": 'label[team]:"research"'},
        {"resolution": "1m", "sharelb": "true"},
    ):
        yield path, {"window": lately, "aggregate": "namespace", **more}, False
    for window in ("today", "yesterday", "12h", "2d", "week"):
        yield path, {"window": window, "aggregate": "cluster", "includeIdle": "true"}, False


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0)


REFUSED: tuple[tuple[str, dict[str, str] | str], ...] = (
    ("/v1/costs", {"window": "24h", "granularity": "year"}),
    ("/v1/costs", {"window": "24h", "group_by": "color"}),
    ("/v1/costs", {"window": "24h", "sort": "-color"}),
    ("/v1/costs", {"window": "24h", "colour": "red"}),
    ("/v1/costs", {"window": "24h", "limit": "0"}),
    ("/v1/costs", {"window": "24h", "cursor": "bm90aGluZw"}),
    ("/v1/costs", {"window": "fortnight"}),
    ("/v1/costs", {"start": "2026-11-19T00:00:00Z"}),
    ("/v1/costs", {"start": "2026-11-19T00:30:00Z", "end": "2026-11-19T02:00:00Z"}),
    ("/v1/costs", {"start": "2026-11-19T02:00:00Z", "end": "2026-11-19T02:00:00Z"}),
    ("/v1/costs", {"window": "7d", "group_by": "pod"}),
    ("/v1/costs", {"window": "24h", "cluster": "nowhere"}),
    ("/v1/costs", "window=24h&window=7d"),
    ("/v1/costs", "window="),
    ("/v1/lines", {"window": "7d"}),
    ("/v1/business-units/unheard-of", {"window": "24h"}),
    ("/v1/business-units/unheard-of/workloads", {"window": "24h"}),
    ("/v1/recommendations", {"kind": "magic"}),
    ("/v1/recommendations", {"state": "done"}),
    ("/v1/forecasts", {}),
    ("/v1/forecasts", {"business_unit": "unheard-of"}),
    ("/v1/prices", {}),
    ("/v1/prices", {"start": "2026-11-19", "end": "2026-11-20", "source": "guess"}),
    ("/allocation/compute", {}),
    ("/allocation/compute", {"window": "24h", "aggregate": "container"}),
    ("/allocation/compute", {"window": "24h", "aggregate": "namespace", "filter": "namespace=bu-a"}),
    ("/allocation/compute", {"window": "24h", "aggregate": "namespace", "idleByNode": "true"}),
    ("/v1/nothing", {}),
)
"""Requests that are answered with a problem document."""


def everybody(script: Script, start: datetime, end: datetime) -> None:
    """The same requests by all callers, whose grants determine what they see."""
    whole = {"start": text(start), "end": text(end)}
    lately = {"start": text(end - 3 * HOUR), "end": text(end)}
    for by in CALLERS:
        if by == "admin":
            continue
        for path, query in (
            ("/v1/costs", {**whole, "granularity": "day", "group_by": "business_unit", "idle": "separate"}),
            ("/v1/costs", {**whole, "granularity": "total", "group_by": "workload", "business_unit": "research"}),
            ("/v1/business-units", whole),
            ("/v1/business-units/research", whole),
            ("/v1/business-units/assistant/workloads", whole),
            ("/v1/fleet", whole),
            ("/v1/lines", lately),
            ("/v1/nodes", lately),
            ("/v1/waste", whole),
            ("/v1/hours", lately),
            ("/v1/alerts", whole),
            ("/v1/recommendations", {"state": "all"}),
            ("/v1/restatements", whole),
            ("/v1/prices", lately),
            ("/v1/exports", {"start": text(_midnight(start)), "end": text(_midnight(end))}),
            ("/v1/silences", {}),
            ("/v1/quotas", lately),
            ("/v1/nodepools", lately),
            ("/v1/forecasts", {"business_unit": "assistant"}),
            ("/allocation/compute", {"window": "6h", "aggregate": "namespace", "includeIdle": "true"}),
            ("/health", {}),
        ):
            script.ask(path, query, by=by, fails=None)
