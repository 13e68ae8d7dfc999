"""The process of a function: its environment variables, and Python's garbage collector."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct

# A function's environment variables.


class Environment(Struct, frozen=True, kw_only=True):
    """The variables that `template.yaml` sets: `GPUCOST_` and the field's name in capitals."""

    table: str
    stack: str = ""
    """The stack's name, a dimension of every metric; `observability` reads it."""
    hours_queue_url: str = ""
    backfill_queue_url: str = ""
    dead_letter_queue_url: str = ""
    events_topic_arn: str = ""
    """Of published hours and ticks."""
    alerts_topic_arn: str = ""
    """Of AMP's alert manager."""
    email_topic_arn: str = ""
    price_sources: str = ""
    """The sources from which this deployment fetches prices, separated by commas: `spot,on-demand,shapes`."""
    export_bucket: str = ""
    export_days: int = 2557
    """How long the bucket keeps an export."""
    billing_account: str = ""
    """Id of the paying account, for exports."""
    public_url: str = ""
    """Address of the API for browsers. Messages contain links only if it is set."""
    sign_in_issuer: str = ""
    """OIDC issuer for signing in to the web page; empty: no sign-in."""
    sign_in_client: str = ""
    """The page's client id at the issuer."""
    sign_in_scopes: str = "openid"
    sign_in_hosts: str = ""
    """Further origins that the page may request during sign-in, separated by spaces, such as the token endpoint's."""

    @classmethod
    def read(cls) -> "Environment":
        """Read the process's environment variables.

        Raises:
            msgspec.ValidationError: `GPUCOST_TABLE` is missing, or a number is not one.
        """
        prefix = "GPUCOST_"
        variables = {
            name.removeprefix(prefix).lower(): value for name, value in os.environ.items() if name.startswith(prefix)
        }
        return msgspec.convert(variables, cls, strict=False)


# Pauses Python's garbage collector during work that creates a million objects and no reference cycles.


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would take a sixth of metering an hour and a third of a large report."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # This moves the new objects to the oldest generation. Otherwise the next allocation would scan them all.
            # Cycles among them, which are few, stay until the next full collection.
            gc.freeze()
            gc.unfreeze()
            gc.enable()
