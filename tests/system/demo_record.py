"""Announces an embedded AWS to the command line as a running demo."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from devstack import demo_records


@contextmanager
def announced_in(folder: Path, endpoint: str) -> Iterator[None]:
    """Announce it to this process, and to others with the folder as XDG_CACHE_HOME."""
    with (
        patch.object(demo_records, "RECORDS", folder / "gpucost" / "demos"),
        demo_records.registered_demo(port=1, endpoint=endpoint, dynamodb=endpoint),
    ):
        yield
