"""Compares a whole hour of ours, including code, with OpenCost's queries for the same hour.

Written from what OpenCost is known to ask for one window of allocations (its source of October 2024: 45 instant queries
over a range, and one for the pods at a resolution of five minutes), in our own words: which series, which statistic,
by which labels. Both ask the same Prometheus, in turns. What OpenCost does with the answers is not in its figure, and
what it asks of clouds, idle costs and assets neither (some 30 queries more).
"""

from collections.abc import Iterator
from datetime import datetime

import requests

from benchmarks.end_to_end import cpu_seconds
from benchmarks.figures import Figure, against, in_turns, stand_alone
from benchmarks.hour import attribute, cluster, recorded_queries, samples_processed, send_bare
from gpucost.core.hours import HOUR
from tests.prometheus_clients import SentQuery

WINDOW, RESOLUTION = "1h", "5m"
CONTAINER, POD, NODE = "container, pod, namespace, node, uid", "pod, namespace, uid", "node, instance_type, provider_id"
REAL = 'container!="",container!="POD",node!=""'
REQUESTS = "kube_pod_container_resource_requests"
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def mean(series: str, by: str) -> str:
    """Mean over the window, aggregated over the other labels."""
    return f"avg(avg_over_time({series}[{WINDOW}])) by ({by})"


def most(series: str, by: str) -> str:
    """Maximum in the window."""
    return f"max(max_over_time({series}[{WINDOW}])) by ({by})"


def increase(series: str, by: str) -> str:
    """Increase of a counter."""
    return f"sum(increase({series}[{WINDOW}])) by ({by})"


def labels(series: str) -> str:
    """Labels of all series in the window."""
    return f"avg_over_time({series}[{WINDOW}])"


def queries() -> Iterator[str]:
    """All queries of OpenCost."""
    for resource in ("memory", "cpu"):
        usage = "container_memory_allocation_bytes" if resource == "memory" else "container_cpu_allocation"
        yield mean(f"{usage}{{{REAL}}}", CONTAINER)
        yield mean(f'{REQUESTS}{{resource="{resource}",{REAL}}}', CONTAINER)
    yield mean(f"container_memory_working_set_bytes{{{REAL}}}", CONTAINER)
    yield most(f"container_memory_working_set_bytes{{{REAL}}}", CONTAINER)
    cpu = f"container_cpu_usage_seconds_total{{{REAL}}}"
    yield f"avg(rate({cpu}[{WINDOW}])) by ({CONTAINER})"
    yield f"max(max_over_time(irate({cpu}[{RESOLUTION}])[{WINDOW}:{RESOLUTION}])) by ({CONTAINER})"
    yield mean(f'{REQUESTS}{{resource="nvidia_com_gpu",{REAL}}}', CONTAINER)
    yield mean(f"container_gpu_allocation{{{REAL}}}", CONTAINER)
    yield mean(f'{BUSY}{{container!=""}}', POD)
    yield most(f'{BUSY}{{container!=""}}', POD)
    yield mean(f'{REQUESTS}{{unit="integer",{REAL}}}', f"{CONTAINER}, resource")
    yield mean('DCGM_FI_DEV_DEC_UTIL{container!=""}', f"{POD}, device, modelName, UUID")
    for part in ("cpu", "ram", "gpu"):
        yield mean(f"node_{part}_hourly_cost", NODE)
    yield labels("kubecost_node_is_spot")
    yield mean('kube_persistentvolumeclaim_info{volumename!=""}', "persistentvolumeclaim, storageclass, volumename")
    yield mean("pod_pvc_allocation", "persistentvolume, persistentvolumeclaim, pod, namespace")
    yield mean("kube_persistentvolumeclaim_resource_requests_storage_bytes", "persistentvolumeclaim, namespace")
    yield mean("kube_persistentvolume_capacity_bytes", "persistentvolume")
    yield mean("pv_hourly_cost", "volumename, persistentvolume, provider_id")
    for zone_labels in (
        'internet="false",same_zone="false",same_region="true"',
        'same_region="false"',
        'internet="true"',
    ):
        yield increase(f"kubecost_pod_network_egress_bytes_total{{{zone_labels}}}", "pod_name, namespace")
    for zone_labels in ("zone", "region", "internet"):
        yield mean(f"kubecost_network_{zone_labels}_egress_cost", "cluster")
    for way in ("receive", "transmit"):
        yield increase(f'container_network_{way}_bytes_total{{pod!=""}}', "pod_name, pod, namespace")
    for kept in ("kube_namespace_labels", "kube_namespace_annotations", "kube_pod_labels", "kube_pod_annotations"):
        yield labels(kept)
    for matched in ("service_selector_labels", "deployment_match_labels", "statefulSet_match_labels"):
        yield labels(matched)
    for kind in ("DaemonSet", "Job", "ReplicaSet"):
        yield f'sum(avg_over_time(kube_pod_owner{{owner_kind="{kind}"}}[{WINDOW}])) by (pod, owner_name, namespace)'
    for kind in ("<none>", "Rollout"):
        yield mean(f'kube_replicaset_owner{{owner_kind="{kind}"}}', "replicaset, namespace, owner_kind, owner_name")
    yield mean("kubecost_load_balancer_cost", "namespace, service_name, ingress_ip")
    yield f"count(kubecost_load_balancer_cost) by (namespace, service_name)[{WINDOW}:{RESOLUTION}]"
    yield f"avg(kube_pod_container_status_running != 0) by (pod, namespace, uid)[{WINDOW}:{RESOLUTION}]"


def send(url: str, hour: datetime) -> None:
    """Send OpenCost's queries, and read each response completely."""
    session = requests.Session()
    session.trust_env = False
    for query in queries():
        form = {"query": query, "time": str((hour + HOUR).timestamp())}
        session.post(f"{url}/api/v1/query", data=form, timeout=300).raise_for_status()


def samples(url: str, hour: datetime) -> int:
    """Samples that Prometheus processed for OpenCost's queries."""
    time = str((hour + HOUR).timestamp())
    return samples_processed(url, [SentQuery("query", {"query": query, "time": time}) for query in queries()])


def figures(quick: bool) -> list[Figure]:
    """Time, processor time, queries and samples of both."""
    pods, rounds = (500, 3) if quick else (2_000, 7)
    with cluster(pods, with_opencost=True) as (url, hour):
        our_queries = recorded_queries(url, hour)
        send(url, hour)
        ours, theirs = in_turns(lambda: attribute(url, hour), lambda: send(url, hour), rounds)
        bare, opencost = in_turns(lambda: send_bare(url, our_queries), lambda: send(url, hour), rounds)
        worked, floor = [], []
        for _ in range(rounds):
            before = cpu_seconds()
            attribute(url, hour)
            between = cpu_seconds()
            send(url, hour)
            worked.append(between - before)
            floor.append(cpu_seconds() - between)
        subject = f"{pods:,} pods, whole hour ÷ OpenCost's queries alone"
        return [
            against(f"{subject}: time", ours, theirs, 0.65),
            against(f"{subject}: processor time", worked, floor, None, "s"),
            against(f"{pods:,} pods, our queries alone ÷ OpenCost's: time", bare, opencost, None),
            Figure(f"{subject}: queries", len(our_queries), floor=len(list(queries()))),
            Figure(f"{subject}: samples processed", samples_processed(url, our_queries), floor=samples(url, hour)),
        ]


if __name__ == "__main__":
    stand_alone(figures, __doc__)
