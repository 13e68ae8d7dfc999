"""What a function is told by its environment, in one place."""

import os
from functools import cache

from pydantic import BaseModel, ConfigDict


class Environment(BaseModel):
    """What `template.yaml` tells a function, one variable each: `GPUCOST_` and the field's name in capitals."""

    model_config = ConfigDict(frozen=True)

    table: str
    stack: str = ""
    """The stack's name, a dimension of every metric; read by `observability`."""
    hours_queue_url: str = ""
    backfill_queue_url: str = ""
    dead_letter_queue_url: str = ""
    events_topic_arn: str = ""
    email_topic_arn: str = ""
    price_sources: str = ""
    """The sources that this deployment fetches prices from, with commas: `spot,on-demand,shapes`."""
    export_bucket: str = ""
    export_days: int = 2557
    """How long the bucket keeps an export."""
    billing_account: str = ""
    """Id of the account that pays, as exports name it."""
    public_url: str = ""
    """Address of the API that people can open; links stand in messages only where it is set."""
    sign_in_issuer: str = ""
    """OIDC issuer at which people sign in to the page; empty: nobody does."""
    sign_in_client: str = ""
    """The page's client id there."""
    sign_in_scopes: str = "openid"
    sign_in_hosts: str = ""
    """More origins that the page asks while signing in, with spaces: the token endpoint's, where it is not the
    issuer's."""

    @classmethod
    def read(cls) -> "Environment":
        """From the process's environment."""
        prefix = "GPUCOST_"
        return cls.model_validate(
            {name.removeprefix(prefix).lower(): value for name, value in os.environ.items() if name.startswith(prefix)}
        )


@cache
def environment() -> Environment:
    """This function's environment, read once."""
    return Environment.read()
