"""`gpucost completion`: prints the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example:
      mkdir -p ~/.local/share/bash-completion/completions ~/.config/fish/completions
      gpucost completion bash > ~/.local/share/bash-completion/completions/gpucost
      gpucost completion zsh > "${fpath[1]}/_gpucost"
      gpucost completion fish > ~/.config/fish/completions/gpucost.fish
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"shell {shell!r} has no completion. Choose bash, zsh or fish.")
    completion = completion_class(context.find_root().command, {}, "gpucost", "_GPUCOST_COMPLETE")
    click.echo(completion.source())
