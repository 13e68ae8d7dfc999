"""Devices that pods hold through the same ResourceClaim: sharing conserves GPU time at every moment."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.hour_record import UtilizationSource
from gpucost.core.intervals import IntervalMs, overlap_length, union
from gpucost.core.metering.claims import merge_pieces, share_claimed_devices
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GpuNode, GpuShare
from gpucost.core.metering.observations import ClaimedDevice, PodObservation
from gpucost.core.metering.usage import PodUsage

HOUR = 3_600_000
DEVICES = [ClaimedDevice(claim, "n1", uuid, "") for claim, uuid in (("a", "GPU-0"), ("a", "GPU-1"), ("b", "GPU-2"))]


def holding(pod: str, device: ClaimedDevice, held: IntervalMs, running: IntervalMs) -> PodUsage:
    observed = PodObservation("team", pod, f"uid-{pod}", "n1", (), None, claimed_device=device)
    share = GpuShare(Fraction(1), "whole")
    return PodUsage(observed, GpuNode("n1"), DRA_GPU_DRIVER, 1, share, held, running, held.end, held.start)


@st.composite
def pods_with_claims(draw: st.DrawFn) -> list[PodUsage]:
    """Up to five pods, each with all devices of one claim, for a part of the hour, running for a part of that."""
    holdings: list[PodUsage] = []
    for number in range(draw(st.integers(1, 5))):
        start, run, end = sorted(draw(st.lists(st.integers(0, 60), min_size=3, max_size=3, unique=True)))
        claim = draw(st.sampled_from("ab"))
        held, running = (IntervalMs(at * 60_000, end * 60_000) for at in (start, run))
        holdings += [holding(f"p{number}", device, held, running) for device in DEVICES if device.claim == claim]
    return holdings


@given(pods_with_claims())
def test_sharers_hold_each_device_exactly_once(holdings: list[PodUsage]) -> None:
    """The GPU time of a claim is the time in which any pod holds it, whoever else does."""
    expected = sum(
        overlap_length(
            union(holding.held for holding in holdings if holding.pod.claimed_device == device), IntervalMs(0, HOUR)
        )
        for device in DEVICES
    )
    shared = share_claimed_devices(holdings)
    assert sum(piece.gpu_ms for piece in shared) == expected
    for minute in range(60):
        for device in DEVICES:
            at_once = [
                piece.gpus
                for piece in shared
                if piece.pod.claimed_device == device and piece.held.contains(minute * 60_000)
            ]
            assert sum(at_once) in {0, 1}
            assert len(set(at_once)) <= 1, "equal parts"


@given(pods_with_claims(), st.data())
def test_merging_keeps_every_amount(holdings: list[PodUsage], data: st.DataObject) -> None:
    pieces = share_claimed_devices(holdings)
    for piece in pieces:
        observed_ms = data.draw(st.integers(0, piece.running.length))
        if observed_ms:
            utilization = Fraction(data.draw(st.integers(0, 100)), 100)
            source: UtilizationSource = "pod" if piece.share.replicas == 1 else "shared"
            piece.set_use(source, utilization, observed_ms, piece.gpus * utilization * observed_ms, Fraction(1))
    lines = merge_pieces(pieces)
    assert len(lines) == len({piece.pod.pod for piece in pieces})
    for amount in ("gpu_ms", "effective_gpu_ms", "unmeasured_gpu_ms", "waste_gpu_ms", "used_beyond_allocation_gpu_ms"):
        assert sum(getattr(line, amount) for line in lines) == sum(getattr(piece, amount) for piece in pieces), amount


def test_requests_are_neither_shared_nor_merged() -> None:
    pods = [holding(name, DEVICES[0], IntervalMs(0, HOUR), IntervalMs(0, HOUR)) for name in ("p", "p")]
    for usage in pods:
        usage.pod = PodObservation("team", "p", "uid-p", "n1", (), None)
    assert merge_pieces(share_claimed_devices(pods)) == pods
