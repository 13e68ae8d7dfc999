"""How Prometheus lets us in: nobody asks, a bearer token, or SigV4 for Amazon Managed Service for Prometheus."""

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from requests.auth import AuthBase
from requests.models import PreparedRequest

from gpucost.core.errors import CredentialsError
from gpucost.runtime import aws
from gpucost.runtime.bearer import BearerAuth
from gpucost.runtime.destinations import check_destination
from gpucost.settings import PrometheusSettings

if TYPE_CHECKING:
    from botocore.credentials import Credentials

SERVICE = "aps"


def authenticator(prometheus: PrometheusSettings) -> AuthBase | None:
    """What signs a cluster's requests."""
    if prometheus.auth == "bearer" and prometheus.secret:
        return BearerAuth(prometheus.secret)
    if prometheus.auth == "sigv4" and prometheus.region:
        return sigv4(_credentials(prometheus), prometheus.region)
    return None


class SerializedSigner(AuthBase):
    """Lets one request after the other be signed: the signer swaps its keys in place when credentials refresh."""

    def __init__(self, signer: AuthBase) -> None:
        self._signer = signer
        self._lock = Lock()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign.

        Raises:
            CredentialsError: there are no credentials: the role cannot be assumed, for instance.
            SourceError: plain http to another machine.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        check_destination(request)
        try:
            with self._lock:
                return self._signer(request)
        except (BotoCoreError, ClientError) as error:
            raise CredentialsError(f"requests to Prometheus could not be signed: {error}") from error


def sigv4(credentials: "Credentials", region: str) -> AuthBase:
    """A signer whose credentials refresh themselves: a function lives longer than its role's session."""
    from requests_aws4auth import AWS4Auth

    return SerializedSigner(AWS4Auth(region=region, service=SERVICE, refreshable_credentials=credentials))


def _credentials(prometheus: PrometheusSettings) -> "Credentials":
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import BotoCoreError

    try:
        session = aws.new_session()
        own = session.get_credentials()
    except BotoCoreError as error:
        raise CredentialsError(f"AWS credentials to sign requests to Prometheus are unusable: {error}") from error
    if own is None:
        raise CredentialsError("no AWS credentials were found to sign requests to Prometheus with")
    if not prometheus.role_arn:
        return own
    arguments = {"RoleSessionName": "gpucost"}
    if prometheus.external_id:
        arguments["ExternalId"] = prometheus.external_id
    region = session.region_name or prometheus.region  # on a workstation none may be set
    create_client = partial(session.client, region_name=region, config=aws.config())  # its own waits for minutes
    fetcher = AssumeRoleCredentialFetcher(create_client, own, prometheus.role_arn, extra_args=arguments)
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
