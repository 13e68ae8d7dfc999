"""A client of the Prometheus or AMP workspace that a cluster's settings name, with its authentication."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from requests.auth import AuthBase
from requests.models import PreparedRequest

from gpucost.core.errors import CredentialsError
from gpucost.runtime import aws
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.secrets import BearerAuth, SecretHeaderAuth, Secrets, check_destination
from gpucost.settings import ClusterSettings, PrometheusSettings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost.sources.prometheus.queries import Queries

if TYPE_CHECKING:
    from botocore.credentials import Credentials


def connect(
    cluster: ClusterSettings,
    deadline: Deadline | None = None,
    budget: MemoryBudget | None = None,
    secret_value: Callable[[str], str] | None = None,
    make_client: Callable[..., PrometheusClient] = PrometheusClient,
) -> PrometheusClient:
    """Create the client. It sends no request yet, not even for credentials.

    Args:
        cluster: the cluster's settings.
        deadline: for all queries together; None: each query has only its own timeout.
        budget: memory for all responses together; None: each response has its own budget.
        secret_value: reads the secret of a bearer token; None reads it with the process's own credentials.
        make_client: makes the client from `PrometheusClient`'s arguments.
    """
    prometheus = cluster.prometheus
    return make_client(
        prometheus.url,
        cluster=cluster.name,
        auth=authenticator(prometheus, secret_value),
        headers=prometheus.headers,
        ca_certificates=prometheus.ca_certificates,
        timeout=prometheus.timeout_seconds,
        deadline=deadline,
        budget=budget,
        max_samples=prometheus.sample_limit(),
    )


class ClusterReader:
    """Base of readers that query a cluster's metrics without utilization signals.

    Args:
        cluster: the cluster's settings.
        deadline: for all of its queries together.
        secret_value, client: as in `connect`.
    """

    def __init__(
        self,
        cluster: ClusterSettings,
        deadline: Deadline | None = None,
        *,
        secret_value: Callable[[str], str] | None = None,
        client: Callable[..., PrometheusClient] = PrometheusClient,
    ) -> None:
        self._client = connect(cluster, deadline, secret_value=secret_value, make_client=client)
        self._queries = Queries(cluster.selector, [], trusted_series=TrustedSeries.from_settings(cluster.sources))
        self._cluster = cluster.name


SIGV4_SERVICE = "aps"


def authenticator(prometheus: PrometheusSettings, secret_value: Callable[[str], str] | None = None) -> AuthBase | None:
    """The authentication of a cluster's requests; None if its Prometheus needs none.

    Args:
        prometheus: the cluster's settings.
        secret_value: reads a secret; None reads it with the process's own credentials.
    """
    read_secret = secret_value or Secrets(aws.AwsClients()).value
    steps: list[AuthBase] = [
        SecretHeaderAuth(header, secret, read_secret) for header, secret in prometheus.secret_headers.items()
    ]
    if prometheus.auth == "bearer" and prometheus.secret:
        steps.append(BearerAuth(prometheus.secret, read_secret))
    if prometheus.auth == "sigv4" and prometheus.region:
        steps.append(sigv4(_credentials(prometheus), prometheus.region))
    return AuthSteps(steps) if len(steps) > 1 else next(iter(steps), None)


class AuthSteps(AuthBase):
    """Applies several kinds of authentication to each request, in order."""

    def __init__(self, steps: Sequence[AuthBase]) -> None:
        self._steps = steps

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Authenticate a request.

        Raises:
            SourceError: a secret is not for this address, or cannot be read.
        """
        for step in self._steps:
            request = step(request)
        return request


class SerializedSigner(AuthBase):
    """Signs one request at a time, because the signer replaces its keys in place when credentials refresh."""

    def __init__(self, signer: AuthBase) -> None:
        self._signer = signer
        self._lock = Lock()

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Sign a request.

        Raises:
            CredentialsError: there are no credentials, for example because the role cannot be assumed.
            SourceError: the request goes to another machine over plain http.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        check_destination(request)
        try:
            with self._lock:
                return self._signer(request)
        except (BotoCoreError, ClientError) as error:
            raise CredentialsError(f"requests to Prometheus could not be signed: {error}") from error


def sigv4(credentials: "Credentials", region: str) -> AuthBase:
    """A signer that refreshes its credentials, because a function can outlive its role's session."""
    from requests_aws4auth import AWS4Auth

    return SerializedSigner(AWS4Auth(region=region, service=SIGV4_SERVICE, refreshable_credentials=credentials))


def _credentials(prometheus: PrometheusSettings) -> "Credentials":
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import BotoCoreError

    try:
        session = aws.new_session()
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise CredentialsError(f"AWS credentials to sign requests to Prometheus are unusable: {error}") from error
    if credentials is None:
        raise CredentialsError("no AWS credentials were found to sign requests to Prometheus with")
    if not prometheus.role_arn:
        return credentials
    arguments = {"RoleSessionName": "gpucost"}
    if prometheus.external_id:
        arguments["ExternalId"] = prometheus.external_id
    region = aws.region_of(session) or prometheus.region  # on a workstation none may be set
    # botocore's default configuration would wait for minutes.
    create_client = partial(session.create_client, region_name=region, config=aws.client_config())
    fetcher = AssumeRoleCredentialFetcher(create_client, credentials, prometheus.role_arn, extra_args=arguments)
    return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)
