"""What a misspelled name probably means."""

from collections.abc import Collection


def did_you_mean(name: str, allowed: Collection[str]) -> str:
    """Return `Did you mean NAME?` for the most similar of the allowed names; "" if none is similar."""
    from difflib import get_close_matches  # cold starts rarely need it

    similar = get_close_matches(name, allowed, n=1)
    return f"Did you mean {similar[0]}?" if similar else ""
