"""Renders the templates of `cluster/`: each template becomes one file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_cli.manifests.targets import (
    ONLY_FOR_EXISTING_CLUSTERS,
    PAYER_POLICY,
    QUERY_ROLE,
    SERVE,
    SERVE_FILE,
    TARGETS,
    pod_monitors,
)
from gpucost_devstack.template import REPOSITORY

TEMPLATES = REPOSITORY / "cluster"
SCRAPE_CONFIGS = "collection/scrape-configs.yaml"
"""Rendered first, because the files of all collectors contain its scrape configuration."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C library's loader if PyYAML has it, because it is faster."""
FOLDERS = ("aws", "collection", "eksctl", "helm", "karpenter", "workloads")
"""Folders of `cluster/` that are rendered for clusters, in addition to `env.sh`. Other files there are inputs."""


def render_files(
    values: Mapping[str, Any], templates: Path = TEMPLATES, target: str | None = None
) -> Iterator[tuple[str, str]]:
    """Render templates, and yield the path and text of each file.

    Args:
        values: variables of the templates.
        templates: folder of the templates.
        target: the way to connect an existing cluster; None: a new cluster.

    Raises:
        GpuCostError: a template uses an undefined variable, or its result is not YAML; the message names it.
    """
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML needs no HTML escapes; the settings and parameters validate the values
    )
    environment.filters["yaml"] = _as_yaml
    variables = {**values, "target": target}
    if target == SERVE:
        yield SERVE_FILE, _render(environment, SERVE_FILE, variables)
        return
    wanted = set((*TARGETS[target], PAYER_POLICY) if target else _template_names(templates)) - (
        frozenset() if target else ONLY_FOR_EXISTING_CLUSTERS
    )
    if target and not values["workspace"]:  # nothing is written to AMP, so no role is needed
        wanted = {name for name in wanted if not name.startswith("aws/")}
    elif target and not values["query_role"]["name"]:
        wanted -= set(QUERY_ROLE)
    for name in (SCRAPE_CONFIGS, *sorted(wanted - {SCRAPE_CONFIGS})):
        text = _render(environment, name, variables)
        if name == SCRAPE_CONFIGS:
            variables["scrape_configs"] = yaml.load(text, Loader=_LOADER)["scrape_configs"]
            interval = variables.get("collection", {}).get("scrape_interval_seconds", 60)
            variables["pod_monitors"] = pod_monitors(variables["scrape_configs"], interval)
        if text.strip() and name in wanted:  # a file that these settings do not need is left out
            yield name, text


def _render(environment: Environment, name: str, variables: Mapping[str, Any]) -> str:
    try:
        text = environment.get_template(name).render(variables)
        if name.endswith(".yaml") and not name.startswith("aws/"):
            list(yaml.load_all(text, Loader=_LOADER))
    except (TemplateError, yaml.YAMLError) as error:
        raise GpuCostError(f"cluster/{name} cannot be rendered: {error}") from error
    return text


def write_files(values: Mapping[str, Any], out: Path, target: str | None = None) -> list[str]:
    """Write files to a folder and return their paths in it.

    Args:
        values, target: as for `render_files`.
        out: the folder.

    Raises:
        InvalidInputError: the folder contains other files, or cannot be written to.
        GpuCostError: as `render_files`.
    """
    files = dict(render_files(values, target=target))
    existing_names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    foreign_names = [name for name in existing_names if name not in (*FOLDERS, SERVE, "env.sh")]
    if foreign_names:
        raise InvalidInputError(
            f"{str(out)!r} contains {foreign_names[0]!r}, which this command does not write. Choose an empty folder"
        )
    try:
        for name in _template_names(TEMPLATES):
            if name not in files:  # left by an earlier run with other settings
                (out / name).unlink(missing_ok=True)
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{str(out)!r} cannot be written to: {error.strerror}") from error
    return list(files)


def _template_names(templates: Path) -> list[str]:
    return [name for name in FileSystemLoader(templates).list_templates() if _is_manifest(name)]


def _is_manifest(name: str) -> bool:
    return name == "env.sh" or name.partition("/")[0] in FOLDERS


def _as_yaml(value: object, indent: int = 0) -> str:
    """Format a value as a YAML block. The lines after the first are indented."""
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1000)
    return text.rstrip("\n").replace("\n", "\n" + " " * indent)
