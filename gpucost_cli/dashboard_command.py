"""`gpucost dashboard`: a deployment's API at a local address."""

import threading

import click

from devstack.demo_records import is_demo
from gpucost_cli import deployment
from gpucost_cli.aws_session import aws_credentials, aws_session
from gpucost_cli.options import stack_option
from gpucost_cli.signing_proxy import Sign, proxying, region_of, signer


@click.command()
@stack_option
@click.option(
    "--port", default=8081, show_default=True, type=click.IntRange(0, 65535), help="where to listen; 0 for any"
)
def dashboard(stack: str, port: int) -> None:
    """Serve a deployment's page and API on this machine, each request signed with your own credentials.

    For browsers and for OpenCost's tools, which sign nothing. It passes on what reads, and listens on 127.0.0.1 alone.
    """
    url = deployment.find(stack).api_url
    with proxying(url, None if is_demo(stack) else own_signer(url), port) as address:
        click.echo(f"{address} is {url}, to be opened in a browser; Ctrl-C ends it", err=True)
        threading.Event().wait()


def own_signer(url: str) -> Sign:
    """Sign with the credentials that the AWS command line would take.

    Raises:
        GpuCostError: there are none, or the region is not known.
    """
    session = aws_session()
    return signer(aws_credentials(session), region_of(url, session.region_name))
