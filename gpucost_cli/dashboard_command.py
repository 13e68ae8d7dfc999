"""`gpucost dashboard`: serves a deployment's page and API at a local address."""

import threading

import click

from gpucost_cli import deployment
from gpucost_cli.aws_session import aws_credentials, aws_session
from gpucost_cli.options import stack_option
from gpucost_cli.signing_proxy import SignRequest, region_of, serve_proxy, signer
from gpucost_devstack.demo_records import is_demo


@click.command()
@stack_option
@click.option(
    "--port",
    default=8081,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 for any free port.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Also answer requests with this name in the Host header, for a reverse proxy in front; repeatable.",
)
def dashboard(stack: str, port: int, allowed_hosts: tuple[str, ...]) -> None:
    """Serve a deployment's page and API on this machine, and sign each request with your credentials.

    Browsers and OpenCost's tools cannot sign requests themselves. Only GET and HEAD from 127.0.0.1 are forwarded, and
    only with this machine's names in the Host header, so that no website can read the API through your browser.

    \b
    Example:
      gpucost dashboard --stack gpucost
    """
    url = deployment.find_deployment(stack).api_url
    sign = None if is_demo(stack) else caller_signer(url)
    with serve_proxy(url, sign, port, allowed_hosts=allowed_hosts) as address:
        click.echo(f"Forwarding {address} to {url}. Open it in a browser. Press Ctrl-C to stop.", err=True)
        threading.Event().wait()


def caller_signer(url: str) -> SignRequest:
    """Return a signer with the credentials that the AWS CLI would use.

    Raises:
        GpuCostError: there are no credentials, or the region is not known.
    """
    session = aws_session()
    return signer(aws_credentials(session), region_of(url, session.region_name))
