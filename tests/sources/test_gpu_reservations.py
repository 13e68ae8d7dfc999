"""The annotations of pods that share a reserved GPU are text that any tenant writes."""

from decimal import Decimal

import pytest

from gpucost.core.metering.gpu_fractions import share_of_reserved_gpu
from gpucost.core.metering.observations import GpuFraction, GpuLimits
from gpucost.sources.prometheus.fractions import fractions_of_pods
from gpucost.sources.prometheus.tables import Rows

LIMITS = GpuLimits(Decimal(100), Decimal(24_000))


def fraction(**annotations: str) -> GpuFraction:
    rows: dict[str, Rows] = {"annotations": [({"uid": "a", **annotations}, Decimal(1))]}
    return fractions_of_pods(rows, {"a": frozenset(["g"])})["a"]


def test_fractions_are_read() -> None:
    assert share_of_reserved_gpu(fraction(annotation_gpu_fraction="0.25"), LIMITS) == Decimal("0.25")
    assert share_of_reserved_gpu(fraction(annotation_gpu_memory="6000"), LIMITS) == Decimal("0.25")


@pytest.mark.parametrize("text", ["1e-999999999", "1e+999999999", "NaN", "-1", "half", "9" * 100_000, "", "Infinity"])
def test_hostile_fraction_is_unknown(text: str) -> None:
    of_pod = fraction(annotation_gpu_fraction=text, annotation_gpu_memory=text)
    assert share_of_reserved_gpu(of_pod, LIMITS) is None
