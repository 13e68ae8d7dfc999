"""How Prometheus lets us in: nobody asks, a bearer token, or SigV4 for Amazon Managed Service for Prometheus."""

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from requests.auth import AuthBase
from requests.models import PreparedRequest

from gpucost.errors import SourceError
from gpucost.settings import PrometheusSettings

if TYPE_CHECKING:
    from botocore.credentials import Credentials

SERVICE = "aps"


class BearerAuth(AuthBase):
    """Sends a token; asked anew for each request, so that a rotated secret is picked up."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add the token."""
        from gpucost.adapters.secrets import secret_value

        request.headers["Authorization"] = f"Bearer {secret_value(self._secret).strip()}"
        return request


def authenticator(prometheus: PrometheusSettings) -> AuthBase | None:
    """What signs a cluster's requests."""
    if prometheus.auth == "bearer" and prometheus.secret:
        return BearerAuth(prometheus.secret)
    if prometheus.auth == "sigv4" and prometheus.region:
        return sigv4(_credentials(prometheus), prometheus.region)
    return None


class OneAtATime(AuthBase):
    """Lets one request after the other be signed: the signer swaps its keys in place when credentials refresh."""

    def __init__(self, signer: AuthBase) -> None:
        self._signer = signer
        self._lock = Lock()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign.

        Raises:
            SourceError: there are no credentials: the role cannot be assumed, for instance.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                return self._signer(request)
        except (BotoCoreError, ClientError) as error:
            raise SourceError(f"requests to Prometheus could not be signed: {error}") from error


def sigv4(credentials: "Credentials", region: str) -> AuthBase:
    """A signer whose credentials refresh themselves: a function lives longer than its role's session."""
    from requests_aws4auth import AWS4Auth

    return OneAtATime(AWS4Auth(region=region, service=SERVICE, refreshable_credentials=credentials))


def _credentials(prometheus: PrometheusSettings) -> "Credentials":
    import botocore.session
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    session = botocore.session.get_session()
    own = session.get_credentials()
    if own is None:
        raise SourceError("no AWS credentials were found to sign requests to Prometheus with")
    if not prometheus.role_arn:
        return own
    arguments = {"RoleSessionName": "gpucost"}
    if prometheus.external_id:
        arguments["ExternalId"] = prometheus.external_id
    region = session.get_config_variable("region") or prometheus.region  # on a workstation none may be set
    create_client = partial(session.create_client, region_name=region)
    fetcher = AssumeRoleCredentialFetcher(create_client, own, prometheus.role_arn, extra_args=arguments)
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
