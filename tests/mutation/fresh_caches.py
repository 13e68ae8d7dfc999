"""Plugin for pytest: each test of a mutant begins without what functions have cached.

mutmut forks each mutant's process from one that ran the tests without a mutant. What a cached function got from the
function that is changed would still be right, and only the first test that needs it would count as a test of it.
"""

import sys


def pytest_runtest_setup() -> None:
    """Clear the caches of all functions of the product."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "gpucost":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
