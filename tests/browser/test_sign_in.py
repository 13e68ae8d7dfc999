"""Sign-in at an issuer, what each role sees, and names that contain markup."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, Response, expect

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.model import Alert, AlertGroup
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.features.recommendations.model import (
    Evidence,
    Recommendation,
    RecommendationContent,
    RecommendationSubject,
    Saving,
)
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost_devstack.aws import client_environment, create_stack, local_client, running_aws
from gpucost_devstack.functions import LocalFunction
from gpucost_devstack.http import serving_api
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.signatures import HttpRequest
from gpucost_devstack.stack import LAYER
from gpucost_devstack.template import REPOSITORY
from tests.browser.issuer import AUDIENCE, CLIENT, SCOPES, Issuer, running_issuer
from tests.browser.layout_checks import check_layouts
from tests.browser.tabs import Tabs, settled
from tests.records import amount, line, record

EVIL = "<img src=x onerror=alert(document.domain)>"
PEOPLE = {"ann": {"groups": ["research"]}, "vera": {"groups": ["viewers"]}, "eve": {"groups": ["unknown"]}}
SETTINGS = f"""
clusters: [{{name: demo, prometheus: {{url: "http://127.0.0.1:9"}}}}]
pricing: {{source: constant, gpu_hourly_usd: 12}}
business_units: [{{name: research, namespaces: ["bu-a"]}}, {{name: "{EVIL}unit", namespaces: ["bu-x"]}}]
access:
  - {{claim: {{name: groups, value: viewers}}, roles: [viewer]}}
  - {{claim: {{name: groups, value: research}}, roles: ["bu:research"]}}
"""
LAST = floor_hour(datetime.now(UTC)) - HOUR


@dataclass
class Site:
    """A deployment with an issuer. A server checks tokens in place of API Gateway."""

    address: str
    issuer: Issuer
    refuses: bool = False
    """Whether all tokens have expired."""

    def link(self, view: str) -> str:
        return f"{self.address}/#/{view}?zone=utc"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as running:
        issuer = running.enter_context(running_issuer(PEOPLE))
        endpoint = running.enter_context(running_aws())
        port = free_port()
        site = Site(f"http://127.0.0.1:{port}", issuer)
        issuer.redirect = f"{site.address}/"
        parameters = {
            "JwtIssuer": issuer.address,
            "JwtAudience": AUDIENCE,
            "PageClientId": CLIENT,
            "PageScopes": SCOPES,
        }
        deployed = create_stack(endpoint, site.address, parameters)
        publish(local_client("dynamodb", endpoint), deployed.outputs["TableName"])
        variables = {**deployed.environments["ApiFunction"], **client_environment(endpoint)}
        function = LocalFunction("api", "app.handler", [REPOSITORY / "functions" / "api", LAYER], variables)
        running.callback(function.stop)
        routes = [route["RouteKey"] for _, route in deployed.resources("AWS::ApiGatewayV2::Route")]

        def invoke(event: Mapping[str, Any]) -> Any:
            if event["rawPath"].startswith("/v1/") and (site.refuses or not event["requestContext"]["authorizer"]):
                return {"statusCode": 401, "headers": {}, "body": '{"message":"Unauthorized"}'}
            return function.invoke(event)

        def authorizer(request: HttpRequest) -> dict[str, Any]:
            claims = issuer.claims(request.headers.get("authorization", ""))
            if claims is None:
                return {}
            return {"jwt": {"claims": {name: as_gateway_writes(value) for name, value in claims.items()}}}

        running.enter_context(serving_api(invoke, routes, port, identify=authorizer))
        yield site


def as_gateway_writes(value: object) -> str:
    return f"[{' '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def publish(client: Any, table: str) -> None:
    store = SettingsDocumentStore(DynamoDBTable(client, table), clock=lambda: datetime.now(UTC))
    store.push(SETTINGS, author="test", now=datetime.now(UTC))
    ledger = Ledger(DynamoDBTable(client, table))
    for number in range(3):
        hour = LAST - number * HOUR
        ledger.publish(hour_with_strange_names(hour), replacing=None, settings_version=1, now=datetime.now(UTC))
    DynamoAlertStateStore(DynamoDBTable(client, table)).save_group(
        AlertGroup("demo", f"{EVIL}unit", (strange_alert(),))
    )
    DynamoRecommendations(DynamoDBTable(client, table)).put(injected_recommendation())


def strange_alert() -> Alert:
    names = (f"{EVIL}{name}" for name in ("unit", "namespace", "kind", "workload", "pool", "detail"))
    return Alert(
        f"{EVIL}rule", Subject("demo", *names), "firing", LAST, (), acknowledged_by=f"{EVIL}who", acknowledged_at=LAST
    )


def injected_recommendation() -> Recommendation:
    evidence = Evidence(LAST, LAST + HOUR, 1, 0, Decimal(1), Decimal("0.25"), Decimal("0.3"))
    about = RecommendationSubject("demo", f"{EVIL}unit", f"{EVIL}namespace", f"{EVIL}kind", f"{EVIL}workload")
    saving = Saving(Decimal(9), Decimal(8), Decimal(10), None, None, Decimal(1))
    content = RecommendationContent(
        kind="idle",
        subject=about,
        summary=f"{EVIL}summary",
        saving=saving,
        evidence=evidence,
        confidence="high",
        risk="low",
        risk_note=f"{EVIL}risk",
        effort="medium",
        patch=f"{EVIL}patch",
        current_gpus=Decimal(1),
        recommended_gpus=Decimal(0),
        usd_hourly=Decimal(1),
    )
    return Recommendation(content, "open", LAST, LAST, LAST)


def hour_with_strange_names(hour: datetime) -> HourRecord:
    evil = line(f"{EVIL}unit", f"{EVIL}namespace", f"{EVIL}pod", "3.25")._replace(
        workload=f"{EVIL}workload",
        workload_kind=f"{EVIL}kind",
        node=f"{EVIL}node",
        node_pool=f"{EVIL}pool",
        instance_type=f"{EVIL}type",
        gpu_model=f"{EVIL}model",
        resource=f"{EVIL}resource",
        capacity_type=f"{EVIL}capacity",
        price_source=f"{EVIL}source",
        split_policy=f"{EVIL}split",
    )
    lines = [line()._replace(node="n1"), evil]
    hour_record = record(lines, hour=hour, notes=(f"{EVIL}note",))
    return replace(hour_record, nodes=tuple(node_of(line) for line in lines))


def node_of(line: Line) -> NodeHour:
    assert line.allocated_usd is not None
    capacity = CapacityCosts(capacity_gpu_hours=amount(1), node_cost_usd=line.allocated_usd)
    return NodeHour(
        line.node,
        f"aws:///{line.node}",
        line.node_pool,
        line.instance_type,
        line.capacity_type,
        line.zone,
        line.gpu_model,
        line.price_source,
        line.split_policy,
        None,
        line.allocated_usd,
        capacity,
    )


@pytest.fixture
def tabs(chromium: Browser, site: Site) -> Iterator[Tabs]:
    hosts = {url.removeprefix("http://") for url in (site.address, site.issuer.address)}
    opened = Tabs(chromium, hosts)
    yield opened
    opened.check()
    site.refuses = False


def sign_in(page: Page, user: str) -> None:
    expect(page).to_have_title("Who are you?")
    page.get_by_role("link", name=user).click()


def test_link_keeps_its_view_through_sign_in(tabs: Tabs, site: Site) -> None:
    page = tabs.open(site.link("unit/research"))
    sign_in(page, "vera")
    expect(page.get_by_role("heading", name="Business unit research")).to_be_visible()
    settled(page)
    assert page.url == site.link("unit/research"), "the URL has neither code nor state"
    assert page.get_by_test_id("allocated").inner_text() == "$5.14"  # three hours of 1.714285714286
    assert site.issuer.sign_ins[-1] == "vera"
    page.reload()
    settled(page)
    expect(page.get_by_test_id("allocated")).to_have_text("$5.14")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    kept = page.evaluate("JSON.stringify([document.cookie, Object.keys(localStorage)])")
    assert kept == '["",[]]', "stored for this tab only"


def test_business_unit_sees_only_its_figures(tabs: Tabs, site: Site) -> None:
    page = tabs.open(site.link("overview"))
    bodies: list[str] = []

    def keep(answer: Response) -> None:
        if "/v1/" in answer.url:
            bodies.append(answer.text())

    sign_in(page, "ann")
    settled(page)
    page.on("response", keep)
    for view in ("overview", "unit/research", f"hour/{LAST:%Y-%m-%dT%H:00:00Z}"):
        page.goto(site.link(view))
        settled(page)
        shown = page.locator("body").inner_text()
        assert "research" in shown
        assert "<img" not in shown
    assert page.get_by_test_id("lines").locator("tbody tr").count() == 1
    page.goto(site.link("overview"))
    settled(page)
    assert page.get_by_test_id("cost-period").inner_text() == "$5.14"
    assert page.get_by_test_id("units").locator("tbody tr").count() == 1
    assert len(bodies) > 10
    assert not [body for body in bodies if "<img" in body or "\\u003c" in body]
    page.goto(site.link("nodes"))
    expect(page.get_by_role("alert")).to_contain_text("needs the role viewer or admin (403)")


def test_user_without_role_gets_an_explanation(tabs: Tabs, site: Site) -> None:
    tabs.expected = ("/v1/",)
    page = tabs.open(site.link("overview"))
    sign_in(page, "eve")
    expect(page.get_by_role("alert")).to_contain_text("(403)")


def test_expired_token_leads_to_sign_in(tabs: Tabs, site: Site) -> None:
    tabs.expected = ("/v1/",)
    page = tabs.open(site.link("overview"))
    sign_in(page, "vera")
    settled(page)
    site.refuses = True
    page.get_by_role("combobox", name=re.compile("^Period")).select_option("48h")
    expect(page).to_have_title("Who are you?")
    site.refuses = False
    sign_in(page, "ann")
    expect(page.get_by_test_id("cost-period")).to_have_text("$5.14")
    assert "window=48h" in page.url, "the view from before the sign-in"


def test_refused_sign_in_is_shown(tabs: Tabs, site: Site) -> None:
    page = tabs.open(site.link("overview"))
    sign_in(page, "cancel")
    expect(page.get_by_role("alert")).to_contain_text("access_denied")
    page.get_by_role("button", name="Try again").click()
    expect(page).to_have_title("Who are you?")


def test_authorization_code_of_another_session_is_refused(tabs: Tabs, site: Site) -> None:
    page = tabs.open(f"{site.address}/?code=stolen&state=forged#/overview")
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.get_by_test_id("cost-period").count() == 0


def test_names_are_rendered_as_text(tabs: Tabs, site: Site) -> None:
    page = tabs.open(site.link("overview"))
    sign_in(page, "vera")
    settled(page)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    unit = "%3Cimg%20src%3Dx%20onerror%3Dalert(document.domain)%3Eunit"
    shown = {
        "overview": ["unit", "rule", "namespace", "workload", "detail", "who", "summary"],
        f"unit/{unit}": ["unit", "namespace", "workload", "kind", "pool", "model", "capacity", "rule", "summary"],
        "nodes": ["node", "pool", "type", "model"],
        f"hour/{LAST:%Y-%m-%dT%H:00:00Z}": ["unit", "namespace", "pod", "node", "resource", "source", "note"],
    }
    for view, names in shown.items():
        page.goto(site.link(view))
        settled(page)
        for name in names:
            expect(page.get_by_text(f"{EVIL}{name}").first).to_be_attached()
        for button in page.get_by_text("Show patch", exact=True).all():
            button.click()
            expect(page.locator("pre")).to_have_text(f"{EVIL}patch")
        for picture in page.get_by_role("application").all():
            picture.focus()
            for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
                page.keyboard.press(key)
    page.get_by_test_id("lines").locator("tr", has_text=f"{EVIL}pod").get_by_role(
        "link", name="how calculated"
    ).first.click()
    explanation = page.get_by_test_id("why")
    for name in ("pod", "workload", "kind", "namespace", "unit", "node", "type", "model", "source", "split", "note"):
        expect(explanation).to_contain_text(f"{EVIL}{name}")
    expect(page).to_have_title(re.compile("GPU cost: hour"))
    assert page.locator("img").count() == 0
    assert dialogs == []


def test_url_parameters_are_rendered_as_text(tabs: Tabs, site: Site) -> None:
    """A crafted link can contain any cluster name, and the page shows it."""
    tabs.expected = ("/v1/",)
    page = tabs.open(site.link("overview"))
    sign_in(page, "vera")
    settled(page)
    evil = quote(EVIL, safe="")
    for view in (
        f"overview?cluster={evil}&window={evil}",
        f"overview?start={evil}&end={evil}&units-sort={evil}&page={evil}",
        f"unit/{evil}?cluster={evil}",
        f"nodes?pool={evil}&cluster={evil}",
        f"nodes?node={evil}",
        f"hour/{evil}",
        f"hour/{LAST:%Y-%m-%dT%H:00:00Z}?namespace={evil}&workload={evil}&unit={evil}&line={evil}",
        f"{evil}/{evil}",
    ):
        page.goto(f"{site.address}/#/{view}")
        settled_or_failed = page.locator("main").filter(has=page.locator("h1, [role=alert]"))
        expect(settled_or_failed).to_be_visible()
        expect(page.locator("main .loading")).to_have_count(0)
        expect(page.locator("body")).to_contain_text(EVIL if not view.startswith("%") else "Overview")
        assert page.locator("img").count() == 0


def test_sign_in_works_on_all_screens(tabs: Tabs, site: Site) -> None:
    page = tabs.open(site.link("overview"))
    sign_in(page, "cancel")
    expect(page.get_by_role("heading", name="Sign-in failed")).to_be_visible()
    check_layouts(page)
    page.get_by_role("button", name="Try again").click()
    sign_in(page, "vera")
    settled(page)
    assert page.url == site.link("overview"), "the view of the link"
    check_layouts(page)
