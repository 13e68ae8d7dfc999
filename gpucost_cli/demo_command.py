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
def demo(*, once: bool, port: int, template: Path | None) -> None:
    """Run the whole system on this machine, on three days of a simulated cluster.

    \b
    Example:
      gpucost demo
    """
    try:
        from gpucost_cli.demo import run_demo
    except ModuleNotFoundError as error:
        raise GpuCostError(
            f"the demo needs the Python package {error.name}, which is not installed. Install the extra: "
            "pip install 'gpucost[demo]'"
        ) from error
    from gpucost_devstack.template import TEMPLATE

    run_demo(once=once, port=port, template=template or TEMPLATE)
