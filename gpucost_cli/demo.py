"""`gpucost demo`: runs three days of a simulated cluster through a real Prometheus and the real handlers."""

import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gpucost.core.hours import HOUR, floor_hour, format_timestamp, hours_between
from gpucost.pipeline.dispatch import due_messages
from gpucost.settings_document import SettingsDocumentStore
from gpucost_cli import report
from gpucost_cli.aws_session import clear_aws_configuration
from gpucost_devstack.aws import STACK, local_client
from gpucost_devstack.demo_records import registered_demo, running_demos
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.fleet import openmetrics
from gpucost_devstack.loopback import listen
from gpucost_devstack.prometheus import running_prometheus
from gpucost_devstack.slack import SlackWebhook, running_slack
from gpucost_devstack.stack import LocalStack, running_stack
from gpucost_devstack.template import TEMPLATE

SCHEDULED_HOURS = 24
"""The last hours run through the schedule, one by one, and may alert. The older hours are backfilled."""
MONTHLY_BUDGET_USD = 100_000
"""Budget of each business unit. It is far above their spend, so the page shows a budget and no alert fires."""
SLACK_SECRET = "gpucost/slack-webhook"


def run_demo(*, once: bool, port: int, template: Path = TEMPLATE) -> None:
    """Run the demo.

    Raises:
        AccessDeniedError: a function called AWS without a permission in the template.
        GpuCostError: the port is taken, or a program is missing or does not start; the message says how to install it.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    clear_aws_configuration()
    console = Console()
    end = floor_hour(datetime.now(UTC))
    with ExitStack() as running:
        # Take the port before half a minute of work; --once does not need a certain port.
        listener = running.enter_context(listen(0 if once else port))
        steps = running.enter_context(_progress_bar())
        start, scenario = fleet.start_for(end), fleet.scenario(end)
        path = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gpucost-demo-"))) / "metrics.om"
        task = steps.add_task("simulating three days of a cluster", total=1.0)
        openmetrics.write([scenario], start, path, lambda done: steps.update(task, completed=done))
        task = steps.add_task("loading them into Prometheus", total=1.0)
        url = running.enter_context(running_prometheus(path))
        path.unlink()
        steps.update(task, completed=1.0)
        task = steps.add_task("starting AWS and the functions", total=1.0)
        slack = running.enter_context(running_slack())
        stack = running.enter_context(running_stack(listener=listener, template=template))
        if not once:
            port = listener.getsockname()[1]
            running.enter_context(
                registered_demo(
                    port=port, endpoint=stack.endpoint, dynamodb=stack.dynamodb, access_keys=stack.access_keys
                )
            )
        _push_settings(stack, url, slack)
        steps.update(task, completed=1.0)
        _attribute_hours(stack, start, end, steps)
        steps.stop()
        _print_results(console, stack, slack, start, end)
        stack.authorizer.raise_denied()
        if not once:
            console.print(f"\nthe API answers at {stack.outputs['ApiUrl']} until Ctrl-C. For example:")
            ask = f"{stack.outputs['ApiUrl']}/v1/costs?{_demo_period(end)}&group_by=business_unit"
            console.print(f"  curl '{ask}'", soft_wrap=True)  # so that the line can be copied whole
            name = STACK if len(running_demos()) == 1 else f"{STACK}:{port}"
            console.print(f"  {sys.argv[0]} report --stack {name}")
            console.print(f"or open {stack.outputs['ApiUrl']} in a browser")
            try:
                _serve(stack)
            except KeyboardInterrupt:
                console.print("stopped")


def _attribute_hours(stack: LocalStack, start: datetime, end: datetime, steps: Progress) -> None:
    """Backfill the older hours, then run the schedule for each of the last hours."""
    recent = end - SCHEDULED_HOURS * HOUR
    outputs = stack.outputs
    task = steps.add_task("backfilling the first hours", total=1.0)
    older = due_messages(
        fleet.CLUSTER,
        hours_between(start, recent),
        settings_version=1,
        origin="backfill",
        correlation_id="demo-backfill",
    )
    sqs = local_client("sqs", stack.endpoint)
    for message in older:
        sqs.send_message(QueueUrl=outputs["BackfillQueueUrl"], MessageBody=message.model_dump_json())
    stack.deliver_all()
    steps.update(task, completed=1.0)
    task = steps.add_task("running the schedule, hour by hour", total=float(SCHEDULED_HOURS))
    for hour in hours_between(recent, end):
        stack.fire_schedule(hour + HOUR + timedelta(minutes=5))
        stack.deliver_all()
        steps.advance(task)


def _push_settings(stack: LocalStack, prometheus_url: str, slack: SlackWebhook) -> None:
    local_client("secretsmanager", stack.endpoint).create_secret(Name=SLACK_SECRET, SecretString=slack.url)
    store = SettingsDocumentStore(
        local_client("dynamodb", stack.dynamodb), stack.outputs["TableName"], clock=lambda: datetime.now(UTC)
    )
    store.push(settings_text(prometheus_url), author="demo", now=datetime.now(UTC))


def settings_text(prometheus_url: str) -> str:
    """Return the demo's settings document."""
    return json.dumps(
        {
            "clusters": [
                {
                    "name": fleet.CLUSTER,
                    "prometheus": {"url": prometheus_url, "auth": "none"},
                    "selector": {"cluster": fleet.CLUSTER},
                }
            ],
            "pricing": {"source": "constant", "gpu_hourly_usd": int(fleet.GPU_HOURLY_USD), "split": "gpu-bears-all"},
            "business_units": [
                {"name": "research", "namespaces": ["training", "notebooks"]},
                {"name": "assistant", "namespaces": ["chat"]},
            ],
            "alerts": {
                "rules": [
                    {
                        "rule": "waste",
                        "waste_usd_per_hour": 3,
                        "waste_percent": 60,
                        "for_hours": 3,
                        "overrides": [{"business_unit": "assistant", "waste_usd_per_hour": 30}],
                    },
                    {"rule": "idle-workload", "gpus": 2, "utilization_percent": 10, "for_hours": 2},
                    {"rule": "unallocated", "usd_per_hour": 20, "for_hours": 2, "keep_firing_hours": 2},
                    {"rule": "budget", "monthly_usd": MONTHLY_BUDGET_USD},
                ],
                "receivers": [{"type": "slack", "secret": SLACK_SECRET}, {"type": "email"}],
            },
        },
        indent=2,
    )


def _print_results(console: Console, stack: LocalStack, slack: SlackWebhook, start: datetime, end: datetime) -> None:
    period = {"start": format_timestamp(start), "end": format_timestamp(end)}
    answer = report.get_from_api(stack.outputs["ApiUrl"], "/v1/business-units", period, signed=False)
    console.print()
    for part in report.business_unit_tables(report.parse_json_exactly(answer.text)):
        console.print(part)
    console.print(f"{len(slack.posts)} messages of the last {SCHEDULED_HOURS} hours, as Slack shows them:")
    for post in slack.posts:
        console.print(Panel(escape(_slack_text(post)), width=78))
    console.print(f"{len(stack.emails())} emails, {len(stack.dead_letters())} dead letters")


def _slack_text(post: dict[str, Any]) -> str:
    """Return the text of a Slack message as Slack shows it."""
    lines: list[str] = []
    for block in post.get("blocks", []):
        texts = [block["text"]] if "text" in block else []
        lines += [str(text["text"]) for text in texts + block.get("elements", [])]
        lines += [f"{title + ':':<22} {value}" for title, _, value in _fields_of_block(block)]
    shown = "\n".join(lines) or str(post.get("text", ""))
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _fields_of_block(block: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [str(field["text"]).partition("\n") for field in block.get("fields", [])]


def _serve(stack: LocalStack) -> None:
    """Deliver the messages that other commands send, and run the schedule after every hour."""
    fired = floor_hour(datetime.now(UTC))
    while True:
        stack.deliver_all()
        now = datetime.now(UTC)
        if floor_hour(now) > fired and now.minute >= 5:
            fired = floor_hour(now)
            stack.fire_schedule(fired + timedelta(minutes=5))
        time.sleep(0.5)


def _demo_period(end: datetime) -> str:
    return f"start={format_timestamp(end - timedelta(days=1))}&end={format_timestamp(end)}"


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
