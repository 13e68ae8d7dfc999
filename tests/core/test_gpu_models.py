"""The shares of MIG profiles match NVIDIA's tables."""

from fractions import Fraction

import pytest

from gpucost.core.metering.gpu_models import compute_share, memory_gb, profile_share
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE

# (Model, profile, how many fit on a GPU), from mig-parted's configurations and NVIDIA's documentation.
SEVEN_SLICES = [
    ("NVIDIA A100-SXM4-40GB", {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}),
    ("NVIDIA A100-SXM4-80GB", {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}),
    ("NVIDIA H100 NVL", {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.47gb": 2, "4g.47gb": 1, "7g.94gb": 1}),
    ("NVIDIA H100 80GB HBM3", {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}),
    ("NVIDIA GH200 480GB", {"1g.12gb": 7, "1g.24gb": 4, "2g.24gb": 3, "3g.48gb": 2, "4g.48gb": 1, "7g.96gb": 1}),
    ("NVIDIA H200", {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}),
    ("NVIDIA GB200", {"1g.23gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.93gb": 2, "4g.93gb": 1, "7g.186gb": 1}),
    ("NVIDIA GB200", {"1g.24gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1}),
    ("NVIDIA GB300", {"1g.35gb": 7, "1g.70gb": 4, "2g.70gb": 3, "3g.139gb": 2, "4g.139gb": 1, "7g.278gb": 1}),
    ("NVIDIA B200", {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1}),
    ("NVIDIA B300 SXM6 AC", {"1g.34gb": 7, "1g.67gb": 4, "2g.67gb": 3, "3g.135gb": 2, "4g.135gb": 1, "7g.269gb": 1}),
]
FOUR_SLICES = [
    ("NVIDIA A30", {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1}),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", {"1g.24gb": 4, "2g.48gb": 2, "4g.96gb": 1}),
]
ALL = [(model, profile, count) for model, fits in SEVEN_SLICES + FOUR_SLICES for profile, count in fits.items()]


@pytest.mark.parametrize(("model", "profile", "count"), ALL)
def test_slices_that_fit_do_not_exceed_gpu_and_another_does(model: str, profile: str, count: int) -> None:
    share = profile_share(profile, model)
    assert share is not None
    assert share * count <= 1 < share * (count + 1)


@pytest.mark.parametrize(("model", "fits"), SEVEN_SLICES)
def test_share_is_the_larger_of_compute_and_memory(model: str, fits: dict[str, int]) -> None:
    """NVIDIA's fractions of compute and memory: 1/7 1/8, 1/7 2/8, 2/7 2/8, 3/7 4/8, 4/7 4/8, 7/7 8/8."""
    shares = [Fraction(1, 7), Fraction(1, 4), Fraction(2, 7), Fraction(1, 2), Fraction(4, 7), Fraction(1)]
    assert [profile_share(profile, model) for profile in fits] == shares


@pytest.mark.parametrize(
    ("profile", "model", "share"),
    [
        ("1g.5gb", "NVIDIA-A100-SXM4-40GB", Fraction(1, 7)),
        ("1g.10gb", "NVIDIA-A100-SXM4-40GB", Fraction(1, 4)),
        ("1g.10gb", "NVIDIA-A100-SXM4-80GB", Fraction(1, 7)),
        ("3g.20gb", "NVIDIA-A100-SXM4-40GB", Fraction(1, 2)),
        ("1g.5gb+me", "NVIDIA A100 40GB PCIe", Fraction(1, 7)),
        ("1g.5gb.me", "NVIDIA A100 40GB PCIe", Fraction(1, 7)),
        ("2g.12gb+me", "NVIDIA A30", Fraction(1, 2)),
        ("1g.5gb", "", Fraction(1, 7)),
    ],
)
def test_profile_shares(profile: str, model: str, share: Fraction) -> None:
    assert profile_share(profile, model) == share


@pytest.mark.parametrize(("profile", "model"), [("1g.10gb", ""), ("1g.5gb", "NVIDIA H200"), ("nonsense", "")])
def test_ambiguous_profiles_have_no_share(profile: str, model: str) -> None:
    assert profile_share(profile, model) is None


@pytest.mark.parametrize(
    ("model", "gigabytes"),
    [
        ("NVIDIA A100-SXM4-40GB", 40),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 80),
        ("NVIDIA H100 NVL", 94),
        ("nvidia h200", 141),
        ("NVIDIA A30", 24),
        ("Tesla V100-SXM2-16GB", 16),
        ("Tesla V100-SXM2-32GB", 32),
        ("Tesla V100", None),
        ("Tesla T4", 16),
        ("NVIDIA-A10G-SHARED", 24),
        ("NVIDIA L40S", 48),
        ("NVIDIA L400", None),
        ("", None),
    ],
)
def test_memory_of_models_is_that_of_their_data_sheets(model: str, gigabytes: int | None) -> None:
    assert memory_gb(model) == gigabytes


@pytest.mark.parametrize(
    ("profile", "share"),
    [("3g.5gb", Fraction(3, 7)), ("7g.999gb", Fraction(1)), ("8g.5gb", None), ("13g.5gb", None), ("3g", None)],
)
def test_compute_share_is_sevenths_of_a_gpu(profile: str, share: Fraction | None) -> None:
    assert compute_share(profile) == share


def test_gpus_of_instance_types() -> None:
    assert [GPUS_OF_INSTANCE[kind] for kind in ("p4d.24xlarge", "p5.48xlarge", "g5.12xlarge", "g5.xlarge")] == [
        8,
        8,
        4,
        1,
    ]
