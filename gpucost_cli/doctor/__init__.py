"""`gpucost doctor`: which metrics each cluster's Prometheus has, what attribution lacks, and what to change.

`collection` queries the facts, `checks` evaluates them, and `render` prints the reports.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gpucost.core.errors import CredentialsError, GpuCostError
from gpucost.core.pricing.prices import Price, attributes_of_node
from gpucost.runtime.deadline import Deadline
from gpucost.settings import ClusterSettings, CoreSettings, PrometheusSettings
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost.sources.prometheus.connection import connect
from gpucost.sources.prometheus.metrics_sources import TrustedSeries
from gpucost_cli.doctor import labels, signals
from gpucost_cli.doctor.checks import Check, CheckContext, run_checks
from gpucost_cli.doctor.checks.prices import unpriced_nodes
from gpucost_cli.doctor.collection import FactsCollector
from gpucost_cli.doctor.setup import CollectionSetup, examine_setup
from gpucost_cli.doctor.summary import Summary, summarize
from gpucost_cli.doctor.utilization import HeldGpus, gpus_held_by_signal_and_source
from gpucost_cli.documentation import page_path
from gpucost_cli.placeholders import refuse_placeholders

Attribution = Literal["possible", "wrong", "impossible"]

FetchPrices = Callable[[Iterable[Mapping[str, str]]], Sequence[Price]]
"""Returns AWS's prices for the attributes of some nodes."""
CLUSTER_TIMEOUT_SECONDS = 300.0
"""Timeout for all queries to one cluster's Prometheus."""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The results for one cluster."""

    cluster: str
    checks: Sequence[Check]
    utilization: Sequence[HeldGpus]
    setup: CollectionSetup | None = None
    """How the metrics are collected; None if Prometheus did not answer."""
    summary: Summary | None = None
    """What can be attributed now, in sentences; None if Prometheus did not answer."""

    @property
    def possible(self) -> bool:
        """Whether the cluster's hours can be attributed correctly: no required check is missing or faulty."""
        return self.attribution == "possible"

    @property
    def attribution(self) -> Attribution:
        """`impossible` if a required check is missing, `wrong` if a required check is faulty."""
        statuses = {check.status for check in self.checks if check.severity == "required"}
        return "impossible" if "missing" in statuses else "wrong" if "faulty" in statuses else "possible"

    @property
    def first_problem(self) -> str:
        """The first problem that prevents correct attribution."""
        status = "missing" if self.attribution == "impossible" else "faulty"
        checks = [check for check in self.checks if check.severity == "required" and check.status == status]
        checks.sort(key=lambda check: bool(check.explained_by))
        return next((check.finding or f"{check.metric} is missing" for check in checks), "")

    @property
    def is_unreachable(self) -> bool:
        """Whether Prometheus did not answer, so that there are no other checks."""
        return len(self.checks) == 1 and not self.possible


def examine_clusters(
    settings: CoreSettings,
    now: datetime,
    settings_file: str = "settings.yaml",
    secret_value: Callable[[str], str] | None = None,
    fetch_prices: FetchPrices | None = None,
) -> list[ClusterReport]:
    """Examine every cluster. A Prometheus that does not answer is not queried again for other clusters.

    Args:
        settings: the settings.
        now: the end of the window that is examined.
        settings_file: the settings' path, for errors and for commands to paste.
        secret_value: reads a secret that the settings name; None reads it with the process's own credentials.
        fetch_prices: returns AWS's prices for nodes that nothing else prices; None if AWS is not asked.

    Raises:
        InvalidInputError: the settings contain a placeholder of an example.
    """
    refuse_placeholders(settings, settings_file)
    unreachable: dict[str, Sequence[Check]] = {}
    reports = []
    for cluster in settings.clusters:
        key = cluster.prometheus.model_dump_json()
        if key in unreachable:
            reports.append(ClusterReport(cluster.name, unreachable[key], []))
            continue
        report = examine_cluster(
            cluster, settings, now, settings_file=settings_file, secret_value=secret_value, fetch_prices=fetch_prices
        )
        reports.append(report)
        if report.is_unreachable:
            unreachable[key] = report.checks
    return reports


def examine_cluster(
    cluster: ClusterSettings,
    settings: CoreSettings,
    now: datetime,
    *,
    client: Callable[..., PrometheusClient] = PrometheusClient,
    settings_file: str = "settings.yaml",
    secret_value: Callable[[str], str] | None = None,
    fetch_prices: FetchPrices | None = None,
) -> ClusterReport:
    """Examine one cluster. If its Prometheus does not answer, the report has a single check."""
    utilization = settings.utilization
    required_labels, ranks = (
        labels.required_labels(settings),
        signals.signals_by_rank(utilization.signal, utilization.scale),
    )
    try:
        prometheus = connect(cluster, Deadline(CLUSTER_TIMEOUT_SECONDS), secret_value=secret_value, make_client=client)
        trusted_series = TrustedSeries.from_settings(cluster.sources)
        counters = settings.inference.collected_metrics()
        units = cluster.gpus_per_unit()
        collector = FactsCollector(
            prometheus, cluster.selector, required_labels, ranks, trusted_series, counters, units, cluster.name
        )
        facts = collector.collect(now)
    except (ValueError, ArithmeticError) as error:
        finding = f"the response of Prometheus at {cluster.prometheus.url} is unusable: {error}"
        return ClusterReport(cluster.name, [_unreachable(finding, _check_access(cluster.prometheus))], [])
    except CredentialsError as error:
        return ClusterReport(cluster.name, [_unreachable(str(error), _GIVE_CREDENTIALS)], [])
    except GpuCostError as error:
        finding, change = _finding_and_change(error, cluster)
        return ClusterReport(cluster.name, [_unreachable(finding, change)], [])
    unpriced = [node for node, _ in unpriced_nodes(facts, settings, cluster.name)] if fetch_prices else []
    attributes = [attributes_of_node(node, cluster.name) for node in unpriced]
    prices = fetch_prices(attributes) if fetch_prices and attributes else ()
    context = CheckContext(facts, cluster, settings, required_labels, ranks, settings_file, prices)
    utilization_of_held_gpus = gpus_held_by_signal_and_source(context)
    return ClusterReport(
        cluster.name,
        [Check("Prometheus", "", "found", "required"), *run_checks(context)],
        utilization_of_held_gpus,
        examine_setup(prometheus, cluster.prometheus, facts.collector_labels),
        summarize(context, utilization_of_held_gpus),
    )


def explain_failure(error: GpuCostError, cluster: ClusterSettings) -> str:
    """Say in a sentence why the Prometheus of `--prometheus` did not answer, and in another one what to change."""
    finding, change = _finding_and_change(error, cluster)
    for setting, option in _AS_OPTIONS.items():
        change = change.replace(setting, option)
    return f"{finding}. {change[0].upper()}{change[1:]}"


def _finding_and_change(error: GpuCostError, cluster: ClusterSettings) -> tuple[str, str]:
    finding = str(error).removeprefix(f"cluster {cluster.name}: ").partition(" (query: ")[0]
    return finding, _NAME_TENANT if "no org id" in finding else _check_address(finding, cluster.prometheus)


_NAME_TENANT = (
    "settings, prometheus: headers: {X-Scope-OrgID: …}, with the tenant that has the cluster's metrics "
    f"({page_path('docs/how-to/clusters/other-servers.md')})"
)
_PORT_FORWARD = "kubectl port-forward -n monitoring svc/prometheus-operated 9090"
"""The service of kube-prometheus-stack."""
_AS_OPTIONS = {
    "settings, prometheus.url: check host and port": "check host and port of --prometheus",
    "settings, prometheus.url: correct the host name": "correct the host name in --prometheus",
    "settings, prometheus.url: ": "",
    "settings, prometheus: headers: {X-Scope-OrgID: …}, with": "pass --header X-Scope-OrgID=TENANT, with",
    "settings, prometheus: use the host name of the server's certificate as url": (
        "use the host name of the server's certificate in --prometheus"
    ),
    "add that authority's certificate as ca_certificates": "pass that authority's certificate with --ca-file",
    "the url in the settings": "the address in --prometheus",
}
"""What the options of `--prometheus` are called in the settings."""
_GIVE_CREDENTIALS = (
    "provide AWS credentials and a region as for the AWS CLI: AWS_PROFILE and AWS_REGION, aws configure or "
    "aws sso login; aws sts get-caller-identity shows the identity in use"
)

CONNECTION_ROWS = """
Prometheus | it does not respond or refuses the query; the finding has the reason, once for all clusters that share it | its address in the settings, or the permission or secret that the change names. Certificates of authorities of your own need `ca_certificates`
Prometheus, `no org id` | the server has tenants, as Mimir, and the request names none | `headers: {X-Scope-OrgID: …}` ([other servers](../how-to/clusters/other-servers.md))
Prometheus, without AWS credentials | `auth: sigv4` or a secret needs credentials, and there are none, or they are unusable | credentials for this shell, as for the AWS CLI
"""  # noqa: E501 - one line for each row
"""Rows of docs/reference/doctor.md on a Prometheus that does not answer."""


def _check_address(finding: str, prometheus: PrometheusSettings) -> str:
    """The change for a server that refuses queries: the part of the address that is probably wrong."""
    if any(sign in finding for sign in ("answered 404", "an HTML page", "in a format that is not Prometheus'")):
        return (
            f"settings, prometheus.url: queries append /api/v1/query to {prometheus.url}, where no Prometheus answers. "
            "Write its base URL, without a page such as /graph, and check the port: another service may listen there"
        )
    if "TLS failed" in finding and prometheus.url.startswith("https:"):
        return (
            "settings, prometheus.url: the server did not answer in TLS. If it has none, write http://; otherwise "
            "check the port"
        )
    if "connection refused" in finding:
        return (
            "settings, prometheus.url: check host and port. To reach the service of kube-prometheus-stack, run "
            f"{_PORT_FORWARD}, and use http://127.0.0.1:9090"
        )
    if "cannot be resolved" in finding:
        return (
            "settings, prometheus.url: correct the host name. Names of Services resolve only in the cluster: "
            f"elsewhere, run for example {_PORT_FORWARD}, and use http://127.0.0.1:9090"
        )
    if "certificate is not trusted" in finding:
        return (
            "settings, prometheus: use the host name of the server's certificate as url. If it is from an authority "
            "of your own, add that authority's certificate as ca_certificates"
        )
    return _check_access(prometheus)


def _check_access(prometheus: PrometheusSettings) -> str:
    change = "check that Prometheus runs and can be reached from here at the url in the settings"
    if prometheus.auth == "sigv4":
        change += ", and that the AWS credentials have the permission aps:QueryMetrics on the workspace"
    elif prometheus.auth == "bearer":
        change += f", and that secret {prometheus.secret} can be read and contains the token"
    return change


def _unreachable(finding: str, change: str) -> Check:
    return Check("Prometheus", "", "missing", "required", finding=finding, change=change)
