"""Plugin for pytest: what differs when mutmut runs the tests."""

import sys

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Let property tests fail with their first example. Shrinking it takes up to two minutes for each mutant."""
    settings.register_profile("mutants", settings.default, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutants")


def pytest_runtest_setup() -> None:
    """Clear the caches of all functions of the product.

    mutmut forks each mutant's process from one that ran the tests without a mutant. What a cached function got from the
    function that is changed would still be right, and only the first test that needs it would count as a test of it.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "gpucost":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
