"""A simulated fleet that answers the page's requests in the browser, with any number of business units and hours.

The browser also serves the built page, so no server runs. Other tests use the real API.
"""

import json
import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route

from gpucost_devstack.template import REPOSITORY

BUILT = REPOSITORY / "functions" / "api" / "page"
ADDRESS = "http://gpucost.test"
HOUR = timedelta(hours=1)


@dataclass
class Fleet:
    """Answers the requests of the overview and of Explore.

    Attributes:
        units: business units, by descending waste.
        start: start of the period.
        hours: length of the period.
        missing: numbers of hours without figures.
        requests: paths with their queries, in order.
        answers: responses by URL.
        refuse: returns (status, body) for requests that must fail, else None.
    """

    units: Sequence[str]
    start: datetime
    hours: int
    missing: frozenset[int] = frozenset()
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    refuse: Callable[[str], tuple[int, str] | None] = lambda _path: None

    @property
    def end(self) -> datetime:
        return self.start + self.hours * HOUR

    def serve(self, page: Page) -> None:
        """Answer all requests of a tab."""
        page.route(f"{ADDRESS}/**", self._give)

    def use(self, unit: int, hour: int) -> float:
        """A unit's utilization, 0 to 1."""
        return (unit * 37 + hour * 11) % 100 / 100

    def _give(self, route: Route) -> None:
        request_url = urlsplit(route.request.url)
        if not request_url.path.startswith("/v1/"):
            self._file(route, request_url.path)
            return
        query = {name: values[0] for name, values in parse_qs(request_url.query).items()}
        self.requests.append((request_url.path, query))
        refused = self.refuse(request_url.path)
        if refused is not None:
            status, body = refused
            route.fulfill(status=status, body=body, content_type="application/problem+json")
            return
        # Computed once per request, because a large fleet's responses have megabytes.
        if request_url.geturl() not in self.answers:
            self.answers[request_url.geturl()] = json.dumps(
                self._answer(request_url.path, query), separators=(",", ":")
            )
        route.fulfill(body=self.answers[request_url.geturl()], content_type="application/json")

    def _answer(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        grain = query.get("granularity", "hour")
        names = query["business_unit"].split(",") if "business_unit" in query else self.units
        if path == "/v1/costs" and query.get("group_by") == "business_unit":
            rows = [
                {**self._figures(unit, hours), "group": {"business_unit": self.units[unit]}}
                for hours in self._spans(grain)
                for unit in map(self.units.index, names)
            ]
        elif path == "/v1/costs" and query.get("group_by") == "cluster":
            rows = [{**self._sum(hours), "group": {"cluster": "demo"}} for hours in self._spans(grain) if self.units]
        elif path == "/v1/fleet":
            rows = [self._figures(0, hours) for hours in self._spans(grain)]
        elif path == "/v1/hours":
            rows = [
                {
                    "cluster": "demo",
                    "hour": written(self.start + n * HOUR),
                    "notes": [],
                    "status": "missing" if n in self.missing else "complete",
                }
                for n in range(self.hours)
            ]
        complete_hours = self.hours - len(self.missing)
        return {
            "start": written(self.start),
            "end": written(self.end),
            "rows": rows,
            "currency": "USD",
            "totals": self._figures(0, range(self.hours)),
            "active": [],
            "history": [],
            "reviews": [],
            "cursor": None,
            "coverage": {"hours_expected": self.hours, "hours_complete": complete_hours},
        }

    def _spans(self, grain: str) -> list[range]:
        if grain == "total":
            return [range(self.hours)]
        step, begin = (1, 0) if grain == "hour" else (24, -self.start.hour)  # UTC days
        spans = [range(max(0, first), min(self.hours, first + step)) for first in range(begin, self.hours, step)]
        return [span for span in spans if any(hour not in self.missing for hour in span)]

    def _figures(self, unit: int, hours: range) -> dict[str, Any]:
        complete_hours = [hour for hour in hours if hour not in self.missing]
        held = len(complete_hours)
        used = sum(self.use(unit, hour) for hour in complete_hours)
        return {
            "start": written(self.start + hours[0] * HOUR),
            "end": written(self.start + (hours[-1] + 1) * HOUR),
            "allocated_gpu_hours": held,
            "effective_gpu_hours": used,
            "unmeasured_gpu_hours": 0,
            "allocated_usd": 12 * held,
            "effective_usd": 12 * used,
            "waste_usd": 12 * (held - used),
            "unmeasured_usd": 0,
            "node_cost_usd": 13 * held,
            "unallocated_usd": held,
            "stranded_usd": 0,
            "unobserved_usd": 0,
            "host_usd": 0,
            "residual_usd": 0,
            "capacity_gpu_hours": held,
            "unpriced_gpu_hours": 0,
            "unpriced_capacity_gpu_hours": 0,
            "energy_kwh": held / 2,
            "co2e_kg": held / 8,
        }

    def _sum(self, hours: range) -> dict[str, Any]:
        """The figures of all business units."""
        figures = [self._figures(unit, hours) for unit in range(len(self.units))]
        sums = {name: sum(row[name] for row in figures) for name in figures[0] if name not in ("start", "end")}
        return {"start": figures[0]["start"], "end": figures[0]["end"], **sums}

    @staticmethod
    def _file(route: Route, path: str) -> None:
        if path == "/config.json":
            route.fulfill(json={"sign_in": None})
            return
        file = BUILT / (path.lstrip("/") or "index.html")
        if file.is_file():
            route.fulfill(path=file, content_type=mimetypes.guess_type(file.name)[0] or "text/plain")
        else:
            route.fulfill(status=404)


def large(units: int = 200, days: int = 35) -> Fleet:
    """Many units over many days, until today."""
    end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Fleet([f"unit-{number:03}" for number in range(units)], end - timedelta(days=days), 24 * days)


def written(moment: datetime) -> str:
    """A time in the API's format."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
