"""`gpucost demo`: runs simulated clusters through a real Prometheus and the real handlers."""

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpucost.core.errors import SettingsError
from gpucost.core.hours import HOUR, floor_hour, format_timestamp, hours_between, parse_timestamp
from gpucost_cli import demo_summary
from gpucost_cli.aws_session import clear_aws_configuration
from gpucost_cli.demo_history import History, LiveHours
from gpucost_cli.running_demo import POSTS, RunningDemo
from gpucost_cli.simulated_fleet import BLOCK_FLAGS
from gpucost_devstack.aws import STACK
from gpucost_devstack.demo_cache import DemoCache, cache_key, open_cache
from gpucost_devstack.demo_metrics import DemoMetrics
from gpucost_devstack.demo_records import registered_demo, running_demos
from gpucost_devstack.fleet import demo as fleet
from gpucost_devstack.functions import FunctionError
from gpucost_devstack.loopback import listen
from gpucost_devstack.prometheus import running_prometheus, usable_port
from gpucost_devstack.slack import running_slack
from gpucost_devstack.stack import running_stack
from gpucost_devstack.template import TEMPLATE

HOURS = 72
"""The hours that are ready when the summary is printed."""
SCHEDULED_HOURS = 24
"""The last hours run through the schedule, one by one, and may alert. Older hours are backfilled."""
WORKERS = 2
TABLE = "local-Table-demo"
"""Name of the table that is kept. Without a cache, the stack chooses a name."""
MEMORY = Path("/dev/shm")
"""Where the database needs no disk, if there is enough memory. Otherwise every transaction would wait for the disk."""
DATABASE_BYTES = 2 * 10**9
SERVE_SECONDS = 0.5
HISTORY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of `gpucost demo`."""

    once: bool = False
    port: int = 0
    template: Path = TEMPLATE
    scale: int = 1
    history_days: int = 0
    """Days before the last three that follow in the background. With 0, nothing is kept either."""
    verbose: bool = False
    fresh: bool = False
    hours: int = HOURS
    """Hours that are ready when the summary is printed. Tests take fewer."""


def run_demo(options: DemoOptions) -> None:
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
        listener = running.enter_context(listen(0 if options.once else options.port))
        cache = running.enter_context(_opened_cache(options, end, console))
        steps = running.enter_context(_progress_bar())
        demo = running.enter_context(_started(options, cache, end, listener, steps))
        demo.push_settings()
        demo.add_spot_prices(demo.start - timedelta(days=options.history_days))
        _attribute_hours(demo, min(options.hours, SCHEDULED_HOURS), steps)
        steps.stop()
        api = demo.stack.outputs["ApiUrl"]
        summary = demo_summary.read_summary(api, demo.start, end)
        console.print()
        demo_summary.print_summary(console, summary, api="" if options.once else api)
        console.print(fleet.PRICE_NOTE)
        demo_summary.print_alerts(console, summary.alerts)
        if options.verbose:
            demo_summary.print_slack_messages(console, demo.posts)
            emails, dead_letters = len(demo.stack.emails()), len(demo.stack.dead_letters())
            console.print(f"{emails} emails, {dead_letters} dead letters")
        demo.stack.authorizer.raise_denied()
        if options.once:
            return
        port = listener.getsockname()[1]
        running.enter_context(
            registered_demo(
                port=port,
                endpoint=demo.stack.endpoint,
                dynamodb=demo.stack.dynamodb,
                access_keys=demo.stack.access_keys,
            )
        )
        name = STACK if len(running_demos()) == 1 else f"{STACK}:{port}"
        console.print(f"\nPrometheus answers at {demo.metrics.url}", soft_wrap=True)
        console.print(f"the API answers at {api} until Ctrl-C. In another terminal:", soft_wrap=True)
        for arguments in (
            f"report --stack {name}",
            f"settings show --stack {name} > demo.yaml",
            f"attribute --settings demo.yaml --hour {format_timestamp(end - HOUR)}",
        ):
            console.print(f"  {quote(sys.argv[0])} {arguments}", soft_wrap=True)
        with closing(History(demo, f"{STACK}:{port}", options.history_days)) as history:
            try:
                _serve(demo, history, console)
            except KeyboardInterrupt:
                history.save()
                console.print("stopped")


@contextmanager
def _opened_cache(options: DemoOptions, end: datetime, console: Console) -> Iterator[DemoCache | None]:
    if options.once or not options.history_days:
        yield None
        return
    settings = fleet.settings_document(dict.fromkeys(fleet.CLUSTERS, ""), scale=options.scale)
    key = cache_key(settings, options.scale, options.template)
    with open_cache(key, end - options.hours * HOUR, is_fresh=options.fresh) as cache:
        if cache is None:
            console.print("Another demo uses the cache. This one simulates its history again and keeps nothing.")
        yield cache


@contextmanager
def _started(
    options: DemoOptions, cache: DemoCache | None, end: datetime, listener: socket.socket, steps: Progress
) -> Iterator[RunningDemo]:
    """Simulate the last days while AWS and the functions start. Then start Prometheus."""
    start = end - options.hours * HOUR
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gpucost-demo-")))
        work, storage = folder / "segments", folder / "prometheus"
        for path in (work, storage):
            path.mkdir()
        _remove_abandoned_databases()
        memory = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > DATABASE_BYTES else None
        database = Path(
            running.enter_context(tempfile.TemporaryDirectory(prefix=f"gpucost-demo-{os.getpid()}-", dir=memory))
        )
        kept = cache.restore(database) if cache else {}
        metrics = DemoMetrics(storage, work, cache, options.scale)
        missing = metrics.segments_without_samples(hours_between(start, end))
        hours = sum((segment.end - segment.start) // HOUR for segment in missing)  # the others are in the cache
        simulating = steps.add_task(f"simulating {hours} hours of {len(fleet.CLUSTERS)} clusters", total=1.0)
        starting = steps.add_task("starting AWS and the functions", total=1.0)
        threads = running.enter_context(ThreadPoolExecutor(1))
        simulation = threads.submit(metrics.simulate, missing, lambda done: steps.update(simulating, completed=done))
        slack = running.enter_context(running_slack())
        stack = running.enter_context(
            running_stack(
                listener=listener,
                template=options.template,
                parameters={"ExistingTableName": TABLE} if cache else None,
                database=database if cache else None,
                workers=WORKERS,
            )
        )
        stack.notice = (
            "The demo is starting: it simulates its clusters and computes the first hours. These appear in a minute."
        )
        steps.update(starting, completed=1.0)
        simulation.result()
        steps.update(simulating, completed=1.0)
        port = usable_port(cache.index.prometheus_port if cache else 0)
        metrics.url = running.enter_context(running_prometheus(None, *BLOCK_FLAGS, storage=storage, port=port))
        if cache:
            cache.index.prometheus_port = port
        scheduled_until = parse_timestamp(cache.index.scheduled_until) if kept and cache else start
        demo = RunningDemo(
            stack=stack,
            metrics=metrics,
            slack=slack,
            cache=cache,
            database=database,
            start=start,
            end=end,
            scale=options.scale,
            scheduled_until=scheduled_until,
            earlier_posts=json.loads(kept.get(POSTS, b"[]")),
        )
        demo.restore_exports(kept)
        yield demo


def _remove_abandoned_databases() -> None:
    """Remove the databases of demos that were killed, because they take memory."""
    for folder in MEMORY.glob("gpucost-demo-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _attribute_hours(demo: RunningDemo, scheduled_hours: int, steps: Progress) -> None:
    """Backfill the older hours, then run the schedule for each of the last hours. Earlier demos' hours are kept."""
    recent = max(demo.end - scheduled_hours * HOUR, demo.scheduled_until)
    task = steps.add_task("backfilling the first hours", total=1.0)
    demo.backfill(demo.start, recent)
    demo.stack.deliver_all()
    steps.update(task, completed=1.0)
    hours = hours_between(recent, demo.end)
    task = steps.add_task("running the schedule, hour by hour", total=float(len(hours)))
    for hour in hours:
        demo.run_schedule(hour)
        steps.advance(task)


def _serve(demo: RunningDemo, history: History, console: Console) -> None:
    """Deliver the messages that other commands send, add the history, and run the schedule after every hour."""
    live = LiveHours(demo)
    if history.is_complete and history.day_count == 0 and demo.cache:
        console.print(f"the {history.period} is there from an earlier start. To compute it again: gpucost demo --fresh")
    with _history_progress(history) as show:
        while not history.is_complete:
            demo.stack.notice = (
                f"The demo's history is loading: {history.days_done} of {history.day_count} days are there. "
                "Months, forecasts and recommendations need all of it."
            )
            for step in (demo.stack.deliver_all, history.advance, live.advance):
                _survive(step, console)
            show()
            time.sleep(HISTORY_SECONDS)
    demo.stack.notice = ""
    if history.day_count:
        console.print(_history_note(demo, history), soft_wrap=True)
    while True:
        _survive(demo.stack.deliver_all, console)
        if _survive(live.advance, console):
            history.save()
        time.sleep(SERVE_SECONDS)


def _survive(step: Callable[[], object], console: Console) -> object:
    """Do a step of a demo that serves. A function may fail with settings that someone pushed meanwhile, as on AWS."""
    try:
        return step()
    except (FunctionError, SettingsError) as error:
        console.print(f"a function failed; the demo goes on: {error}", soft_wrap=True, markup=False)
        return None


@contextmanager
def _history_progress(history: History) -> Iterator[Callable[[], None]]:
    """Show the progress of the history in one line, until it is complete."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("days"))
    with Progress(*columns, console=Console(stderr=True), disable=history.is_complete) as progress:
        task = progress.add_task(f"loading {history.period}", total=history.day_count)
        yield lambda: progress.update(task, completed=history.days_done)


def _history_note(demo: RunningDemo, history: History) -> str:
    note = f"the {history.period} is there"
    if demo.cache is None:
        return note
    return f"{note}; the next start reuses it ({demo.cache.size() / 1e6:,.0f} MB in {demo.cache.folder})"


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
