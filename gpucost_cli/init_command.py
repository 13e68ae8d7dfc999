"""`gpucost init`: asks what a deployment needs, and writes its settings and the parameters of its stack."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from gpucost.core.errors import GpuCostError, InvalidInputError, SourceError
from gpucost.core.hours import HOUR
from gpucost_cli.aws_session import aws_credentials, aws_session, choose_region, profile_option
from gpucost_cli.documentation import page_path
from gpucost_cli.placeholders import refuse_placeholders
from gpucost_cli.questions import (
    SettingOption,
    accepts_defaults,
    answer,
    require_terminal,
    require_terminal_for_all,
    yes_option,
)
from gpucost_cli.samconfig import (
    DEVELOPMENT,
    ENVIRONMENT,
    FILE_NAME,
    ask_stack_parameters,
    has_environment,
    region_option,
    stack_options,
    with_environment,
)

if TYPE_CHECKING:
    from gpucost.settings import ClusterSettings
    from gpucost.settings_document import SettingsDocument
    from gpucost.sources.prometheus.client import PrometheusClient

SETTINGS_NAME, SCHEMA_NAME = "settings.yaml", "settings.schema.json"
WINDOW = timedelta(days=7)
"""Time in which namespaces must have held GPUs to be proposed as business units."""
QUERIES_SECONDS = 120.0
"""Limit of the time that all queries take together."""


def _cluster_name() -> Any:
    from gpucost.settings import ClusterName

    return ClusterName


def _prometheus() -> Any:
    from gpucost.settings import PrometheusSettings

    return PrometheusSettings


def _secret_name() -> Any:
    from gpucost.settings.section import SecretName

    return SecretName


def _price() -> Any:
    from gpucost.settings.section import Positive

    return Positive


class PairOption(click.ParamType[tuple[str, str]]):
    """A text such as `research=bu-a`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, text: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return both sides, or fail with a usage error."""
        left, separator, right = text.partition("=")
        if not (left and separator and right):
            self.fail(f"{text!r} is not {self.name}.", param, ctx)
        return left, right


@click.command()
@click.option(
    "--out",
    "folder",
    default=".",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files.",
)
@region_option
@profile_option
@click.option("--cluster", type=SettingOption("name", _cluster_name), help="Name of the EKS cluster.")
@click.option("--amp-workspace", help="AMP workspace with the cluster's metrics: its ID or alias.")
@click.option("--prometheus-url", type=SettingOption("url", _prometheus, "url"), help="Base URL of another Prometheus.")
@click.option("--auth", type=click.Choice(["none", "sigv4", "bearer"]), help="Authentication of --prometheus-url.")
@click.option("--secret", type=SettingOption("name", _secret_name), help="Secret with the token, for --auth bearer.")
@click.option(
    "--selector",
    multiple=True,
    type=PairOption("LABEL=VALUE"),
    help="Label that selects the cluster's series, if several clusters share a Prometheus.",
)
@click.option(
    "--gpu-hourly-usd",
    type=SettingOption("usd", _price, is_optional=True),
    help="Price of a GPU-hour; without it, nodes get AWS's prices.",
)
@click.option(
    "--business-unit",
    "units",
    multiple=True,
    type=PairOption("NAME=NAMESPACE,NAMESPACE"),
    help="Business unit with its namespaces or their patterns, instead of the proposed ones.",
)
@click.option(
    "--environment",
    default=DEVELOPMENT,
    show_default=True,
    type=ENVIRONMENT,
    help="Section of samconfig.toml for the stack: dev logs more, prod keeps logs for longer.",
)
@stack_options
@yes_option
def init(
    *,
    folder: Path,
    environment: str,
    selector: Sequence[tuple[str, str]],
    units: Sequence[tuple[str, str]],
    **_options: str | None,
) -> None:
    """Ask what a deployment needs, and write settings.yaml and samconfig.toml.

    Every question has an option, so that scripts can answer it. The business units are proposed from the namespaces
    whose pods requested GPUs in the last seven days. Existing settings and stacks are never overwritten: a stack is
    added to an existing samconfig.toml.

    \b
    Example:
      gpucost init
      gpucost init --region eu-central-1 --cluster prod --prometheus-url http://127.0.0.1:9090 --yes
    """
    settings_path, samconfig_path = folder / SETTINGS_NAME, folder / FILE_NAME
    _refuse_existing(settings_path, environment)
    if has_environment(samconfig_path, environment):
        raise InvalidInputError(
            f"{samconfig_path} has a stack for the environment {environment} already, and init overwrites nothing. "
            f"To deploy it: make deploy ENV={environment}. For another stack, pass another --environment and --out"
        )
    region = _ask_region()
    name = answer("cluster", "Name of the EKS cluster")
    prometheus = _ask_prometheus(region)
    try:
        metrics = _ask_until_in_metrics(name, prometheus, dict(selector))
        namespaces = metrics.namespaces()
    except SourceError as error:
        raise GpuCostError(f"{str(error).partition(' (query: ')[0]}. Nothing was written") from error
    cluster = metrics.cluster
    price = answer("gpu_hourly_usd", "Price of a GPU-hour in USD (Enter for AWS's prices)", "")
    business_units = {unit: namespaces.split(",") for unit, namespaces in units} or _ask_units(namespaces)
    _check_settings(render_settings(cluster.name, prometheus, cluster.selector, price, business_units))
    stack = ask_stack_parameters(environment, region, fetches_prices=not price)
    text = render_settings(
        cluster.name,
        prometheus,
        cluster.selector,
        price,
        business_units,
        has_email=bool(stack.alert_email),
        has_schema=(folder / SCHEMA_NAME).exists(),
    )
    _check_settings(text)
    _write_both(settings_path, text, samconfig_path, with_environment(samconfig_path, environment, stack))
    path = quote(str(settings_path))
    click.echo(
        f"wrote {settings_path} and {samconfig_path}. Next:\n"
        f"  gpucost doctor --settings {path}\n"
        f"  gpucost attribute --settings {path}\n"
        f"  make deploy ENV={quote(environment)}            # in a clone of gpucost, with {FILE_NAME} in its folder\n"
        f"  gpucost settings push {path} --stack {quote(stack.stack_name)} --region {quote(region)}"
    )
    if not _is_reachable_from_lambda(prometheus["url"]):
        click.echo(
            f"note: {prometheus['url']} works for commands on this machine. The deployed service needs an address that "
            "Lambda can reach: before the push, write AMP's or an https address with a token into the settings"
        )


def _is_reachable_from_lambda(url: str) -> bool:
    """Whether an address is neither of this machine nor of a cluster's own DNS."""
    host = urlsplit(url).hostname or ""
    try:
        is_local = ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost" or host.endswith((".svc", ".cluster.local"))
    return not is_local


def _refuse_existing(path: Path, environment: str) -> None:
    if path.exists() or path.is_symlink():
        raise InvalidInputError(
            f"{path} exists already, and init overwrites no file. To add a stack with these settings, run make deploy "
            f"ENV={environment}, which asks for what the stack needs. For other settings, pass another folder as --out"
        )


def _ask_region() -> str:
    """Return the region, and make it that of this process' AWS clients."""
    choose_region(None)
    try:
        default = aws_session().region_name
    except InvalidInputError:  # no region is set, or the profile does not exist, which matters only where AWS is called
        default = None
    options = click.get_current_context().params
    missing = {
        "--region": options["region"] is None and default is None,
        "--cluster": options["cluster"] is None,
        "--prometheus-url (or --amp-workspace)": options["prometheus_url"] is None and options["amp_workspace"] is None,
    }
    require_terminal_for_all([option for option, is_missing in missing.items() if is_missing])
    region: str = answer("region", "AWS region", default)
    choose_region(region)
    return region


# ---------------------------------------------------------------- Prometheus


def _ask_prometheus(region: str) -> dict[str, str]:
    """Return the address of the metrics and the authentication to it, as `settings.clusters[].prometheus` has them."""
    options = click.get_current_context().params
    if options["amp_workspace"] and options["prometheus_url"]:
        raise InvalidInputError("--amp-workspace and --prometheus-url exclude each other. Pass one of them")
    if options["prometheus_url"] is None:
        url = _workspace_url(options["amp_workspace"])
        if url:
            return {"url": url, "auth": "sigv4", "region": region}
    url = answer("prometheus_url", "URL of the cluster's Prometheus, such as http://127.0.0.1:9090")
    auth = answer("auth", "Authentication", "sigv4" if "//aps-workspaces" in url else "none")
    if auth == "sigv4":
        aws_credentials(aws_session())
        return {"url": url, "auth": auth, "region": region}
    if auth == "bearer":
        return {"url": url, "auth": auth, "secret": answer("secret", "Secret in Secrets Manager with the token")}
    return {"url": url, "auth": auth}


def _ask_until_in_metrics(name: str, prometheus: Mapping[str, str], selector: Mapping[str, str]) -> "GpuMetrics":
    """Return the metrics of a cluster. A name that was typed, and that the metrics do not have, is asked for again.

    Raises:
        InvalidInputError: the metrics do not have the name that was passed.
        SourceError: Prometheus did not answer.
    """
    while True:
        try:
            return GpuMetrics(_cluster_settings(name, prometheus, selector))
        except InvalidInputError as error:
            if click.get_current_context().params["cluster"] is not None:
                raise
            click.echo(f"Error: {error}", err=True)
            name = answer("cluster", "Name of the EKS cluster")


def _workspace_url(name: str | None) -> str | None:
    """Return the address of an AMP workspace; None if there is none to choose, or none is chosen.

    Raises:
        GpuCostError: a workspace is named, but does not exist, or there are no credentials.
        InvalidInputError: nothing is named, and there is no terminal.
    """
    if name is None:
        require_terminal("--prometheus-url (or --amp-workspace)")
    session = aws_session()
    if name is None and session.get_credentials() is None:
        click.echo("AWS credentials were not found, so the AMP workspaces are not listed.", err=True)
        return None
    aws_credentials(session)
    from gpucost.runtime.aws import client_config

    client = session.client("amp", config=client_config())
    try:
        workspaces = list_workspaces(client)
    except GpuCostError as error:
        if name is not None:
            raise
        click.echo(f"{error}.", err=True)
        return None
    identity = _workspace_id(name, workspaces) if name else _choose_workspace(workspaces)
    if identity is None:
        return None
    endpoint: str = client.describe_workspace(workspaceId=identity)["workspace"]["prometheusEndpoint"]
    return endpoint.rstrip("/")


def list_workspaces(client: Any) -> dict[str, str]:
    """Return the aliases of the region's AMP workspaces by their IDs.

    Raises:
        GpuCostError: AWS did not respond, or refused.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        pages = list(client.get_paginator("list_workspaces").paginate())
    except (BotoCoreError, ClientError) as error:
        raise GpuCostError(f"the AMP workspaces cannot be listed: {error}") from error
    return {workspace["workspaceId"]: workspace.get("alias", "") for page in pages for workspace in page["workspaces"]}


def _workspace_id(name: str, workspaces: Mapping[str, str]) -> str:
    matches = [identity for identity, alias in workspaces.items() if name in {identity, alias}]
    if len(matches) != 1:
        listed = ", ".join(f"{identity} {alias}".strip() for identity, alias in workspaces.items()) or "none"
        raise InvalidInputError(
            f"--amp-workspace: {name!r} names {len(matches)} workspaces of the region, which has: {listed}. "
            "Pass the ID of one"
        )
    return matches[0]


def _choose_workspace(workspaces: Mapping[str, str]) -> str | None:
    if not workspaces:
        click.echo("The region has no AMP workspace.", err=True)
        return None
    for number, (identity, alias) in enumerate(workspaces.items(), 1):
        click.echo(f"  {number}  {identity}  {alias}", err=True)
    click.echo("  0  another Prometheus", err=True)
    number = click.prompt("AMP workspace", default=1, type=click.IntRange(0, len(workspaces)), err=True)
    return list(workspaces)[number - 1] if number else None


# ---------------------------------------------------------------- metrics


class GpuMetrics:
    """What the metrics of a cluster say about its GPUs.

    Args:
        cluster: the cluster's settings, with or without a selector.

    Attributes:
        cluster: these settings, with the selector that several clusters in one Prometheus require.

    Raises:
        SourceError: Prometheus does not respond, or refuses.
        InvalidInputError: it has several clusters, and none has the cluster's name.
    """

    def __init__(self, cluster: "ClusterSettings") -> None:
        from gpucost.runtime.deadline import Deadline
        from gpucost.sources.prometheus.connection import connect

        self._client: PrometheusClient = connect(cluster, Deadline(QUERIES_SECONDS))
        self._last = datetime.now(UTC)
        self.cluster = cluster
        if not cluster.selector:
            self.cluster = cluster.model_copy(update={"selector": self._required_selector()})

    def namespaces(self) -> list[str]:
        """Return the namespaces whose pods requested GPUs.

        Raises:
            GpuCostError: there are no GPU metrics at all.
        """
        from gpucost_cli.doctor.facts import REQUESTS
        from gpucost_cli.doctor.queries import CAPACITY, INIT_REQUESTS, REQUESTED_RESOURCES, DoctorQueries
        from gpucost_cli.doctor.signals import all_signal_names

        queries = DoctorQueries(self.cluster.selector)
        gpus = f'resource=~"{REQUESTED_RESOURCES}"'
        requests = " or ".join(queries.select(metric, gpus, 'node!=""') for metric in (REQUESTS, INIT_REQUESTS))
        series = self._series(f"count by (namespace,exported_namespace) ({requests})")
        namespaces = {labels.get("exported_namespace") or labels.get("namespace", "") for labels in series} - {""}
        if namespaces:
            return sorted(namespaces)
        if self._series(queries.device_counts(all_signal_names())) or self._series(
            f"count({queries.select(CAPACITY, gpus)})"
        ):
            return []
        selector = f" with the selector {self.cluster.selector}" if self.cluster.selector else ""
        raise GpuCostError(
            f"Prometheus at {self.cluster.prometheus.url} has no GPU metrics of the last {WINDOW.days} days{selector}: "
            "no pod requested GPUs, no node has any, and no exporter measured any. Nothing was written. "
            f"{page_path('docs/how-to/existing-cluster.md')} says how to install and scrape kube-state-metrics and "
            f"dcgm-exporter. Begin with settings.yaml, of this line: {self._minimal_settings()}; then gpucost doctor "
            "--settings settings.yaml prints the commands"
        )

    def _minimal_settings(self) -> str:
        cluster = self.cluster.model_dump(mode="json", exclude_defaults=True)
        return f"clusters: [{json.dumps(cluster, ensure_ascii=False)}]"

    def _required_selector(self) -> dict[str, str]:
        """Return the label that selects the cluster, if the metrics have several values of a cluster label."""
        from gpucost.sources.prometheus.cluster_labels import values_of_cluster_labels
        from gpucost_cli.doctor.parsing import values_by_label
        from gpucost_cli.doctor.queries import DoctorQueries

        # Of the same days as the namespaces: units are proposed from these, whether or not their cluster still runs.
        query = DoctorQueries({}).cluster_labels()
        values = values_by_label(self._client.query_range(query, self._last - WINDOW, self._last, HOUR))
        several = values_of_cluster_labels(values)
        if not several:
            return {}
        for label, names in several.items():
            if self.cluster.name in names:
                return {label: self.cluster.name}
        labels = "; ".join(f"{label}: {', '.join(names)}" for label, names in several.items())
        raise InvalidInputError(
            f"--cluster: Prometheus has the metrics of several clusters ({labels}), and none is named "
            f"{self.cluster.name!r}. Pass one of these names, or --selector LABEL=VALUE"
        )

    def _series(self, query: str) -> list[Mapping[str, str]]:
        """Return the labels of a query's series at any hour of the window."""
        return [series.labels for series in self._client.query_range(query, self._last - WINDOW, self._last, HOUR)]


def _ask_units(namespaces: Sequence[str]) -> dict[str, list[str]]:
    """Propose each namespace as a business unit."""
    if not namespaces:
        click.echo("No pod requested GPUs yet, so no business units are proposed.", err=True)
        return {}
    click.echo(f"Namespaces whose pods requested GPUs: {', '.join(namespaces)}", err=True)
    if not accepts_defaults():
        require_terminal("--business-unit", "one unit for each namespace")
        if not click.confirm("Write one business unit for each?", default=True, err=True):
            return {}
    return {namespace: [namespace] for namespace in namespaces}


# ---------------------------------------------------------------- files


def _cluster_settings(name: str, prometheus: Mapping[str, str], selector: Mapping[str, str]) -> "ClusterSettings":
    return _check_settings(render_settings(name, prometheus, selector, "", {})).clusters[0]


def _check_settings(text: str) -> "SettingsDocument":
    """Load a settings document as `gpucost settings push` does.

    Raises:
        InvalidInputError: the document is invalid, or has a placeholder of an example.
    """
    from gpucost.settings_document import parse_settings

    settings = parse_settings(text)
    settings.check_new_document()
    refuse_placeholders(settings, "settings")
    return settings


def render_settings(
    cluster: str,
    prometheus: Mapping[str, str],
    selector: Mapping[str, str],
    gpu_hourly_usd: str,
    business_units: Mapping[str, Sequence[str]],
    *,
    has_email: bool = False,
    has_schema: bool = False,
) -> str:
    """Return the settings document, with a comment for each section.

    Args:
        cluster: its name.
        prometheus: keys of `prometheus`.
        selector: labels that select the cluster's series.
        gpu_hourly_usd: price of a GPU-hour; empty for AWS's prices.
        business_units: namespaces by unit.
        has_email: whether the stack has an address for alerts, for which a first rule is written.
        has_schema: whether the document's JSON Schema is in the same folder.
    """
    lines = [f"# yaml-language-server: $schema={SCHEMA_NAME}"] if has_schema else []
    lines += [
        "# Settings of gpucost. Check them with: gpucost doctor --settings settings.yaml",
        "clusters:",
        f"  - name: {_yaml(cluster)}",
        "    prometheus:",
        *(f"      {key}: {_yaml(text)}" for key, text in prometheus.items()),
    ]
    if selector:
        labels = ", ".join(f"{_yaml(label)}: {_yaml(text)}" for label, text in selector.items())
        lines.append(f"    selector: {{{labels}}}  # several clusters share this Prometheus")
    if gpu_hourly_usd:
        lines += [
            "# One price for every GPU-hour. Remove this section for AWS's prices of each node.",
            f"pricing: {{source: constant, gpu_hourly_usd: {gpu_hourly_usd}}}",
        ]
    else:
        lines += [
            "# Without a section `pricing`, each node gets the best of AWS's prices:",
            "# docs/how-to/pricing.md of gpucost's repository.",
        ]
    lines.append("# A pod belongs to the first unit that matches. A namespace that matches none is a unit of its own.")
    if business_units:
        lines.append("business_units:")
        for unit, namespaces in business_units.items():
            patterns = ", ".join(map(_yaml, namespaces))
            lines.append(f"  - {{name: {_yaml(unit)}, namespaces: [{patterns}]}}")
    else:
        lines += ["# business_units:", '#   - {name: research, namespaces: ["research-*"]}']
    if has_email:
        lines += [
            "# An alert if a unit wastes half of its GPUs, and $10 an hour or more, for three hours. All rules are in",
            "# docs/how-to/alerts.md of gpucost's repository.",
            "alerts:",
            "  receivers:",
            "    - {type: email}  # the address in samconfig.toml, once its owner has confirmed the subscription",
            "  rules:",
            "    - {rule: waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 3}",
        ]
    return "\n".join(lines) + "\n"


def _yaml(text: str) -> str:
    """Return a text as YAML, quoted if it needs to be."""
    import yaml

    return yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=10**6)[1:-2]


def _write_both(settings_path: Path, settings_text: str, samconfig_path: Path, samconfig_text: str) -> None:
    """Create the settings and write `samconfig.toml`, or change neither.

    Raises:
        InvalidInputError: the settings exist already.
        GpuCostError: the folder cannot be written.
    """
    folder = settings_path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".gpucost-init-") as staging:
            staged_settings, staged_samconfig = Path(staging) / SETTINGS_NAME, Path(staging) / FILE_NAME
            staged_settings.write_text(settings_text, encoding="utf-8")
            staged_samconfig.write_text(samconfig_text, encoding="utf-8")
            os.link(staged_settings, settings_path)  # fails if the file exists, unlike a rename
            try:
                staged_samconfig.replace(samconfig_path)
            except BaseException:
                settings_path.unlink()
                raise
    except FileExistsError:
        raise InvalidInputError(
            f"{settings_path} exists already: it was created meanwhile. Nothing was written. Pass another folder as "
            "--out"
        ) from None
    except OSError as error:
        raise GpuCostError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
