"""`gpucost manifests`: writes the files that a cluster needs."""

from pathlib import Path

import click

from gpucost.core.errors import InvalidInputError
from gpucost_cli.documentation import page_path
from gpucost_cli.manifests.targets import SERVE, TARGETS
from gpucost_cli.options import parse_settings_file
from gpucost_cli.placeholders import refuse_placeholders
from gpucost_cli.rules.command import rules

_FILE = click.Path(path_type=Path)


@click.group()
def manifests() -> None:
    """Write the manifests and the Prometheus rules that a cluster needs."""


manifests.add_command(rules)


@manifests.command()
@click.option("--settings", "settings_path", required=True, type=_FILE, help="Settings file, YAML or JSON.")
@click.option(
    "--params",
    "parameters_path",
    type=_FILE,
    help="A file like the example cluster/parameters.yaml of the repository; optional with --for.",
)
@click.option(
    "--for",
    "target",
    type=click.Choice([*TARGETS, SERVE]),
    help="How an existing cluster is connected; serve: gpucost serve in a cluster.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
def render(settings_path: Path, parameters_path: Path | None, target: str | None, out: Path) -> None:
    """Write the files of one cluster.

    Without --for, they are those of a new cluster: eksctl, Karpenter, Helm, collectors and workloads. With --for, they
    are those that an existing cluster needs, which docs/how-to/existing-cluster.md of the repository describes. With
    --for serve, they run gpucost serve in a cluster (docs/how-to/in-cluster.md).

    \b
    Example:
      gpucost manifests render --settings settings.yaml --params parameters.yaml --out manifests
      gpucost manifests render --for kube-prometheus-stack --settings settings.yaml --params params.yaml --out manifests
    """
    from gpucost_cli.manifests.parameters import Parameters, parse_existing_cluster_parameters, parse_parameters
    from gpucost_cli.manifests.rendering import write_files
    from gpucost_cli.manifests.serve import serve_values
    from gpucost_cli.manifests.values import existing_cluster_values, template_values

    if parameters_path is None and target is None:
        example = page_path("cluster/parameters.yaml")
        raise InvalidInputError(f"--params: required for a new cluster. Copy {example}, edit the copy, and name it")
    settings = parse_settings_file(settings_path)
    refuse_placeholders(settings, str(settings_path))
    text = "" if parameters_path is None else _read_parameter_file(parameters_path)
    parameters = parse_parameters(text) if target is None else parse_existing_cluster_parameters(text)
    refuse_placeholders(parameters, str(parameters_path))
    if isinstance(parameters, Parameters):
        values = template_values(settings, parameters)
    elif target == SERVE:
        values = serve_values(settings, parameters)
    else:
        values = existing_cluster_values(settings, parameters, str(target))
    file_names = write_files(values, out, target)
    click.echo(f"{len(file_names)} files for cluster {values['cluster']['name']} are in {out}", err=True)


def _read_parameter_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"parameter file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"parameter file {str(path)!r} is not UTF-8 text") from error
