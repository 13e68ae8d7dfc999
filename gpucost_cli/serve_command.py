"""`gpucost serve`: the page and the API of a Prometheus, on this machine, without AWS."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_hour, format_timestamp
from gpucost_cli.metrics_options import MetricsAccess, metrics_options
from gpucost_cli.options import current_user

if TYPE_CHECKING:
    from rich.console import Console

    from gpucost.storage.sqlite_table import SqliteTable
    from gpucost_cli.local_service import LocalService
    from gpucost_cli.simulated_fleet import SimulatedFleet

DEFAULT_PORT = 8080
MAX_DAYS, SIMULATED_DAYS = 400, 3


@click.command()
@metrics_options
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the ledger.  [default: a folder for this Prometheus in ~/.local/share/gpucost]",
)
@click.option(
    "--exports",
    type=click.Path(path_type=Path),
    help="Folder to which days are exported as FOCUS rows (Parquet and CSV).  [default: no exports]",
)
@click.option(
    "--port",
    default=DEFAULT_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 for any free port.",
)
@click.option(
    "--listen",
    "host",
    default="127.0.0.1",
    show_default=True,
    help="IPv4 address to listen on; 0.0.0.0, in a container, for all. Whoever reaches it sees all costs.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 400),
    help=f"Days of the past to attribute at most, as far as Prometheus has them.  [default: 400; simulated: "
    f"{SIMULATED_DAYS}]",
)
@click.option(
    "--simulated",
    is_flag=True,
    help="Show simulated clusters instead. It needs Prometheus on the PATH, and nothing else.",
)
def serve(
    access: MetricsAccess,
    folder: Path | None,
    exports: Path | None,
    port: int,
    host: str,
    days: int | None,
    *,
    simulated: bool,
) -> None:
    """Serve the page and the API of a Prometheus on this machine, without AWS.

    The clusters are found in the metrics; no settings are needed. The last 24 hours are attributed first, the newest
    one before the others, then the days before, and from then on every hour. The ledger stays in a folder, so that the
    next start continues. Without --listen, only this machine can open the page.

    \b
    Example:
      gpucost serve --prometheus http://127.0.0.1:9090
      gpucost serve --settings settings.yaml --data ledger
      gpucost serve --simulated
    """
    from rich.console import Console

    from gpucost.runtime.observability import logger
    from gpucost.settings_document import parse_settings
    from gpucost.storage.sqlite_table import SqliteTable
    from gpucost_cli.aws_access import AwsAccess
    from gpucost_cli.doctor_command import examine
    from gpucost_cli.export_folder import ExportFolder
    from gpucost_cli.local_service import LocalService
    from gpucost_cli.served_doctor import ServedDoctor
    from gpucost_cli.served_summary import print_period, print_so_far

    logger.setLevel("ERROR")  # the terminal is for people
    console = Console(stderr=True)
    export_folder = ExportFolder(exports) if exports else None
    with ExitStack() as running:
        fleet: SimulatedFleet | None = None
        if simulated:
            days = days or SIMULATED_DAYS
            fleet = running.enter_context(simulated_fleet(days, console))
            text, folder = fleet.settings_text(), folder or ledgers_folder() / "simulated"
            settings = parse_settings(text)
            arguments = f"--prometheus {settings.clusters[0].prometheus.url}"
        else:
            text, settings = access.text_and_settings()
            arguments = access.arguments
        table = running.enter_context(SqliteTable(folder or default_folder(text)))
        table.delete_expired()
        aws = None if fleet else AwsAccess(warn=warn_once(console))
        service = LocalService(
            table,
            text,
            author=current_user(),
            clock=lambda: datetime.now(UTC),
            secret_value=access.secret_value,
            exports=export_folder,
            aws=aws,
            doctor=ServedDoctor(lambda now: examine(access, settings, now, aws), arguments, lambda: datetime.now(UTC)),
        )
        if fleet:
            fleet.add_spot_prices(table, datetime.now(UTC))
        url = running.enter_context(service.serving(port, host))
        console.print(f"serving {', '.join(service.clusters)} at {url} until Ctrl-C", soft_wrap=True)
        service.activity = "The last 24 hours are being attributed."
        report_hours(service, "the last 24 hours", service.attribute_newest(), console)
        doctor = f"gpucost doctor {arguments}"
        print_period(url, doctor)
        print_so_far(service, doctor, console)
        for sentence in service.partial_hours():
            console.print(sentence, soft_wrap=True, markup=False)
        service.activity = ""
        click.echo(f"open {url} in a browser")
        limit = floor_hour(datetime.now(UTC)) - timedelta(days=days or MAX_DAYS)
        earlier = service.attribute_earlier(service.oldest_hours(limit))
        report_hours(service, "the days before", earlier, console)
        run_schedule(service, url, console, lambda: simulate_ended_hours(fleet, table) if fleet else None)


@contextmanager
def simulated_fleet(days: int, console: "Console") -> "Iterator[SimulatedFleet]":
    """Simulate the demo's clusters, and show how far it is."""
    from rich.progress import BarColumn, Progress, TextColumn

    from gpucost_cli.simulated_fleet import running_fleet

    with ExitStack() as running:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as progress:
            task = progress.add_task(f"simulating {days} days of three clusters", total=1.0)
            period = timedelta(days=days)
            fleet = running.enter_context(
                running_fleet(datetime.now(UTC), period, lambda part: progress.update(task, completed=part))
            )
        yield fleet


def simulate_ended_hours(fleet: "SimulatedFleet", table: "SqliteTable") -> None:
    """Simulate the hours that have ended, with their spot prices."""
    now = datetime.now(UTC)
    fleet.simulate(now)
    fleet.add_spot_prices(table, now)


def run_schedule(service: "LocalService", url: str, console: "Console", simulate: Callable[[], None]) -> NoReturn:
    """Attribute each hour that ends, until Ctrl-C, and print the recommendations, or how many hours they still need."""
    from gpucost_cli.local_service import wait_for_schedule
    from gpucost_cli.rendering import print_table
    from gpucost_cli.served_summary import recommendation_lines

    printed = ""
    while True:
        try:
            service.run_schedule()
        except SourceError as error:  # the next hour tries again
            console.print(f"gpucost: {error}", soft_wrap=True, markup=False)
        lines = list(recommendation_lines(url))
        if lines and lines[0] != printed:
            printed = lines[0]
            for sentence in lines:
                print_table(sentence)
        wait_for_schedule(lambda: datetime.now(UTC))
        simulate()


def warn_once(console: "Console") -> Callable[[str], None]:
    """Return what prints a sentence, but only once."""
    printed: set[str] = set()

    def warn(sentence: str) -> None:
        if sentence not in printed:
            printed.add(sentence)
            console.print(f"gpucost: {sentence}", soft_wrap=True, markup=False)

    return warn


def report_hours(
    service: "LocalService", period: str, hours: Iterable[tuple[str, datetime]], console: "Console"
) -> None:
    """Attribute hours, and show how far it is."""
    from rich.progress import Progress, TextColumn

    incomplete: dict[str, str] = {}
    counts: Counter[str] = Counter()
    with Progress(TextColumn("{task.description}"), console=console, transient=True) as progress:
        task = progress.add_task(f"attributing {period}")
        for cluster, hour in hours:
            counts[cluster] += 1
            progress.update(task, description=f"attributing {period}: {cluster}, {format_timestamp(hour)}")
            manifest = service.manifest(cluster, hour)
            if manifest is not None and manifest.status == "incomplete":
                incomplete[cluster] = "; ".join(manifest.notes)
    console.print(f"attributed {period}: {hours_of_clusters(counts)}" if counts else f"{period}: done", markup=False)
    for cluster, notes in incomplete.items():
        console.print(f"some hours of {cluster} have no figures: {notes}", soft_wrap=True, markup=False)


def hours_of_clusters(counts: Mapping[str, int]) -> str:
    """Say how many hours each cluster has."""
    if len(counts) > 1 and len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} hours of each of {len(counts)} clusters"
    return ", ".join(f"{count} {'hour' if count == 1 else 'hours'} of {cluster}" for cluster, count in counts.items())


def default_folder(settings_text: str) -> Path:
    """Return the folder for the ledger of a Prometheus, which the first cluster's address names."""
    from hashlib import sha256

    from gpucost.settings_document import parse_settings

    addresses = sorted({cluster.prometheus.url for cluster in parse_settings(settings_text).clusters})
    return ledgers_folder() / sha256("\n".join(addresses).encode()).hexdigest()[:12]


def ledgers_folder() -> Path:
    """Return the folder that has the ledgers for which no other folder was chosen."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "gpucost"
