"""Chooses region, profile and credentials as the AWS command line does.

- Region: `--region`, AWS_REGION, AWS_DEFAULT_REGION, the profile's.
- Profile: `--profile`, AWS_PROFILE, AWS_DEFAULT_PROFILE.
- Credentials: those of `--profile`, the environment's, those of the profile.

boto3 differs: it ignores AWS_REGION and prefers AWS_DEFAULT_PROFILE. The command line shares the functions' clients,
which are made without a session. So the choice is written to this process's environment before the first client is
made. A profile that `--profile` names becomes the profile of all sessions: only botocore knows which credentials of the
environment such a profile overrides and which it refers to.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucost.core.errors import GpuCostError, InvalidInputError, did_you_mean
from gpucost.runtime import aws

if TYPE_CHECKING:
    import boto3
    from botocore.credentials import Credentials

Command = TypeVar("Command", bound=Callable[..., Any])

_CREDENTIAL_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_REGION_WORDS = {
    "north",
    "south",
    "east",
    "west",
    "central",
    "northeast",
    "northwest",
    "southeast",
    "southwest",
    "gov",
    "iso",
    "isob",
    "isoe",
    "isof",
}
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def aws_options(command: Command) -> Command:
    """Add the options `--region` and `--profile` to a command."""
    region = click.option("--region", expose_value=False, callback=_choose_region, help="AWS region.")
    return region(profile_option(command))


def profile_option(command: Command) -> Command:
    """Add the option `--profile` to a command."""
    return click.option("--profile", expose_value=False, callback=_choose_profile, help="AWS profile.")(command)


def clear_aws_configuration() -> None:
    """Remove the caller's profile and credentials, because the embedded AWS has its own."""
    aws.use_profile(None)
    for name in (*_PROFILE_VARIABLES, *_CREDENTIAL_VARIABLES):
        os.environ.pop(name, None)


def aws_session() -> "boto3.Session":
    """Return a session of the chosen profile and region.

    Raises:
        InvalidInputError: the profile does not exist, or no region is set.
    """
    import boto3
    from botocore.exceptions import ProfileNotFound

    try:
        session = boto3.Session(botocore_session=aws.new_session())
    except ProfileNotFound as error:
        raise _missing_profile_error(os.environ.get("AWS_PROFILE")) from error
    if session.region_name is None:
        raise InvalidInputError(
            "no AWS region is set. Pass --region, set AWS_REGION, or set the "
            "profile's region: aws configure set region …"
        )
    return session


def aws_credentials(session: "boto3.Session") -> "Credentials":
    """Return the credentials that sign requests.

    Raises:
        GpuCostError: there are no credentials.
    """
    credentials: Credentials | None = session.get_credentials()
    if credentials is None:
        raise GpuCostError(
            "no AWS credentials were found to sign the request with. Pass --profile, or set AWS_PROFILE, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return credentials


def choose_region(region: str | None) -> None:
    """Make a region that of this process; with None, the region of the environment's variables."""
    chosen = region or next(filter(None, map(os.environ.get, _REGION_VARIABLES)), None)
    for name in _REGION_VARIABLES:
        _set_variable(name, chosen)


def _choose_region(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value and not _is_region(value):
        raise InvalidInputError(f"--region: {value!r} is not an AWS region. {_similar_region(value)}")
    choose_region(value)


def _is_region(name: str) -> bool:
    """Whether a name has the form of a region. The list of regions of an installed SDK may lack new ones."""
    area, *words = name.split("-")
    return len(words) >= 2 and area.isalpha() and words[-1].isdigit() and set(words[:-1]) <= _REGION_WORDS


def _similar_region(name: str) -> str:
    import botocore.session

    session = botocore.session.Session({"profile": (None, None, None, None)})  # whether or not the profile exists
    regions = [
        region
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("ec2", partition)
    ]
    return did_you_mean(name, regions) or "Pass a name such as us-east-1"


def _choose_profile(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    chosen = value or next(filter(None, map(os.environ.get, _PROFILE_VARIABLES)), None)
    for name in _PROFILE_VARIABLES:
        _set_variable(name, chosen)
    if value:
        from botocore.exceptions import ProfileNotFound

        try:
            aws.use_profile(value)
        except ProfileNotFound as error:
            raise _missing_profile_error(value) from error


def _missing_profile_error(name: str | None) -> InvalidInputError:
    return InvalidInputError(f"AWS profile {name!r} does not exist. `aws configure list-profiles` lists the profiles")


def _set_variable(name: str, value: str | None) -> None:
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)  # an empty variable counts as not set
