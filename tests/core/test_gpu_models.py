"""The shares of MIG profiles match NVIDIA's tables."""

from fractions import Fraction

import pytest

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE, profile_share

# (Model, profile, how many fit on a GPU), from mig-parted's configurations.
FITS = [
    ("NVIDIA A100-SXM4-40GB", {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}),
    ("NVIDIA H100 80GB HBM3", {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}),
    ("NVIDIA H200", {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}),
    ("NVIDIA B200", {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1}),
    ("NVIDIA A30", {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 1}),
]
ALL = [(model, profile, count) for model, profiles in FITS for profile, count in profiles.items()]


@pytest.mark.parametrize(("model", "profile", "count"), ALL)
def test_slices_that_fit_do_not_exceed_gpu_and_another_does(model: str, profile: str, count: int) -> None:
    share = profile_share(profile, model)
    assert share is not None
    assert share * count <= 1 < share * (count + 1)


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


def test_gpus_of_instance_types() -> None:
    assert [GPUS_OF_INSTANCE[kind] for kind in ("p4d.24xlarge", "p5.48xlarge", "g5.12xlarge", "g5.xlarge")] == [
        8,
        8,
        4,
        1,
    ]
