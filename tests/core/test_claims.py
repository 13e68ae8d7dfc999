"""Devices that pods hold through ResourceClaims: sharing conserves GPU time at every moment; what else is offered."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.hour_record import UtilizationSource
from gpucost.core.intervals import IntervalMs, Scrapes, overlap_length, union
from gpucost.core.metering.capacity import AdvertisedGpus
from gpucost.core.metering.claims import (
    OfferedTime,
    gpus_for_claims,
    merge_pieces,
    notes_on_admin_namespaces,
    notes_on_claimed_devices,
    share_claimed_devices,
    without_admin_access,
)
from gpucost.core.metering.device_use import device_hours, group_by_device
from gpucost.core.metering.gpu_shares import DRA_GPU_DRIVER, GpuNode, GpuShare
from gpucost.core.metering.nodes import NodeLifecycle
from gpucost.core.metering.observations import ClaimedDevice, DeviceSeries, PodObservation
from gpucost.core.metering.usage import UNMEASURED, Holding, PodUsage, Use
from gpucost_devstack.fleet import hardware

HOUR = 3_600_000
DEVICES = [ClaimedDevice(claim, "n1", uuid, "") for claim, uuid in (("a", "GPU-0"), ("a", "GPU-1"), ("b", "GPU-2"))]


def holding(pod: str, device: ClaimedDevice, held: IntervalMs, running: IntervalMs) -> Holding:
    observed = PodObservation("team", pod, f"uid-{pod}", "n1", (), None, claimed_device=device)
    share = GpuShare(Fraction(1), "whole")
    return Holding(observed, GpuNode("n1"), DRA_GPU_DRIVER, 1, share, held, running, held.end, held.start)


@st.composite
def pods_with_claims(draw: st.DrawFn) -> list[Holding]:
    """Up to five pods, each with all devices of one claim, for a part of the hour, running for a part of that."""
    holdings: list[Holding] = []
    for number in range(draw(st.integers(1, 5))):
        start, run, end = sorted(draw(st.lists(st.integers(0, 60), min_size=3, max_size=3, unique=True)))
        claim = draw(st.sampled_from("ab"))
        held, running = (IntervalMs(at * 60_000, end * 60_000) for at in (start, run))
        holdings += [holding(f"p{number}", device, held, running) for device in DEVICES if device.claim == claim]
    return holdings


@given(pods_with_claims())
def test_sharers_hold_each_device_exactly_once(holdings: list[Holding]) -> None:
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
def test_merging_keeps_every_amount(holdings: list[Holding], data: st.DataObject) -> None:
    pieces: list[PodUsage] = []
    for holding in share_claimed_devices(holdings):
        use = UNMEASURED
        observed_ms = data.draw(st.integers(0, holding.running.length))
        if observed_ms:
            utilization = Fraction(data.draw(st.integers(0, 100)), 100)
            source: UtilizationSource = "pod" if holding.share.replicas == 1 else "shared"
            use = Use(source, utilization, observed_ms, holding.gpus * utilization * observed_ms, Fraction(1))
        pieces.append(PodUsage.of(holding, use))
    lines = merge_pieces(pieces)
    assert len(lines) == len({piece.pod.pod for piece in pieces})
    used_beyond = [sum(usage.use.beyond_allocation_gpu_ms for usage in usages) for usages in (lines, pieces)]
    assert used_beyond[0] == used_beyond[1]
    for amount in ("gpu_ms", "effective_gpu_ms", "unmeasured_gpu_ms", "waste_gpu_ms"):
        assert sum(getattr(line, amount) for line in lines) == sum(getattr(piece, amount) for piece in pieces), amount


def test_requests_are_neither_shared_nor_merged() -> None:
    claiming = holding("p", DEVICES[0], IntervalMs(0, HOUR), IntervalMs(0, HOUR))
    requesting = replace(claiming, pod=PodObservation("team", "p", "uid-p", "n1", (), None))
    assert share_claimed_devices([requesting, requesting]) == [requesting, requesting]
    usages = [PodUsage.of(requesting)] * 2
    assert merge_pieces(usages) == usages


H100 = "NVIDIA H100 80GB HBM3"
NODE = GpuNode("n1", gpu_model=H100, physical_gpus=2)


def partition_holding(pod: str, name: str, minutes: tuple[int, int], claim: str = "") -> Holding:
    """A pod with a partition, named as in a ResourceSlice, from the first minute to the second."""
    gpu, _, rest = name.partition("-mig-")
    profile = rest.split("-")[0].replace("g", "g.", 1)
    device = ClaimedDevice(claim or f"claim-{pod}", "n1", f"GPU-{gpu}", "7", name, DRA_GPU_DRIVER)
    held = IntervalMs(minutes[0] * 60_000, minutes[1] * 60_000)
    usage = holding(pod, device, held, held)
    share = GpuShare(hardware.slice_of_gpu("h100", profile), "mig-profile")
    return replace(usage, node=NODE, share=share, resource=f"nvidia_com_mig_{profile.replace('.', '_')}")


@st.composite
def pods_with_partitions(draw: st.DrawFn) -> list[Holding]:
    """Pods with partitions of two GPUs that never overlap in memory at a time."""
    choices = sorted(hardware.placements("h100").items(), key=lambda choice: choice[0])
    holdings: list[Holding] = []
    taken: list[tuple[int, frozenset[int], int, int]] = []
    for number in range(draw(st.integers(1, 10))):
        gpu = draw(st.integers(0, 1))
        (profile, first), slices = draw(st.sampled_from(choices))
        start, end = sorted(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2, unique=True)))
        if all(
            gpu != other or not slices & used or end <= begin or stop <= start for other, used, begin, stop in taken
        ):
            taken.append((gpu, slices, start, end))
            name = f"gpu-{gpu}-mig-{profile.replace('.', '')}-0-{first}"
            holdings.append(partition_holding(f"p{number}", name, (start, end)))
    return holdings


@given(pods_with_partitions())
def test_partitions_hold_no_more_than_their_gpu(holdings: list[Holding]) -> None:
    shared = share_claimed_devices(holdings)
    for minute in range(60):
        for gpu in ("gpu-0", "gpu-1"):
            assert held_at(shared, gpu, minute) == min(held_at(holdings, gpu, minute), 1)


def held_at(pieces: Sequence[Holding], gpu: str, minute: int) -> Fraction:
    """What pods hold of a GPU at a time."""
    gpus = (
        piece.gpus
        for piece in pieces
        if piece.held.contains(minute * 60_000)
        and piece.pod.claimed_device is not None
        and piece.pod.claimed_device.name.startswith(gpu)
    )
    return sum(gpus, Fraction(0))


def test_partitions_that_exceed_their_gpu_are_scaled_down_only_meanwhile() -> None:
    """3g, 2g and 1g with double memory are 29/28. For 20 minutes there are all three."""
    names = {"a": "gpu-0-mig-3g40gb-9-0", "b": "gpu-0-mig-2g20gb-14-4", "c": "gpu-0-mig-1g20gb-15-6"}
    times = {"a": (0, 60), "b": (0, 60), "c": (20, 40)}
    shared = share_claimed_devices([partition_holding(pod, name, times[pod]) for pod, name in names.items()])
    lines = merge_pieces([PodUsage.of(piece) for piece in shared])
    scale = Fraction(28, 29)
    expected = {"a": (40 + 20 * scale) / 2, "b": (40 + 20 * scale) * 2 / 7, "c": 20 * scale / 4}
    assert {line.pod.pod: line.gpu_ms / 60_000 for line in lines} == expected
    assert {line.use.source for line in lines} == {"none"}
    assert all(line.share.replicas == 1 for line in lines)


def test_partitions_that_cannot_exist_together_hold_no_more_than_their_gpu() -> None:
    names = ("gpu-0-mig-4g40gb-5-0", "gpu-0-mig-4g40gb-5-4")
    holdings = [partition_holding(f"p{number}", name, (0, 60)) for number, name in enumerate(names)]
    assert held_at(holdings, "gpu-0", 30) > 1
    assert held_at(share_claimed_devices(holdings), "gpu-0", 30) == 1


def test_claims_of_the_same_name_in_two_namespaces_are_two() -> None:
    """Each pod has a partition of its own; only pods that use one claim share its device."""
    first, second, third = (
        partition_holding(pod, f"gpu-0-mig-2g20gb-14-{start}", (minute, 60), "gpu")
        for pod, start, minute in (("p", 0, 0), ("q", 2, 0), ("r", 4, 30))
    )
    other = replace(second, pod=replace(second.pod, namespace="other"))
    assert {piece.gpus for piece in share_claimed_devices([first, other, third])} == {Fraction(2, 7)}


def test_pod_has_a_line_for_each_claim() -> None:
    holdings = [
        partition_holding("p", "gpu-0-mig-2g20gb-14-0", (0, 60), "a"),
        partition_holding("p", "gpu-1-mig-2g20gb-14-0", (0, 60), "a"),
        partition_holding("p", "gpu-1-mig-2g20gb-14-2", (0, 60), "b"),
    ]
    lines = merge_pieces([PodUsage.of(holding) for holding in holdings])
    assert sorted((line.pod.claimed_device.claim, line.units) for line in lines) == [("a", 2), ("b", 1)]  # type: ignore[union-attr]


def exporter_series(gpu: int, profile: str = "", instance: str = "", claim: str = "") -> DeviceSeries:
    """A device that an exporter reports all hour."""
    pod = ("team", "p") if claim else ("", "")
    return DeviceSeries(
        "n1", f"GPU-gpu-{gpu}", instance, profile, H100, *pod, "", "", claim, "d/x", Decimal(1), 0, 60, Decimal(30)
    )


def offered_gpus(
    holdings: list[Holding], *, series: Sequence[DeviceSeries] = (), offered: Sequence[OfferedTime] | None = None
) -> list[AdvertisedGpus]:
    """What a node with two GPUs offers to claims."""
    lifecycle = NodeLifecycle(NODE, IntervalMs(0, HOUR), ())
    scrapes = {"d/x": Scrapes(tuple(range(-HOUR, 2 * HOUR, 60_000)))}
    devices = device_hours(group_by_device(series), scrapes, IntervalMs(0, HOUR))
    slices = None if offered is None else {"n1": offered}
    gpus, _ = gpus_for_claims({"n1": [lifecycle]}, devices, holdings, slices)
    return list(gpus.get(("n1", ""), ()))


def test_part_that_no_partition_fits_is_not_offered() -> None:
    """Next to 3g at slice 0 and 1g at slice 6, only 2g fits, so 1/14 of the GPU is stranded while both exist."""
    holdings = [
        partition_holding("three", "gpu-0-mig-3g40gb-9-0", (0, 60)),
        partition_holding("one", "gpu-0-mig-1g10gb-19-6", (15, 45)),
    ]
    series = [exporter_series(0, "3g.40gb", "1", "claim-three"), exporter_series(1)]
    gpus = offered_gpus(holdings, series=series)
    assert [(piece.time.length // 60_000, piece.gpus) for piece in gpus] == [
        (15, 2),
        (30, 2 - Fraction(1, 14)),
        (15, 2),
    ]


def test_partitions_without_claims_are_all_that_their_gpu_has() -> None:
    """Three 2g leave 1/7 of their GPU, whether or not a claim has one of them."""
    series = [
        exporter_series(0, "2g.20gb", "3", "claim-p"),
        exporter_series(0, "2g.20gb", "4"),
        exporter_series(0, "2g.20gb", "5"),
        exporter_series(1),
    ]
    holdings = [partition_holding("p", "gpu-0-mig-2g20gb-14-0", (0, 60))]
    assert [piece.gpus for piece in offered_gpus(holdings, series=series)] == [2 - Fraction(1, 7)]


def test_resource_slices_are_the_supply_for_as_long_as_they_exist() -> None:
    """The second GPU is in the slices from minute 30, and only as two partitions with 2/7 each."""
    hour, late = IntervalMs(0, HOUR), IntervalMs(HOUR // 2, HOUR)
    offered = [
        OfferedTime("gpu-0", hour),
        OfferedTime("gpu-0-mig-7g80gb-0-0", hour),
        OfferedTime("gpu-1-mig-2g20gb-14-0", late),
        OfferedTime("gpu-1-mig-2g20gb-14-4", late),
    ]
    gpus = offered_gpus([], offered=offered)
    assert [(piece.time.length // 60_000, piece.gpus) for piece in gpus] == [(30, 1), (30, 1 + Fraction(4, 7))]


def test_gpu_that_left_the_slices_while_held_is_not_taken_from_others() -> None:
    held = IntervalMs(0, HOUR)
    device = ClaimedDevice("a", "n1", "gpu-1", "", "gpu-1", DRA_GPU_DRIVER)
    holdings = [replace(holding("p", device, held, held), node=NODE)]
    gpus = offered_gpus(holdings, offered=[OfferedTime("gpu-0", held), OfferedTime("gpu-1", IntervalMs(0, HOUR // 2))])
    assert [piece.gpus for piece in gpus] == [2, 2]


def claim_of(pod: str, namespace: str, gpus: Sequence[int], minutes: tuple[int, int] = (0, 60)) -> list[Holding]:
    """What a pod holds of some GPUs of a node with two through one claim, with a sample each minute."""
    time = IntervalMs(minutes[0] * 60_000, minutes[1] * 60_000)
    holdings = []
    for gpu in gpus:
        device = ClaimedDevice(f"claim-{pod}", "n1", f"GPU-{gpu}", "", f"gpu-{gpu}", DRA_GPU_DRIVER)
        observed = PodObservation(namespace, pod, f"uid-{pod}", "n1", (), None, claimed_device=device)
        samples = {"first_sample_ms": time.start, "last_sample_ms": time.end - 60_000}
        holdings.append(replace(holding(pod, device, time, time), node=NODE, pod=observed, **samples))
    return holdings


@given(
    st.lists(
        st.tuples(st.sampled_from(["team", "admins"]), st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 50)),
        max_size=6,
    ),
    st.sampled_from([frozenset(), frozenset({"admins"})]),
)
def test_claims_hold_no_more_than_their_device(
    claims: list[tuple[str, tuple[int, ...], int]], admin_namespaces: frozenset[str]
) -> None:
    """Whatever the claims: with admin access, with consumable capacity, or of a site that is not understood."""
    holdings = [
        part
        for number, (namespace, gpus, start) in enumerate(claims)
        for part in claim_of(f"p{number}", namespace, gpus, (start, 60))
    ]
    shared = share_claimed_devices(without_admin_access(holdings, admin_namespaces))
    for gpu in ("gpu-0", "gpu-1"):
        for minute in range(0, 60, 7):
            assert held_at(shared, gpu, minute) == min(held_at(holdings, gpu, minute), 1) or admin_namespaces
            assert held_at(shared, gpu, minute) <= 1
    kept = {part.pod.pod for part in shared}
    assert {part.pod.pod for part in holdings if part.pod.namespace not in admin_namespaces} <= kept


def test_admin_claim_holds_nothing_where_another_claim_has_a_device() -> None:
    monitor, trainer = claim_of("monitor", "admins", [0, 1]), claim_of("trainer", "team", [0])
    assert without_admin_access([*monitor, *trainer], {"admins"}) == trainer
    assert without_admin_access([*monitor, *trainer], set()) == [*monitor, *trainer]
    successor = claim_of("later", "team", [0], (30, 60))
    earlier = claim_of("earlier", "admins", [0], (0, 30))
    assert without_admin_access([*earlier, *successor], {"admins"}) == [*earlier, *successor]


def test_claim_that_may_have_admin_access_holds_what_no_other_claim_has_with_a_note() -> None:
    monitor = claim_of("monitor", "admins", [0, 1])
    assert without_admin_access(monitor, {"admins"}) == monitor
    (note,) = notes_on_admin_namespaces(monitor, {"admins"})
    assert note.startswith("unknown: 2 devices of node 'n1' are allocated only to claims of namespaces with the label ")
    assert notes_on_admin_namespaces(monitor, {"others"}) == []


def test_claim_of_extended_resource_holds_its_device_whatever_its_namespace() -> None:
    (part,) = claim_of("validator", "admins", [0])
    device = ClaimedDevice("validator-extended-resources-x7k2p", "n1", "GPU-0", "", "gpu-0", DRA_GPU_DRIVER)
    extended = replace(part, pod=replace(part.pod, claimed_device=device))
    assert without_admin_access([extended, *claim_of("trainer", "team", [0])], {"admins"})[0] == extended
    assert notes_on_admin_namespaces([extended], {"admins"}) == []


def test_claims_of_consumable_capacity_hold_equal_parts_with_a_note() -> None:
    claims = [*claim_of("p", "team", [0]), *claim_of("q", "other", [0])]
    assert [piece.gpus for piece in share_claimed_devices(claims)] == [Fraction(1, 2)] * 2
    (note,) = notes_on_claimed_devices(claims, collects_admin_access=True)
    assert note == "unknown: 1 devices of node 'n1' are each allocated to several claims, which hold equal parts"
    (note,) = notes_on_claimed_devices(claims, collects_admin_access=False)
    assert "--metric-labels-allowlist=namespaces=[resource.kubernetes.io/admin-access]" in note
    assert (
        notes_on_claimed_devices(
            [*claim_of("p", "a", [0], (0, 30)), *claim_of("q", "a", [0], (30, 60))], collects_admin_access=True
        )
        == []
    )
