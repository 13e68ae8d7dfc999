"""Inference servers: restarts, pods that come and go, several models, sharded and split servers, missing counters."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gpucost_devstack.fleet.builders import gpu_node, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import (
    FOREVER,
    InferenceGateway,
    InferenceServer,
    Interval,
    Minutes,
    ModelLoad,
    Pod,
    Scenario,
)
from gpucost_devstack.fleet.scenarios.sharing import constant_use
from gpucost_devstack.fleet.scraping import Scraping

ENABLED = "inference: {enabled: true}\n"
CONSUMERS = """inference: {enabled: true, consumer_label: tenant}
business_units:
  - {name: search, consumers: [web-search, "search-*"]}
  - {name: ads, namespaces: [ads], consumers: ["ads-*"]}
"""
RATES = {"prompt": 6000, "generated": 1200, "cached": 1800, "requests": 12}
LLAMA, ADAPTER = "meta-llama/Llama-3.1-8B-Instruct", "sql-lora"


def load(
    model: str = LLAMA,
    factor: Fraction | int = 1,
    since: Minutes = FOREVER[0],
    until: Minutes = FOREVER[1],
    consumer: tuple[str, str] = ("", ""),
    **rates: int,
) -> ModelLoad:
    """A constant load for some time, of a consumer by its name at the server and by its business unit."""
    per_minute = {kind: int(rate * factor) for kind, rate in (RATES | rates).items()}
    idle: Mapping[str, int] = dict.fromkeys(RATES, 0)
    steps = [(FOREVER[0], idle), (since, per_minute)] if since > FOREVER[0] else [(since, per_minute)]
    return ModelLoad(model, [*steps, (until, idle)] if until < FOREVER[1] else steps, *consumer)


def server(pod: Pod, *loads: ModelLoad, kind: str = "vllm", **overrides: object) -> InferenceServer:
    """A server that answers as long as its pod runs."""
    attributes = {"processes": (pod.run_interval,), **overrides}
    return InferenceServer(pod, kind, loads or (load(),), **attributes)  # type: ignore[arg-type]


def scenarios() -> Iterator[Scenario]:
    """All scenarios of this module."""
    node = gpu_node("n1", "h100", whole_gpus_geometry("h100"))

    def pod(name: str, gpu: int, use: str = "0.5", **overrides: object) -> Pod:
        owner = {"owners": [("ReplicaSet", f"{name}-5d9c"), ("Deployment", name)]}
        return Pod(name, node, [gpu], constant_use(use), **{**owner, **overrides})  # type: ignore[arg-type]

    def scenario(name: str, *servers: InferenceServer, more: tuple[Pod, ...] = (), **overrides: object) -> Scenario:
        pods = list({each.pod.id: each.pod for each in servers}.values())
        attributes = {"settings": ENABLED, "hours": (0, 1), **overrides}
        return Scenario(f"inference-{name}", [node], [*pods, *more], servers=servers, **attributes)  # type: ignore[arg-type]

    a, b, training = pod("a", 0), pod("b", 1, "0.9"), pod("training", 7)
    yield scenario("steady", server(a), server(b, load("other", 2)), more=(training,))
    yield scenario("off", server(a), settings="")
    yield scenario("adapters", server(a, load(), load(ADAPTER, 2), load("not-called", 0)))
    yield scenario("not-called", server(a, load(factor=0)), server(b, load("x", 0), load("y", 0)))
    yield scenario(
        "kinds",
        *(
            server(pod(kind, gpu), load(f"model-of-{kind}", gpu + 1), kind=kind)
            for gpu, kind in enumerate(("vllm", "sglang", "tgi", "nim", "triton", "trtllm", "dynamo"))
        ),
    )
    yield scenario(
        "frontend-and-engine",
        server(a, load("served")),
        server(a, load("served"), kind="dynamo", port=8080, counts_again=True),
    )
    # Before the first request, TensorRT-LLM exposes only the counter of cached tokens.
    yield scenario(
        "first-request-of-trtllm",
        server(a, load(since=17), kind="trtllm"),
        server(b, load(factor=0), kind="trtllm", unknown_hours=(0, 1)),
    )
    yield scenario("restart", server(a, processes=((FOREVER[0], 20.5), (23, 1e6))))
    # The counter ends higher than it began, although it started again.
    faster = ModelLoad(LLAMA, [(FOREVER[0], RATES), (10, {kind: 20 * rate for kind, rate in RATES.items()})])
    yield scenario("restart-with-more-tokens", server(a, faster, processes=((-65, 5), (8, 1e6))))
    born, ended = pod("born", 2, bound_at=15, running_at=18), pod("ended", 3, deleted_at=40)
    yield scenario("born-and-ended", server(born), server(ended))
    replaced = [pod("again", 4, uid="first", deleted_at=25), pod("again", 4, uid="second", bound_at=30, running_at=31)]
    yield scenario("same-name", *(server(each) for each in replaced), server_groups={"again": ["again"]})
    yield scenario("two-servers", server(a), server(a, load("other", 3), kind="sglang", port=9000))
    yield scenario("two-of-one-kind", server(a), server(a, load(factor=2), port=8001))
    yield scenario("two-jobs", server(a, jobs={"pod-monitor": 0, "service-monitor": 7}), server(b, load("x", 3)))
    yield scenario("first-request-late", server(a, load(since=17), kind="tgi"), server(b, load("lazy", since=30)))
    yield scenario(
        "labels",
        server(a, namespace_label="kubernetes_namespace", pod_label="kubernetes_pod_name"),
        settings="inference: {enabled: true, namespace_label: kubernetes_namespace, pod_label: kubernetes_pod_name}\n",
    )
    yield from _gaps(scenario, a, b)
    yield from _sharded(scenario, pod)
    yield scenario(
        "prefill-decode",
        server(pod("llama-prefill", 0), load(generated=12), counted_kinds=("cached",)),
        server(pod("llama-decode", 1), load(cached=5988), counted_kinds=("prompt", "generated", "requests")),
        # Without a prefill side, a server that is named like a decode side counts everything.
        server(pod("alone-decode", 2), load("other")),
    )
    yield scenario(
        "missing-counters",
        server(a, missing_kinds=("generated",)),
        server(b, missing_kinds=("generated", "requests"), unknown_hours=(0, 1)),
        server(pod("c", 2), load("c"), missing_kinds=("cached",)),
    )
    yield from _consumers(scenario, pod)
    yield from _gateways(scenario, pod)
    for number in range(6):
        yield _random(number)
    for number in range(4):
        yield _random_consumers(number)


def _gaps(scenario, a: Pod, b: Pod) -> Iterator[Scenario]:  # type: ignore[no-untyped-def]
    for name, gap, unknown in (
        ("start", (-6, 4), (0,)),
        ("end", (54, 67), (0, 1)),
        ("middle", (20, 45), ()),
        ("short", (57, 61), ()),
    ):
        scraping = Scraping("", "", gaps=[gap])
        yield scenario(
            f"gap-{name}", server(a, load(factor=1), scraping=scraping, unknown_hours=unknown), server(b, load("x"))
        )
    # Without any sample in the first hour, no counter says that the pod is a server.
    long = server(a, scraping=Scraping("", "", gaps=[(-40, 70)]), unknown_hours=(1,))
    yield scenario("gap-hour", long, server(b, load("x")), hours=(1,))
    idle = Scraping("", "", gaps=[(-6, 4), (54, 67)])
    yield scenario("gap-not-called", server(a, load(factor=0), scraping=idle))
    yield scenario("scraped-late", server(a, scraped_from=20, unknown_hours=(0,)), server(b, load("x")))


def _sharded(scenario, pod) -> Iterator[Scenario]:  # type: ignore[no-untyped-def]
    leader = pod("llm-0", 0, owners=[("StatefulSet", "llm")])
    workers = tuple(pod(f"llm-0-{index}", index, "0.4", owners=[("StatefulSet", "llm-0")]) for index in (1, 2))
    other = pod("llm-1", 3, owners=[("StatefulSet", "llm")])
    yield scenario(
        "leader-worker-set",
        server(leader),
        server(other, load(factor=3)),
        more=workers,
        server_groups={"llm-0": ["llm-0", "llm-0-1", "llm-0-2"]},
    )
    head = pod("ray-head", 4, owners=[("RayCluster", "ray")])
    ray = tuple(pod(f"ray-worker-{index}", 5 + index, owners=[("RayCluster", "ray")]) for index in (0, 1))
    yield scenario(
        "workload-with-workers",
        server(head, load(), load(ADAPTER)),
        more=ray,
        server_groups={"ray": ["ray-head", "ray-worker-0", "ray-worker-1"]},
    )


WEB, BATCH, ADS, GUEST = ("web-search", "search"), ("search-batch", "search"), ("ads-1", "ads"), ("guest", "guest")
"""The consumers' names at the servers, and their business units. No unit of the settings is that of `guest`."""


def _consumers(scenario, pod) -> Iterator[Scenario]:  # type: ignore[no-untyped-def]
    def shared(pod: Pod, *loads: ModelLoad, **overrides: object) -> InferenceServer:
        return server(pod, *loads, **{"kind": "sglang", "consumer_label": "tenant", **overrides})  # type: ignore[arg-type]

    def consumers(name: str, *servers: InferenceServer, **overrides: object) -> Scenario:
        return scenario(f"consumers{name}", *servers, **{"settings": CONSUMERS, **overrides})  # type: ignore[no-any-return]

    a, b = pod("a", 0), pod("b", 1, "0.9")
    everybody = [load(factor=index, consumer=each) for index, each in enumerate((WEB, BATCH, ADS, GUEST), start=1)]
    yield consumers("", shared(a, *everybody, load(factor=3)), server(b, load("other")))
    yield consumers("-not-named", shared(a, load(consumer=(WEB[0], "")), load(consumer=(ADS[0], ""))), settings=ENABLED)
    # No model is called in the first hour, and one in the second.
    yield consumers(
        "-not-called",
        shared(a, load(consumer=WEB, until=-20), load("x", consumer=ADS, until=-20), load(consumer=BATCH, since=60)),
        shared(b, load("y", consumer=WEB, until=-5), load("z", consumer=ADS, until=-5)),
    )
    # Counters of a consumer begin with its first request; cached tokens, which it does not have, never.
    late = load(consumer=ADS, since=25, cached=0)
    yield consumers(
        "-begin",
        shared(
            a, load(consumer=WEB), late, processes=((FOREVER[0], 40.5), (43, 1e6)), tolerance_of_split=Fraction(1, 10)
        ),
    )
    leader = pod("llm-0", 2, owners=[("StatefulSet", "llm")])
    workers = tuple(pod(f"llm-0-{index}", 2 + index, owners=[("StatefulSet", "llm-0")]) for index in (1, 2))
    yield consumers(
        "-sharded",
        shared(leader, load(consumer=WEB), load(factor=4, consumer=ADS)),
        more=workers,
        server_groups={"llm-0": ["llm-0", "llm-0-1", "llm-0-2"]},
    )
    yield consumers(
        "-prefill-decode",
        *(
            shared(
                pod(f"llama-{side}", 5 + index),
                load(consumer=WEB, cached=cached),
                load(factor=2, consumer=ADS),
                counted_kinds=kinds,
            )
            for index, (side, cached, kinds) in enumerate(
                (("prefill", 1800, ("cached",)), ("decode", 5988, ("prompt", "generated", "requests")))
            )
        ),
    )


def _gateways(scenario, pod) -> Iterator[Scenario]:  # type: ignore[no-untyped-def]
    def behind(
        name: str, *servers: InferenceServer, kind: str = "llm-d-router", bypassing: int = 0, **overrides: object
    ) -> Scenario:
        """Servers with equal mixes of consumers; the gateway passes the loads of the first, except some at the end."""
        loads = [
            ModelLoad(
                each.model,
                [(since, {kind: len(servers) * rate for kind, rate in rates.items()}) for since, rates in each.steps],
                each.consumer,
            )
            for each in servers[0].loads[: len(servers[0].loads) - bypassing]
        ]
        gateway_attributes = overrides.pop("gateway", {})
        gateway = InferenceGateway(kind, loads, **gateway_attributes)  # type: ignore[arg-type]
        settings = CONSUMERS.replace("consumer_label: tenant", f"gateway: {{name: {kind}}}")
        return scenario(  # type: ignore[no-any-return]
            f"gateway-{name}", *servers, **{"gateways": [gateway], "settings": settings, **overrides}
        )

    a, b, c = pod("a", 0), pod("b", 1, "0.9"), pod("c", 2)
    mix = [load(factor=index, consumer=each) for index, each in enumerate((WEB, BATCH, ADS, GUEST), start=1)]
    unnamed = load(factor=5, consumer=("default-flow", ""))
    yield behind("of-two-pods", server(a, *mix, unnamed), server(b, *mix, unnamed))
    yield behind(
        "with-requests-that-bypass-it", server(a, *mix, load(factor=2)), server(b, *mix, load(factor=2)), bypassing=1
    )
    yield behind("in-another-namespace", server(a, *mix), gateway={"namespace": "gateways"})
    yield behind("with-names-of-models", server(a, *mix), kind="inference-extension")
    yield behind("restart", server(a, *mix), gateway={"processes": ((FOREVER[0], 20.5), (21, 1e6))})
    unknown = [load(factor=index, consumer=(name, "")) for index, (name, _) in enumerate((WEB, ADS), start=1)]
    yield behind("gap", server(a, *unknown), gateway={"scraping": Scraping("", "", gaps=[(-6, 4)])}, hours=(0,))
    others = behind("of-another-model", server(a, *mix), hours=(0,))
    yield replace(others, pods=[a, c], servers=[*others.servers, server(c, load("other"))])
    sides = [
        server(
            pod(f"llama-{side}", 5 + index),
            *(
                load(factor=factor, consumer=each, generated=generated, cached=cached)
                for factor, each in enumerate((WEB, ADS), start=1)
            ),
            counted_kinds=kinds,
        )
        for index, (side, generated, cached, kinds) in enumerate(
            (("prefill", 12, 1800, ("cached",)), ("decode", 1200, 5988, ("prompt", "generated", "requests")))
        )
    ]
    of_pair = behind("prefill-decode", sides[0], more=(sides[1].pod,))
    passed = [load(factor=factor, consumer=each) for factor, each in enumerate((WEB, ADS), start=1)]
    yield replace(
        of_pair, pods=[each.pod for each in sides], servers=sides, gateways=[InferenceGateway("llm-d-router", passed)]
    )


def _random_consumers(number: int) -> Scenario:
    """Servers of random loads, of which random consumers send a part, and restart."""
    generator = random.Random(f"consumers {number}")
    node = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    servers, pods = [], []
    for gpu in range(6):
        pod = Pod(
            f"p{gpu}",
            node,
            [gpu],
            constant_use(f"0.{generator.randint(1, 9)}"),
            owners=[("ReplicaSet", f"p{gpu}-1"), ("Deployment", f"p{gpu}")],
        )
        pods.append(pod)
        restart = generator.choice([1e6, generator.randint(10, 50)])
        loads = [
            load(
                f"m{generator.randint(0, 1)}",
                generator.randint(1, 9),
                consumer=consumer,
                cached=1800 if index == 0 else generator.choice([0, 1800]),
            )
            for index, consumer in enumerate(
                generator.sample([WEB, BATCH, ADS, GUEST, ("", "")], generator.randint(1, 5))
            )
        ]
        lost = Fraction(1, 10) if restart < 200 else Fraction(0)
        servers.append(
            server(
                pod,
                *loads,
                kind="sglang",
                consumer_label="tenant",
                tolerance_of_split=lost,
                processes=((FOREVER[0], restart), (restart + 2, 1e6)),
            )
        )
    return Scenario(f"consumers-mix-{number}", [node], pods, servers=servers, settings=CONSUMERS, hours=(0, 1))


def _random(number: int) -> Scenario:
    """Servers of random kinds, loads, lifetimes and restarts; everything changes at a scrape."""
    generator = random.Random(f"inference {number}")
    node = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    servers, pods = [], []
    for gpu in range(8):
        name = f"p{gpu}"
        bound = generator.choice([FOREVER[0], FOREVER[0], generator.randint(1, 50)])
        deleted = generator.choice([1e6, 1e6, generator.randint(max(int(bound), 0) + 5, 100)])
        use = constant_use(f"0.{generator.randint(1, 9)}")
        pod = Pod(
            name,
            node,
            [gpu],
            use,
            bound_at=bound,
            deleted_at=deleted,
            owners=[("ReplicaSet", f"{name}-1"), ("Deployment", name)],
        )
        pods.append(pod)
        if generator.random() < 0.2:
            continue
        restart = generator.randint(1, 55)
        processes: Sequence[Interval] = (pod.run_interval,)
        if bound < 0 and deleted > 200 and generator.random() < 0.5:
            processes = ((FOREVER[0], restart), (restart + generator.randint(1, 4), 1e6))
        loads = tuple(load(f"m{gpu}-{index}", generator.randint(0, 5)) for index in range(generator.randint(1, 3)))
        kind = generator.choice(["vllm", "sglang", "nim"])
        lost = Fraction(1, 10) if processes[0][1] < 200 else Fraction(0)
        servers.append(server(pod, *loads, kind=kind, processes=processes, tolerance_of_split=lost))
    return Scenario(f"inference-mix-{number}", [node], pods, servers=servers, settings=ENABLED, hours=(0, 1))
