"""`gpucost demo`: the command; `gpucost_cli.demo` runs it."""

from pathlib import Path

import click

from gpucost.core.errors import GpuCostError


@click.command()
@click.option("--once", is_flag=True, help="Print the results and end, without serving the API.")
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the API; 0 takes a free one.",
)
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Another template.yaml, for example to test changes to its IAM policies.",
)
@click.option(
    "--history",
    "history_days",
    default=35,
    show_default=True,
    type=click.IntRange(0, 90),
    help="Days before the last three, which follow in the background and are kept for the next start; 0 for none.",
)
@click.option("--fresh", is_flag=True, help="Do not use what an earlier start has kept; compute it again.")
@click.option(
    "--scale",
    default=1,
    show_default=True,
    type=click.IntRange(1, 5000),
    help="About how many GPUs the fleet has; 1 is the standard fleet of about 100. 1000 needs 8 GB of memory and takes "
    "about ten times as long.",
)
@click.option("--hours", default=72, hidden=True, type=click.IntRange(1, 72), help="Of the summary, for tests.")
@click.option("--verbose", is_flag=True, help="Also print the alerts as Slack shows them.")
def demo(
    *,
    once: bool,
    port: int,
    template: Path | None,
    history_days: int,
    fresh: bool,
    scale: int,
    hours: int,
    verbose: bool,
) -> None:
    """Run the whole system on this machine, on simulated clusters.

    The last three days are there when it prints its summary. The history follows while the API answers. It is kept in
    the user's cache ($XDG_CACHE_HOME/gpucost/demo, or ~/.cache/gpucost/demo), and a start within three days reuses it.
    Ctrl-C and SIGTERM keep what is there after the summary; before it, only the days that are simulated completely.
    You can delete that folder while no demo runs.

    \b
    Example:
      gpucost demo
    """
    try:
        from gpucost_cli.demo import DemoOptions, run_demo
    except ModuleNotFoundError as error:
        raise GpuCostError(
            f"the demo needs the Python package {error.name}, which is not installed. Install gpucost with its extra "
            "demo: 'gpucost[demo]', or from a wheel 'dist/gpucost-VERSION-py3-none-any.whl[demo]'"
        ) from error
    from gpucost_devstack.template import TEMPLATE

    run_demo(
        DemoOptions(
            once=once,
            port=port,
            template=template or TEMPLATE,
            scale=scale,
            history_days=history_days,
            verbose=verbose,
            fresh=fresh,
            hours=hours,
        )
    )
