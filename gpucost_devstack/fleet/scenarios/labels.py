"""The same devices under the labels of different exporter versions and scrape settings."""

from collections.abc import Iterator
from dataclasses import replace

from gpucost_devstack.fleet.builders import gpu_node, mig_single_geometry, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import Exporter, KubeStateMetrics, Pod, Scenario
from gpucost_devstack.fleet.scenarios.lifetimes import mixed_lifetimes
from gpucost_devstack.fleet.scenarios.sharing import constant_use

OLD_SIGNALS = {"dcgm_fi_prof_gr_engine_active": 1}


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    for dialect in ("plain", "honor", "blank", "old"):
        for hostname in ("Hostname", "hostname"):
            for uid in (False, True):
                name = f"labels-{dialect}-{hostname[0]}-{'uid' if uid else 'no-uid'}"
                signals = OLD_SIGNALS if dialect == "old" else {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1}
                exporter = Exporter(label_style=dialect, hostname=hostname, pod_uid=uid, signals=signals)
                yield replace(mixed_lifetimes(name, hours=(0,)), dcgm=exporter)
    lingering = Exporter(label_linger_minutes=4, labels_pending_pods=True)
    yield replace(mixed_lifetimes("labels-linger", hours=(0,)), dcgm=lingering)
    yield from _signal_scenarios()
    yield from _unusual_exporter_scenarios()


def _signal_scenarios() -> Iterator[Scenario]:
    mixed = mixed_lifetimes("signal-4.9", hours=(0,))
    yield replace(mixed, dcgm=Exporter(signals={"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 1}))
    yield replace(
        mixed,
        name="signal-device-only",
        dcgm=Exporter(signals={"DCGM_FI_DEV_GPU_UTIL": 100}),
        expected_notes=["DCGM_FI_DEV_GPU_UTIL"],
    )
    yield replace(
        mixed,
        name="signal-4.9-device-only",
        dcgm=Exporter(signals={"DCGM_FI_DEV_GPU_UTIL_RATIO": 1}),
        expected_notes=["DCGM_FI_DEV_GPU_UTIL_RATIO"],
    )
    # The better signal counts. GPU_UTIL only shows that some kernel ran, so its value differs.
    yield replace(
        mixed,
        name="signal-both",
        dcgm=Exporter(signals={"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1, "DCGM_FI_DEV_GPU_UTIL": 60}, targets_have_node=True),
    )
    yield replace(
        mixed,
        name="signal-none",
        dcgm=Exporter(signals={"DCGM_FI_DEV_FB_USED": 1}, pod_uid=True, targets_have_node=True),
        utilization_source_by_pod={pod.name: "none" for pod in mixed.pods},
    )
    yield replace(
        mixed,
        name="signal-percent-by-setting",
        dcgm=Exporter(signals={"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 100}),
        settings="utilization: {signal: DCGM_FI_PROF_GR_ENGINE_ACTIVE, scale: 100}",
    )


def _unusual_exporter_scenarios() -> Iterator[Scenario]:
    n = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    peaks = ((-1e6, "0.25"), (30, "1.5"))
    yield Scenario("above-one", [n], [Pod("p", n, [0], peaks)], dcgm=Exporter(clamps_to_full_use=False))
    yield Scenario(
        "nan",
        [n],
        [Pod("p", n, [0], constant_use("0.5")), Pod("q", n, [1], constant_use("0.5"))],
        dcgm=Exporter(nan_intervals=[(20, 26)]),
    )
    yield Scenario(
        "ghost",
        [n],
        [Pod("p", n, [0], constant_use("0.5"))],
        unrequested_use={("n1", 3): "0.8"},
        expected_notes=["that no pod had requested"],
    )
    yield Scenario(
        "not-mapped",
        [n],
        [Pod("p", n, [0], constant_use("0.5"))],
        dcgm=Exporter(maps_pods=False),
        utilization_source_by_pod={"p": "none"},
    )
    sliced = gpu_node("n1", "h100-one", mig_single_geometry("h100-one", "1g.10gb", 7))
    slices = [Pod("p", sliced, [0], constant_use("0.5"), bound_at=10), Pod("q", sliced, [3], constant_use("0.25"))]
    yield Scenario("mig-old-labels", [sliced], slices, dcgm=Exporter(label_style="blank"))
    bare = gpu_node("n1", "a10g", whole_gpus_geometry("a10g"))
    ksm = KubeStateMetrics(node_labels=False, capacity=False)
    yield Scenario("no-capacity-no-labels", [bare], [Pod("p", bare, [0], constant_use("0.5"), bound_at=10)], ksm=[ksm])
    shared = gpu_node("n1", "a10g", time_sliced_geometry("a10g", 4))
    yield Scenario(
        "shared-not-mapped",
        [shared],
        [Pod(name, shared, [0], constant_use("0.2")) for name in ("a", "b")],
        dcgm=Exporter(maps_pods=False),
        utilization_source_by_pod={"a": "none", "b": "none"},
    )
