"""`gpucost kit`: the files that a cluster needs."""

from pathlib import Path

import click

from gpucost.core.errors import InvalidInputError

_FILE = click.Path(path_type=Path)


@click.group()
def kit() -> None:
    """What attribution needs inside an EKS cluster."""


@kit.command()
@click.option("--settings", "settings_path", required=True, type=_FILE, help="settings file, YAML or JSON")
@click.option("--params", "parameters_path", required=True, type=_FILE, help="as cluster/parameters.yaml")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="folder to write to")
def render(settings_path: Path, parameters_path: Path, out: Path) -> None:
    """Write eksctl, Karpenter, Helm, collector and workload files for one cluster of the settings."""
    from gpucost.settings_document import parse_settings
    from gpucost_cli.manifests.parameters import parse_parameters
    from gpucost_cli.manifests.rendering import write
    from gpucost_cli.manifests.values import values

    settings, parameters = parse_settings(_read(settings_path)), parse_parameters(_read(parameters_path))
    written = write(values(settings, parameters), out)
    click.echo(f"{len(written)} files for cluster {parameters.cluster} are in {out}", err=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"file {str(path)!r} is not UTF-8 text") from error
