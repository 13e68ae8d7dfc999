"""The one place where AWS clients are made: lazily, once per service and region, with bounded patience."""

from functools import cache
from typing import TYPE_CHECKING, Any

from gpucost.core.errors import SourceError
from gpucost.runtime.observability import tally

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

CONNECT_SECONDS = 3
READ_SECONDS = 20
ATTEMPTS = 4

_profile: str | None = None


def use_profile(name: str | None) -> None:
    """Make clients and sessions with a named profile from now on, or without one where the name is None.

    A named profile takes precedence over all credentials in the environment; one that AWS_PROFILE names does not.

    Raises:
        botocore.exceptions.ProfileNotFound: there is no such profile.
    """
    import boto3

    global _profile  # noqa: PLW0603 - boto3's default session, which this goes with, is a global as well
    boto3.DEFAULT_SESSION = None
    _profile = name
    if name is not None:
        boto3.setup_default_session(profile_name=name)


def new_session() -> "boto3.Session":
    """A session of the named profile, or of the environment's credentials.

    Raises:
        botocore.exceptions.ProfileNotFound: AWS_PROFILE names a profile that does not exist.
    """
    import boto3

    return boto3.Session(profile_name=_profile)


def new_client(service: str, region: str | None = None) -> Any:
    """A boto3 client of this process's credentials and region, or another; `AWS_ENDPOINT_URL` leads it elsewhere."""
    import boto3

    # The stubs know services by name only.
    made = boto3.client(service, region_name=region, config=config())  # type: ignore[call-overload]
    if service == "dynamodb":
        count_units(made)
    return made


@cache
def client(service: str, region: str | None = None) -> Any:
    """The process's client of a service; see `new_client`."""
    return new_client(service, region)


@cache
def s3_client() -> Any:
    """A boto3 client for S3 whose presigned addresses work in every region.

    By default they are signed with version 2 in some regions, which new buckets refuse, and name the global endpoint,
    which answers a new bucket's with a redirect that breaks the signature.
    """
    import boto3
    from botocore.config import Config

    regional = Config(
        signature_version="s3v4", s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"}
    )
    return boto3.client("s3", config=config().merge(regional))


def count_units(dynamodb: Any) -> None:
    """Let a DynamoDB client add the capacity units that it consumes to the invocation's tally."""
    for operation in ("GetItem", "Query", "PutItem", "UpdateItem", "BatchWriteItem", "TransactWriteItems"):
        dynamodb.meta.events.register(f"provide-client-params.dynamodb.{operation}", _ask_for_units)
        dynamodb.meta.events.register(f"after-call.dynamodb.{operation}", _add_units)


def _ask_for_units(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"ReturnConsumedCapacity": "TOTAL", **params}


def _add_units(parsed: dict[str, Any], **_: Any) -> None:
    spent = parsed.get("ConsumedCapacity", [])
    for one in spent if isinstance(spent, list) else [spent]:
        tally.add("CapacityUnits", one.get("CapacityUnits", 0.0))


def client_as(service: str, *, region: str | None, role_arn: str | None, external_id: str | None = None) -> Any:
    """A client of another region, or under another role: its credentials last an hour, so it is not kept.

    Raises:
        SourceError: the role cannot be assumed.
    """
    import boto3

    credentials = _assumed(role_arn, external_id) if role_arn else {}
    return boto3.client(service, region_name=region, config=config(), **credentials)  # type: ignore[call-overload]


def _assumed(role_arn: str, external_id: str | None) -> dict[str, str]:
    """Temporary credentials of a role, as a client takes them."""
    from botocore.exceptions import BotoCoreError, ClientError

    condition = {"ExternalId": external_id} if external_id else {}
    try:
        answer = client("sts").assume_role(RoleArn=role_arn, RoleSessionName="gpucost", **condition)["Credentials"]
    except (BotoCoreError, ClientError) as error:
        raise SourceError(f"the role {role_arn} could not be assumed: {error}") from error
    return {
        "aws_access_key_id": answer["AccessKeyId"],
        "aws_secret_access_key": answer["SecretAccessKey"],
        "aws_session_token": answer["SessionToken"],
    }


def config() -> "Config":
    """How long a client waits, and how often it tries."""
    from botocore.config import Config

    return Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
