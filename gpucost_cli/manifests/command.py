"""`gpucost manifests`: writes the files that a cluster needs."""

from pathlib import Path

import click

from gpucost.core.errors import InvalidInputError
from gpucost_cli.options import read_settings_file
from gpucost_cli.rules.command import rules

_FILE = click.Path(path_type=Path)


@click.group()
def manifests() -> None:
    """Write the manifests and the Prometheus rules that a cluster needs."""


manifests.add_command(rules)


@manifests.command()
@click.option("--settings", "settings_path", required=True, type=_FILE, help="Settings file, YAML or JSON.")
@click.option("--params", "parameters_path", required=True, type=_FILE, help="A file like cluster/parameters.yaml.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder to write to.")
def render(settings_path: Path, parameters_path: Path, out: Path) -> None:
    """Write the eksctl, Karpenter, Helm, collector and workload files of one cluster.

    \b
    Example:
      gpucost manifests render --settings settings.yaml --params parameters.yaml --out manifests
    """
    from gpucost.settings_document import parse_settings
    from gpucost_cli.manifests.parameters import parse_parameters
    from gpucost_cli.manifests.rendering import write_files
    from gpucost_cli.manifests.values import template_values

    settings = parse_settings(read_settings_file(settings_path))
    parameters = parse_parameters(_read_parameter_file(parameters_path))
    file_names = write_files(template_values(settings, parameters), out)
    click.echo(f"{len(file_names)} files for cluster {parameters.cluster} are in {out}", err=True)


def _read_parameter_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"parameter file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"parameter file {str(path)!r} is not UTF-8 text") from error
