"""The three clusters of the demo: their nodes, workloads, outages and quotas."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from gpucost_devstack.fleet.builders import mig_mixed_geometry, time_sliced_geometry
from gpucost_devstack.fleet.demo.clock import (
    DAY,
    HOUR,
    WEEK,
    Period,
    draw,
    hour_of_day,
    is_weekend,
    is_working_hour,
    traffic,
)
from gpucost_devstack.fleet.demo.pools import Pool, interval_from
from gpucost_devstack.fleet.demo.units import Copy, copies_of
from gpucost_devstack.fleet.demo.workloads import (
    Job,
    Serving,
    Slot,
    Workload,
    inference_server,
    job_pods,
    queued_jobs,
    service,
    slots_of,
    stateful_set,
    temporary_service,
)
from gpucost_devstack.fleet.hardware import resource_of_profile
from gpucost_devstack.fleet.scenario import Exporter, InferenceServer, KubeStateMetrics, Node, Pod, Scenario
from gpucost_devstack.fleet.scraping import Scraping

PRODUCTION, RESEARCH, BATCH = "prod-us-east-1", "research-us-east-1", "batch-us-east-1"
CLUSTERS = (PRODUCTION, RESEARCH, BATCH)
SCRAPE_SECONDS = 120
Amount = TypeVar("Amount", int, float)
NEURON = "aws_amazon_com_neuron"
A100_LAYOUTS = (
    ("3g.20gb", "2g.10gb", "1g.5gb"),
    ("3g.20gb", "2g.10gb", "1g.5gb"),
    ("2g.10gb", "2g.10gb", "2g.10gb"),
    ("2g.10gb", "2g.10gb", "2g.10gb"),
    ("1g.5gb",) * 7,
    ("3g.20gb", "3g.20gb"),
    ("3g.20gb",),
    (),
)
"""The MIG slices of each GPU of a node. Where they leave a part of a GPU, the part is stranded."""
CHAT = Serving(
    "sglang",
    {
        "meta-llama/Llama-3.3-70B-Instruct": {"prompt": 150_000, "cached": 60_000, "generated": 30_000, "requests": 90},
        "support-lora": {"prompt": 40_000, "cached": 26_000, "generated": 6_000, "requests": 40},
    },
    consumers={
        "assistant-web": ("assistant", 50),
        "search-answers": ("search", 30),
        "developer-ide": ("developer-platform", 15),
        "partner-trial": ("", 5),
    },
)
"""Two H100s: 600 generated tokens a second, of the model and of a LoRA adapter for support."""
EMBEDDINGS = Serving("vllm", {"BAAI/bge-m3": {"prompt": 900_000, "cached": 0, "generated": 0, "requests": 3_600}})
RERANKER = Serving("triton", {"bge-reranker-v2-m3": {"requests": 2_400}})
"""Triton counts requests, and no tokens."""

EXPERIMENTS = (
    ("search", "reranker-v3-canary"),
    ("ads-ranking", "bid-model-ab-test"),
    ("search", "query-rewriter-trial"),
    ("fraud", "graph-features-trial"),
    ("search", "embeddings-v2-canary"),
    ("ads-ranking", "creative-scorer-pilot"),
    ("search", "typo-model-trial"),
    ("fraud", "device-risk-pilot"),
)
"""Namespaces and names of experiments, one a week. Quotas have room for one at a time in a namespace."""


@dataclass
class _Cluster:
    period: Period
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    servers: list[InferenceServer] = field(default_factory=list)
    quotas: Counter[str] = field(default_factory=Counter)
    """GPUs by namespace. Copies of a region add to the same namespaces."""
    exporter_by_node: dict[str, Scraping] = field(default_factory=dict)

    def service(
        self,
        workload: Workload,
        slots: list[Slot],
        replicas: Callable[[int], int],
        use: Callable[[int], float],
        serving: Serving | None = None,
    ) -> None:
        """Add a Deployment, and the models that its pods serve."""
        pods = list(service(self.period, workload, slots, replicas, use))
        self.pods += pods
        if serving:
            self.servers += [
                inference_server(self.period, pod, serving, use, interval_seconds=SCRAPE_SECONDS) for pod in pods
            ]

    def add(self, *nodes: Node) -> None:
        """Add nodes."""
        self.nodes += nodes


def scenarios(start: datetime, end: datetime, *, scale: int = 1) -> list[Scenario]:
    """The clusters in a range of full hours. Minutes count from its start.

    Args:
        start: the first hour.
        end: the end of the last hour.
        scale: 1, or about how many GPUs the fleet has.

    Raises:
        ValueError: a time is not a full hour, or the scale is less than 1.
    """
    period = Period.between(start, end)
    copies = [Copy(number) for number in range(copies_of(scale))]
    return [
        _scenario(name, period, copies, fill, outages)
        for name, fill, outages in (
            (PRODUCTION, _production, _no_outages),
            (RESEARCH, _research, _no_outages),
            (BATCH, _batch, _weekly_outages),
        )
    ]


def _scenario(
    name: str,
    period: Period,
    copies: list[Copy],
    fill: Callable[[_Cluster, Copy], None],
    outages: Callable[[Period], Iterator[tuple[int, int]]],
) -> Scenario:
    cluster = _Cluster(period)
    for copy in copies:
        fill(cluster, copy)
    scraping = Scraping("kube-state-metrics", "10.0.0.10:8080", SCRAPE_SECONDS, gaps=tuple(outages(period)))
    length = period.end - period.start
    return Scenario(
        name,
        cluster.nodes,
        cluster.pods,
        ksm=(KubeStateMetrics(scraping),),
        dcgm=Exporter(
            scraping=Scraping("dcgm-exporter", "", SCRAPE_SECONDS), scraping_by_node=cluster.exporter_by_node
        ),
        servers=cluster.servers,
        start=0,
        end=length,
        hours=range(length // HOUR),
        quotas=cluster.quotas,
    )


def _no_outages(_period: Period) -> Iterator[tuple[int, int]]:
    yield from ()


def _weekly_outages(period: Period) -> Iterator[tuple[int, int]]:
    """Prometheus is upgraded on Wednesdays at 03:00, and scrapes nothing for an hour."""
    for start in period.cycles(WEEK, offset=2 * DAY + 3 * HOUR):
        yield start - period.start, start + HOUR - period.start


def _production(cluster: _Cluster, copy: Copy) -> None:
    """Inference: services that scale with the traffic, and some that do not."""
    h100, l4 = Pool(0, "h100-serving", 10), Pool(0, "l4-serving", 11, zone="us-east-1b")
    a10g, inferentia = Pool(0, "a10g-serving", 12), Pool(0, "inferentia", 13, zone="us-east-1c")
    chat_nodes = [h100.gpu_node(2 * copy.number + i, "h100") for i in range(2)]
    l4_nodes = [l4.gpu_node(4 * copy.number + i, "l4") for i in range(4)]
    a10g_nodes = [a10g.gpu_node(2 * copy.number + i, "a10g") for i in range(2)]
    neuron = inferentia.neuron_node(copy.number, "inf2.24xlarge", 6, 2)
    cluster.add(*chat_nodes, *l4_nodes, *a10g_nodes, neuron)

    chat = Workload(copy.workload("chat-70b"), copy.namespace("chat"), units=2, team="assistant")
    cluster.service(
        chat,
        [slot for node in chat_nodes for slot in slots_of(node, 2)],
        lambda at: 3 + round(5 * traffic(chat.namespace, at)),
        lambda at: 0.18 + 0.66 * traffic(chat.namespace, at),
        CHAT,
    )
    embeddings = Workload(copy.workload("embeddings"), copy.namespace("search"))
    cluster.service(
        embeddings,
        slots_of(l4_nodes[0]),
        lambda at: 1 + round(3 * traffic("search", at)),
        lambda at: 0.3 + 0.45 * traffic("search", at),
        EMBEDDINGS,
    )
    reranker = Workload(copy.workload("reranker"), copy.namespace("search"))
    cluster.service(
        reranker, slots_of(l4_nodes[1])[:2], lambda _: 2, lambda at: 0.35 + 0.3 * traffic("rerank", at), RERANKER
    )
    ranker = Workload(copy.workload("ranker"), copy.namespace("ads-ranking"))
    cluster.service(ranker, slots_of(l4_nodes[2]), lambda _: 4, lambda at: 0.42 + 0.3 * traffic("ads", at))
    # No pod ever runs on the fourth L4 node: it can be removed.
    moderation = Workload(copy.workload("image-classifier"), copy.namespace("moderation"))
    cluster.service(moderation, slots_of(a10g_nodes[0])[:3], lambda _: 3, lambda at: 0.93 + 0.05 * draw("images", at))
    scoring = Workload(copy.workload("scoring"), copy.namespace("fraud"))
    cluster.service(scoring, slots_of(a10g_nodes[1])[:3], lambda _: 3, lambda at: 0.06 + 0.13 * traffic("fraud", at))
    legacy = Workload(copy.workload("ranker-v1"), copy.namespace("ads-ranking"))
    cluster.service(legacy, slots_of(a10g_nodes[1])[3:], lambda _: 1, lambda at: 0.004)
    _add_experiments(cluster, copy, [slots_of(l4_nodes[1])[2], slots_of(l4_nodes[1])[3], slots_of(a10g_nodes[0])[3]])
    transcription = Workload(copy.workload("transcription"), copy.namespace("speech"), resource=NEURON)
    cluster.service(
        transcription,
        slots_of(neuron, 2),
        lambda at: 2 + round(4 * traffic("speech", at, peak_hour=13)),
        lambda at: 0.2 + 0.6 * traffic("speech", at, peak_hour=13),
    )
    cluster.quotas.update({chat.namespace: 16, ranker.namespace: 6, moderation.namespace: 3, scoring.namespace: 4})


def _add_experiments(cluster: _Cluster, copy: Copy, slots: list[Slot]) -> None:
    """Every week, a team tries something on a GPU, and forgets it until somebody stops it two weeks later.

    So weekly reviews recommend to stop each experiment, see that it was stopped, and measure what that saved.
    """
    for monday in cluster.period.cycles(WEEK, before=2):
        week = monday // WEEK
        namespace, name = EXPERIMENTS[week % len(EXPERIMENTS)]
        start = monday + HOUR * (9 + int(30 * draw("experiment", "start", week)))
        end = start + HOUR * (15 * 24 - 12 + int(24 * draw("experiment", "end", week)))
        workload = Workload(copy.workload(name), copy.namespace(namespace))
        cluster.pods += temporary_service(
            cluster.period, workload, slots[week % len(slots)], (start, end), lambda _: 0.003
        )


def _research(cluster: _Cluster, copy: Copy) -> None:
    """Training jobs that wait for reserved nodes, MIG slices, and notebooks that stay on over the weekend."""
    period = cluster.period
    training, mig = Pool(64, "a100-training", 10, "reserved"), Pool(64, "a100-mig", 11, zone="us-east-1b")
    notebooks = Pool(64, "notebooks", 12)
    first, second = (training.gpu_node(2 * copy.number + i, "a100-40") for i in range(2))
    sliced = mig.gpu_node(copy.number, "a100-40", mig_mixed_geometry("a100-40", A100_LAYOUTS))
    notebook_nodes = [notebooks.gpu_node(4 * copy.number + i, "a10g-one") for i in range(4)]
    cluster.add(first, second, sliced, *notebook_nodes)

    pretraining, tuning = copy.namespace("pretraining"), copy.namespace("chat-training")
    queues = (
        (Workload(copy.workload("pretrain"), pretraining, units=4), [(first, range(4, 8)), (second, range(4, 8))], 900),
        (Workload(copy.workload("finetune"), tuning, units=4, team="assistant"), [(first, range(4))], 420),
        (Workload(copy.workload("ablation"), pretraining, units=4), [(second, range(4))], 300),
    )
    for workload, slots, longest in queues:
        for job in queued_jobs(period, f"{workload.namespace}/{workload.name}", longest=longest):
            cluster.pods += job_pods(period, workload, slots, job, _constant(0.82 + 0.15 * draw("power", job.name)))
    _add_slice_workloads(cluster, copy, sliced)
    for index, user in enumerate(("ana", "ben", "chloe", "dmitri")):
        workload = Workload(copy.workload(f"notebook-{user}"), copy.namespace("notebooks"), team="data-science")
        cluster.pods += stateful_set(
            period, workload, (notebook_nodes[index], (0,)), _notebook_use(user, is_abandoned=user == "dmitri")
        )
    # The driver of the sliced node is updated on every third day, which takes its exporter 40 minutes.
    gaps = tuple(interval_from(period, day + 10 * HOUR + 10, day + 10 * HOUR + 50) for day in period.cycles(3 * DAY))
    cluster.exporter_by_node[sliced.name] = Scraping("dcgm-exporter", "", SCRAPE_SECONDS, gaps=gaps)
    cluster.quotas.update({pretraining: 24, tuning: 8, copy.namespace("notebooks"): 4})


def _add_slice_workloads(cluster: _Cluster, copy: Copy, node: Node) -> None:
    devices = node.geometries[0].devices
    vision = copy.namespace("vision")

    def slots(profile: str) -> list[Slot]:
        return [(node, (index,)) for index, device in enumerate(devices) if device.profile == profile]

    for name, namespace, profile, count, use in (
        ("segmentation", vision, "3g.20gb", 4, lambda at: 0.55 + 0.3 * draw("segmentation", at)),
        ("tracking", vision, "2g.10gb", 6, lambda at: 0.25 + 0.4 * is_working_hour(at)),
        ("playground", copy.namespace("notebooks"), "1g.5gb", 5, _notebook_use("playground", is_abandoned=False)),
        ("annotation", vision, "", 1, lambda at: 0.7 * is_working_hour(at)),
    ):
        resource = resource_of_profile(profile) if profile else "nvidia_com_gpu"
        workload = Workload(copy.workload(name), namespace, resource=resource)
        selected = slots(profile)[:count]
        cluster.service(workload, selected, _constant(len(selected)), use)


def _constant(amount: Amount) -> Callable[[int], Amount]:
    return lambda _: amount


def _notebook_use(user: str, *, is_abandoned: bool) -> Callable[[int], float]:
    """Bursts in working hours. A notebook that its owner forgot does nothing at all."""
    if is_abandoned:
        return lambda at: 0.003
    return lambda at: 0.15 + 0.5 * draw("notebook", user, at) if is_working_hour(at) else 0.0


def _batch(cluster: _Cluster, copy: Copy) -> None:
    """Jobs on spot nodes, shared GPUs for developers, Trainium, and nodes without metrics."""
    period = cluster.period
    dev, trainium = Pool(128, "t4-dev", 11), Pool(128, "trainium", 12, zone="us-east-1b")
    simulation = Pool(128, "simulation", 13, zone="us-east-1c")
    _add_spot_nodes(cluster, copy)
    shared = dev.gpu_node(copy.number, "t4-four", time_sliced_geometry("t4-four", 4))
    trainers = [trainium.neuron_node(2 * copy.number + i, "trn1.2xlarge", 1, 2) for i in range(2)]
    simulators = [simulation.gpu_node(2 * copy.number + i, "a10g-one") for i in range(2)]
    cluster.add(shared, *trainers, *simulators)
    for number in range(11):
        workload = Workload(copy.workload(f"workspace-{number + 1:02d}"), copy.namespace("dev"), team="platform")
        cluster.pods += stateful_set(
            period,
            workload,
            (shared, (number % 4,)),
            partial(_workspace_use, number),
            cycle=DAY,
            runs=partial(_workspace_hours, number),
        )
    forecasting = Workload(copy.workload("nightly-forecast"), copy.namespace("forecasting"), resource=NEURON)
    for day in period.cycles(DAY, before=1):
        for number, node in enumerate(trainers):
            length = 150 + 2 * int(60 * draw("forecast", day, number))
            job = Job(f"{day // DAY}-{number}", day + HOUR - 6, day + HOUR, day + HOUR + length, succeeds=True)
            cluster.pods += job_pods(period, forecasting, [(node, (0, 1))], job, lambda at: 0.86, cron=True)
    physics = Workload(copy.workload("physics"), copy.namespace("simulation"), team="robotics")
    cluster.service(physics, [slots_of(node)[0] for node in simulators], lambda _: 2, lambda at: 0.6)
    for node in simulators:  # dcgm-exporter does not run there, so the cost of these pods is unmeasured
        cluster.exporter_by_node[node.name] = Scraping(
            "dcgm-exporter", "", SCRAPE_SECONDS, gaps=((-1e6, 1e6),), up="dropped"
        )
    cluster.quotas.update({copy.namespace("dev"): 12, copy.namespace("render"): 4})


def _workspace_use(number: int, at: int) -> float:
    return 0.28 * draw("workspace", number, at) if is_working_hour(at) else 0.0


def _workspace_hours(number: int, day: int) -> tuple[int, int] | None:
    """The minutes of a day in which a developer's workspace exists: some are never stopped."""
    if number < 4:
        return (0, DAY)
    return None if is_weekend(day) or draw("workspace", day, number) < 0.15 else (8 * HOUR, 19 * HOUR)


def _add_spot_nodes(cluster: _Cluster, copy: Copy) -> None:
    """Nodes of half a day each, with a job. On every day, EC2 reclaims one of them, and a new node repeats its job."""
    period = cluster.period
    pool = Pool(128, "spot-batch", 10, "spot", zone="us-east-1a")
    render = Workload(copy.workload("render"), copy.namespace("render"), labels=_INTERRUPTIBLE)
    backfill = Workload(copy.workload("embedding-backfill"), copy.namespace("pipelines"), labels=_INTERRUPTIBLE)
    for day in period.cycles(DAY, before=1, after=1):
        number = day // DAY % 20 * 12
        for part_of_day in range(2):
            begin = day + part_of_day * DAY // 2
            count = 3 if hour_of_day(begin) == 12 and not is_weekend(day) else 2
            for index in range(count):
                workload = render if index % 2 == 0 else backfill
                end = begin + DAY // 2 - (2 * int(90 * draw("spot", copy.number, begin, index)) if index else 0)
                lives = [(begin, end)]
                if part_of_day and index == 1:
                    reclaimed = begin + 2 * HOUR + 2 * int(60 * draw("reclaimed", copy.number, day))
                    lives = [(begin, reclaimed), (reclaimed + 6, end)]
                for attempt, (joins, leaves) in enumerate(lives):
                    name = f"{begin // 720}-{index}{'-retry' * attempt}"
                    is_reclaimed = len(lives) == 2 and attempt == 0
                    _add_spot_job(
                        cluster,
                        pool,
                        copy.number * 240 + number + part_of_day * 6 + index + 4 * attempt,
                        workload,
                        name,
                        (joins, leaves),
                        is_reclaimed=is_reclaimed,
                    )


_INTERRUPTIBLE = {"label_gpucost_interruptible": "true"}


def _add_spot_job(
    cluster: _Cluster,
    pool: Pool,
    number: int,
    workload: Workload,
    name: str,
    lifetime: tuple[int, int],
    *,
    is_reclaimed: bool,
) -> None:
    period = cluster.period
    joins, leaves = lifetime
    if not period.overlaps(joins - HOUR, leaves + 2 * HOUR):
        return
    node = pool.gpu_node(number, "a10g-one", lifetime=interval_from(period, joins, leaves))
    if period.overlaps(joins, leaves):
        cluster.nodes.append(node)
    end = leaves if is_reclaimed else leaves - 16
    job = Job(name, joins - 4, joins + 4, end, succeeds=not is_reclaimed)
    for pod in job_pods(period, workload, [(node, (0,))], job, lambda at: 0.74 + 0.2 * draw("batch", name, at)):
        if pod.node is not None:  # the pod's object is deleted soon after its node has left
            deleted = min(pod.deleted_at, node.lifetime[1] + 6)
            if deleted > 0:
                cluster.pods.append(replace(pod, deleted_at=deleted))
        else:
            cluster.pods.append(pod)
