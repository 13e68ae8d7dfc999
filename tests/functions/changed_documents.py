"""Changes JSON documents as an attacker might, from a thousand seeds."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.cases import tried
from tests.sources.changed_answers import TEXTS, WRONG_TYPES

UTF8_TEXTS = tuple(text for text in TEXTS if text != "\ud800")
PART = 250
INPUTS = tried(PART)
NIGHTLY = (pytest.param(part, marks=pytest.mark.nightly) for part in range(4, 40))
SEEDED = pytest.mark.parametrize("part", [*range(4), *NIGHTLY])
"""A quarter of a thousand inputs, so that a failure names it."""


def seeds(part: int) -> Iterator[random.Random]:
    return map(random.Random, range(part * PART, part * PART + INPUTS))


def strange(rng: random.Random) -> Any:
    texts = (rng.choice(UTF8_TEXTS), "x" * rng.randrange(3000))
    return deepcopy(rng.choice((rng.choice(WRONG_TYPES), *texts, rng.randrange(-9, 10**12))))


def changed(rng: random.Random, document: Any) -> Any:
    """Change up to three parts of a JSON document."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.randrange(1, 4)):
        parent: Any = document
        while True:
            inner = [*parent] if isinstance(parent, dict) else [*range(len(parent))]
            if not inner:
                break
            key = rng.choice(inner)
            if isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.8:
                parent = parent[key]
                continue
            if rng.random() < 0.2:
                del parent[key]
            elif rng.random() < 0.2 and isinstance(parent, dict):
                parent[str(strange(rng))[:300]] = deepcopy(parent[key])
            else:
                parent[key] = strange(rng)
            break
    return document
