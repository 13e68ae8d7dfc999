"""Announces an embedded AWS to the command line as a running demo."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from gpucost_devstack.demo_records import registered_demo


@contextmanager
def announced_in(folder: Path, endpoint: str) -> Iterator[None]:
    """Announce it to this process and those that it starts, with the folder as XDG_CACHE_HOME."""
    with (
        patch.dict(os.environ, XDG_CACHE_HOME=str(folder)),
        registered_demo(port=1, endpoint=endpoint, dynamodb=endpoint),
    ):
        yield
