"""Real parts that several kinds of tests need."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local.prometheus import running_prometheus


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Serves OpenMetrics text from a real Prometheus and answers its address."""
    with ExitStack() as running:

        def serve(openmetrics: str) -> str:
            path = tmp_path / f"metrics-{len(list(tmp_path.iterdir()))}.om"
            path.write_text(openmetrics)
            return running.enter_context(running_prometheus(path))

        yield serve
