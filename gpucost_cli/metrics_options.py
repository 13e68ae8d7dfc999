"""Options of the commands that read a Prometheus: a settings file, or an address whose clusters are found."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, wraps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpucost.core.errors import InvalidInputError, SourceError
from gpucost.settings.documents import straighten_quotes
from gpucost_cli.aws_session import aws_options
from gpucost_cli.options import naming_file, read_settings_file

if TYPE_CHECKING:
    from gpucost.runtime.secrets import Secrets
    from gpucost.settings_document import SettingsDocument

DEFAULT_SETTINGS = Path("settings.yaml")
TOKEN_VARIABLE = "GPUCOST_PROMETHEUS_TOKEN"
PASSWORD_VARIABLE = "GPUCOST_PROMETHEUS_PASSWORD"
TOKEN_SECRET = "gpucost/prometheus-token"
QUERIES_SECONDS = 120.0
"""Limit of the time that finding the clusters may take."""


@dataclass(frozen=True)
class MetricsAccess:
    """Where the metrics are: a settings file, or the address of a Prometheus."""

    path: Path | None
    prometheus: Mapping[str, Any] = field(default_factory=dict)
    """Address and authentication, as `settings.clusters[].prometheus` has them; empty with a settings file."""
    token: str = field(default="", repr=False)
    user: str = ""
    """The user of basic authentication, whose password is the token; "" for a bearer token."""
    options: tuple[str, ...] = ()
    """The options of authentication as they were passed, with files and without secrets."""

    @property
    def arguments(self) -> str:
        """The options that name the same metrics, for messages."""
        words = ("--settings", str(self.path)) if self.path else ("--prometheus", self.prometheus["url"])
        return " ".join(map(quote, (*words, *self.options)))

    @property
    def doctor_command(self) -> str:
        """The command that examines the same metrics."""
        return f"gpucost doctor {self.arguments}"

    def settings_text(self) -> str:
        """Return the settings file, or a document of the clusters that are found in the metrics.

        Raises:
            InvalidInputError: the file cannot be read, or the address has no metrics of Kubernetes.
            SourceError: Prometheus did not answer.
        """
        if self.path is not None:
            return read_settings_file(self.path)
        from gpucost.runtime.deadline import Deadline
        from gpucost.settings_document import parse_settings
        from gpucost.sources.prometheus.connection import connect
        from gpucost_cli.discovery import find_clusters

        unnamed = parse_settings(json.dumps({"clusters": [{"name": "cluster", "prometheus": self.prometheus}]}))
        client = connect(unnamed.clusters[0], Deadline(QUERIES_SECONDS), secret_value=self.secret_value)
        try:
            clusters = find_clusters(self.prometheus, client, datetime.now(UTC))
        except SourceError as error:
            from gpucost_cli.doctor import explain_failure

            cluster = unnamed.clusters[0]
            raise SourceError(explain_failure(error, cluster)) from error
        return json.dumps({"clusters": clusters}, indent=2)

    def settings(self) -> "SettingsDocument":
        """Return the settings, as `text_and_settings`."""
        return self.text_and_settings()[1]

    def text_and_settings(self) -> "tuple[str, SettingsDocument]":
        """Return the settings as text and validated.

        Raises:
            InvalidInputError: as `settings_text`, or they are invalid; the sentence names the file.
            SourceError: Prometheus did not answer.
        """
        from gpucost.settings_document import parse_settings

        with naming_file(self.path):
            text = self.settings_text()
            return text, parse_settings(text)

    def secret_value(self, name: str) -> str:
        """Read a secret: the token of the options, else from Secrets Manager.

        Raises:
            SourceError: it cannot be read.
        """
        if name == TOKEN_SECRET and self.token:
            credentials = {"user": self.user, "password": self.token} if self.user else {"token": self.token}
            return json.dumps({"url": self.prometheus["url"], **credentials})
        return self._secrets.value(name)

    @cached_property
    def _secrets(self) -> "Secrets":
        """The secrets of Secrets Manager, each read once, because every query carries one."""
        from gpucost.runtime.aws import AwsClients
        from gpucost.runtime.secrets import Secrets

        return Secrets(AwsClients())


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the metrics are, as the parameter `access`."""

    @wraps(command)
    def wrapped(
        *,
        path: Path | None,
        url: str | None,
        token_file: Path | None,
        user: str | None,
        password_file: Path | None,
        headers: tuple[str, ...],
        ca: Path | None,
        **more: Any,
    ) -> Any:
        credentials = _Credentials(token_file, user, password_file)
        if more.get("simulated"):
            if path or url or any(credentials) or headers or ca:
                raise InvalidInputError(
                    "--simulated has its own Prometheus. Pass it without --prometheus, --settings and their options"
                )
            return command(access=MetricsAccess(None), **more)
        return command(access=_access(path, url, credentials, headers, ca), **more)

    wrapped = aws_options(wrapped)
    options = (
        click.option(
            "--prometheus", "url", metavar="URL", help="Base URL of the Prometheus; no settings file is needed."
        ),
        click.option(
            "--settings",
            "path",
            type=click.Path(path_type=Path),
            help="Settings file, YAML or JSON.  [default: settings.yaml, if it is there and there is no --prometheus]",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            help=f"File with the bearer token of --prometheus; or set {TOKEN_VARIABLE}.",
        ),
        click.option("--user", help="User of basic authentication at --prometheus."),
        click.option(
            "--password-file",
            type=click.Path(path_type=Path),
            help=f"File with the password of --user; or set {PASSWORD_VARIABLE}.",
        ),
        click.option(
            "--header",
            "headers",
            multiple=True,
            metavar="NAME=VALUE",
            help="Header of each query, such as X-Scope-OrgID=gpu.",
        ),
        click.option("--ca-file", "ca", type=click.Path(path_type=Path), help="Certificates of authorities."),
    )
    for option in reversed(options):  # the help lists the outermost decorator first
        wrapped = option(wrapped)
    return wrapped


class _Credentials(NamedTuple):
    token_file: Path | None
    user: str | None
    password_file: Path | None

    def read(self) -> str:
        """Return the bearer token, or the password of the user; "" without either."""
        if self.token_file and (self.user or self.password_file):
            raise InvalidInputError("--token-file and --user exclude each other. Pass one of them")
        if self.token_file:
            return _read(self.token_file, "--token-file")
        if not self.user:
            if self.password_file:
                raise InvalidInputError("--password-file goes with --user. Pass the name of the user")
            return os.environ.get(TOKEN_VARIABLE, "").strip()
        if self.password_file:
            return _read(self.password_file, "--password-file")
        if password := os.environ.get(PASSWORD_VARIABLE, ""):
            return password
        raise InvalidInputError(
            f"--user: pass --password-file FILE with the user's password, or set {PASSWORD_VARIABLE}"
        )


def _access(
    path: Path | None, url: str | None, credentials: _Credentials, headers: tuple[str, ...], ca: Path | None
) -> MetricsAccess:
    if path and url:
        raise InvalidInputError("--settings and --prometheus exclude each other. Pass one of them")
    if url is None:
        if any(credentials) or headers or ca:
            raise InvalidInputError(
                "--token-file, --user, --password-file, --header and --ca-file go with --prometheus. Pass its address"
            )
        if path is None and not DEFAULT_SETTINGS.exists():
            raise InvalidInputError(
                "pass --prometheus URL, such as http://127.0.0.1:9090, or --settings FILE; "
                "this folder has no settings.yaml"
            )
        return MetricsAccess(path or DEFAULT_SETTINGS)
    if (straight := straighten_quotes(url)) != url:
        raise InvalidInputError(f"--prometheus: {url!r} has typographic quotes. Write --prometheus {straight}")
    if not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise InvalidInputError(f"--prometheus: {url!r} is not an address that begins with http:// or https://")
    token = credentials.read()
    prometheus: dict[str, Any] = {"url": url.rstrip("/")}
    if token:
        prometheus |= {"auth": "bearer", "secret": TOKEN_SECRET}
    if headers:
        prometheus["headers"] = dict(_pair(header) for header in headers)
    if ca:
        prometheus["ca_certificates"] = _read(ca, "--ca-file")
    options = (
        ("--token-file", credentials.token_file),
        ("--user", credentials.user),
        ("--password-file", credentials.password_file),
        *(("--header", header) for header in headers),  # the settings refuse headers with secrets
        ("--ca-file", ca),
    )
    passed = tuple(str(word) for option in options if option[1] for word in option)
    return MetricsAccess(None, prometheus, token, credentials.user or "", passed)


def _pair(header: str) -> tuple[str, str]:
    name, separator, content = header.partition("=")
    if not (name and separator and content):
        raise InvalidInputError(f"--header: {header!r} is not NAME=VALUE, such as X-Scope-OrgID=gpu")
    return name, content


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidInputError(f"{option}: {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{option}: {str(path)!r} is not UTF-8 text") from error
