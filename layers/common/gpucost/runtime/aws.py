"""Creates all AWS clients: lazily, with timeouts and a limited number of retries.

botocore makes them, as boto3 does itself. boto3's import adds S3 transfers and resources, which no function uses, to
every cold start.
"""

from contextlib import suppress
from functools import cache, cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from gpucost.core.errors import SourceError
from gpucost.runtime.observability import tally

if TYPE_CHECKING:
    from botocore.config import Config
    from botocore.loaders import Loader
    from botocore.session import Session

CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 20
MAX_ATTEMPTS = 4

_profile: str | None = None


def use_profile(name: str | None) -> None:
    """Create clients and sessions with a named profile from now on; with None, without one.

    A named profile takes precedence over credentials in the environment. A profile from AWS_PROFILE does not.

    Raises:
        botocore.exceptions.ProfileNotFound: there is no such profile.
    """
    global _profile  # noqa: PLW0603 - the choice of the whole process, like the environment's variables
    _profile = name
    if name is not None:
        new_session()


def new_session() -> "Session":
    """Create a session with the named profile, or with the environment's credentials.

    Raises:
        botocore.exceptions.ProfileNotFound: the named profile, or that of AWS_PROFILE, does not exist.
    """
    from botocore.session import Session

    session = Session(profile=_profile)
    session.get_scoped_config()  # otherwise a missing profile would be reported when it is first needed
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


@cache
def _loader(data_path: str | None) -> "Loader":
    """Reads the definitions of services. A loader keeps what it read, so all sessions of a process share one."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def region_of(session: "Session") -> str | None:
    """Return a session's region: that of AWS_DEFAULT_REGION or of its profile; None if there is none."""
    region: str | None = session.get_config_variable("region")
    return region


class AwsClients:
    """Makes the clients of one session, each once; respects `AWS_ENDPOINT_URL`."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str | None], Any] = {}

    @cached_property
    def session(self) -> "Session":
        """The session, with the credentials that it found first."""
        return new_session()

    def __call__(self, service: str, region: str | None = None) -> Any:
        """Return the client of a service, in the session's region or another."""
        key = service, region
        if key not in self._clients:
            self._clients[key] = self.session.create_client(service, region_name=region, config=client_config())
            if service == "dynamodb":
                register_capacity_unit_hooks(self._clients[key])
                register_read_decoder(self._clients[key])
        return self._clients[key]

    @cached_property
    def s3(self) -> Any:
        """The client of S3, whose presigned URLs work in every region.

        By default, some regions sign with version 2, which new buckets refuse. URLs also use the global endpoint, which
        redirects requests for a new bucket and so breaks the signature.
        """
        from botocore.config import Config

        regional = Config(
            signature_version="s3v4", s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"}
        )
        return self.session.create_client("s3", config=client_config().merge(regional))

    def client_in_role(
        self, service: str, *, region: str | None, role_arn: str | None, external_id: str | None = None
    ) -> Any:
        """Create a client in another region or with another role. Its credentials last an hour, so it is not kept.

        Raises:
            SourceError: the role cannot be assumed.
        """
        credentials = self._assume_role(role_arn, external_id) if role_arn else {}
        return self.session.create_client(service, region_name=region, config=client_config(), **credentials)

    def _assume_role(self, role_arn: str, external_id: str | None) -> dict[str, Any]:
        """Assume a role and return its temporary credentials as arguments of a client."""
        from botocore.exceptions import BotoCoreError, ClientError

        condition = {"ExternalId": external_id} if external_id else {}
        try:
            credentials = self("sts").assume_role(RoleArn=role_arn, RoleSessionName="gpucost", **condition)[
                "Credentials"
            ]
        except (BotoCoreError, ClientError) as error:
            raise SourceError(f"the role {role_arn} could not be assumed: {error}") from error
        return {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }


def register_capacity_unit_hooks(dynamodb: Any) -> None:
    """Add the capacity units that a DynamoDB client consumes to the invocation's tally."""
    for operation in ("GetItem", "Query", "PutItem", "UpdateItem", "BatchWriteItem", "TransactWriteItems"):
        dynamodb.meta.events.register(f"provide-client-params.dynamodb.{operation}", _request_consumed_capacity)
        dynamodb.meta.events.register(f"after-call.dynamodb.{operation}", _tally_capacity_units)


def _request_consumed_capacity(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"ReturnConsumedCapacity": "TOTAL", **params}


def _tally_capacity_units(parsed: dict[str, Any], **_: Any) -> None:
    consumed = parsed.get("ConsumedCapacity", [])
    for capacity in consumed if isinstance(consumed, list) else [consumed]:
        tally.add("CapacityUnits", capacity.get("CapacityUnits", 0.0))


class _AttributeValue(TypedDict, total=False):
    S: str
    N: str
    B: bytes
    SS: list[str]
    NS: list[str]
    BS: list[bytes]
    M: dict[str, "_AttributeValue"]
    L: list["_AttributeValue"]
    NULL: bool
    BOOL: bool


class _ReadResponse(TypedDict, total=False):
    """What GetItem and Query return."""

    Item: dict[str, _AttributeValue]
    Items: list[dict[str, _AttributeValue]]
    Count: int
    ScannedCount: int
    LastEvaluatedKey: dict[str, _AttributeValue]
    ConsumedCapacity: dict[str, Any]


_read_decoder = msgspec.json.Decoder(_ReadResponse)


def register_read_decoder(dynamodb: Any) -> None:
    """Decode the items that a DynamoDB client reads in a fraction of botocore's time."""
    for operation in ("GetItem", "Query"):
        dynamodb.meta.events.register(f"before-parse.dynamodb.{operation}", _decode_read)


def _decode_read(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Decode a body, and leave an empty one for botocore, which parses errors, metadata and what this cannot decode."""
    if response_dict["status_code"] == HTTPStatus.OK:
        with suppress(msgspec.DecodeError):
            customized_response_dict.update(_read_decoder.decode(response_dict["body"]))
            response_dict["body"] = b"{}"


def client_config() -> "Config":
    """The timeouts, retries and user agent of all clients.

    Without a user agent, botocore builds one from a dozen parts twice per call: a tenth of a small report's time.
    """
    from botocore import __version__
    from botocore.config import Config

    return Config(
        user_agent=f"gpucost botocore/{__version__}",
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
    )
