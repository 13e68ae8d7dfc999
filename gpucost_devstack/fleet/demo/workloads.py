"""Workloads of the demo: services that scale, stateful sets, and queues of jobs. Each yields pods of a period.

Pods exist in absolute time. What they yield in a period is what overlaps it, in minutes from the period's start.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpucost_devstack.fleet.demo.clock import DAY, HOUR, WEEK, Period, draw, is_weekend, suffix
from gpucost_devstack.fleet.scenario import GPU, InferenceServer, ModelLoad, Node, Pod, Use
from gpucost_devstack.fleet.scraping import Scraping

Slot = tuple[Node, Sequence[int]]
"""A node, and the devices of it that a pod holds."""
UseOfHour = Callable[[int], float]
"""Utilization of a pod's devices in the hour that starts at an absolute minute."""
RELEASE_OFFSET = DAY + 14 * HOUR
"""Services are released on Tuesdays from 14:00 on: all their pods are replaced."""
CONSUMER_LABEL = "tenant"
"""The label with which servers count requests by who sends them."""
KEPT_AFTER_END = 90
"""Minutes for which a finished pod's object remains."""


@dataclass(frozen=True)
class Workload:
    """What the pods of a workload have in common."""

    name: str
    namespace: str
    resource: str = GPU
    units: int = 1
    team: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def requests(self) -> Mapping[str, Mapping[str, int]]:
        """The requests of each pod."""
        return {"main": {self.resource: self.units}}

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of each pod, in the spelling of kube-state-metrics."""
        return {"label_app": self.name, "label_team": self.team or self.namespace, **self.labels}


def slots_of(node: Node, devices_per_pod: int = 1) -> list[Slot]:
    """A node's devices, divided among pods that hold the same number of them."""
    count = len(node.geometries[0].devices)
    return [
        (node, range(first, first + devices_per_pod))
        for first in range(0, count - devices_per_pod + 1, devices_per_pod)
    ]


def service(
    period: Period, workload: Workload, slots: Sequence[Slot], replicas: Callable[[int], int], use: UseOfHour
) -> Iterator[Pod]:
    """A Deployment: replica *i* runs in slot *i* in the hours that need more than *i* replicas, at least one always."""
    offset = RELEASE_OFFSET + HOUR * int(8 * draw("release", workload.namespace, workload.name))
    for release in period.cycles(WEEK, offset=offset):
        needed = [max(1, replicas(at)) for at in range(release, release + WEEK, HOUR)]
        replica_set = f"{workload.name}-{suffix(workload.namespace, workload.name, release, length=9)}"
        for index, (node, devices) in enumerate(slots):
            for start, end in _runs(release, [count > index for count in needed]):
                if period.overlaps(start, end):
                    yield _deployment_pod(period, workload, replica_set, index, (node, devices), (start, end), use)


def temporary_service(
    period: Period, workload: Workload, slot: Slot, runs: tuple[int, int], use: UseOfHour
) -> Iterator[Pod]:
    """A Deployment with one replica that exists between two absolute minutes only."""
    replica_set = f"{workload.name}-{suffix(workload.namespace, workload.name, length=9)}"
    if period.overlaps(*runs):
        yield _deployment_pod(period, workload, replica_set, 0, slot, runs, use)


def _deployment_pod(
    period: Period, workload: Workload, replica_set: str, index: int, slot: Slot, runs: tuple[int, int], use: UseOfHour
) -> Pod:
    (node, devices), (start, end) = slot, runs
    bound = start + 2 + 2 * int(4 * draw("bound", replica_set, index, start))
    pull = 2 + 2 * int(4 * draw("pull", replica_set, index, start))
    return Pod(
        f"{replica_set}-{suffix(replica_set, index, start)}",
        node,
        tuple(devices),
        use=use_curve(period, start, end, use),
        requests=workload.requests,
        namespace=workload.namespace,
        bound_at=bound - period.start,
        running_at=bound + pull - period.start,
        deleted_at=end - period.start,
        owners=(("ReplicaSet", replica_set), ("Deployment", workload.name)),
        labels=workload.pod_labels,
    )


@dataclass(frozen=True)
class Serving:
    """What each pod of a service serves at full use, per minute and model."""

    server: str
    rates_by_model: Mapping[str, Mapping[str, int]]
    consumers: Mapping[str, tuple[str, int]] = field(default_factory=lambda: {"": ("", 100)})
    """By the names of the server's counters: the business unit that sends requests, and their part in percent."""


def inference_server(
    period: Period, pod: Pod, serving: Serving, use: UseOfHour, *, interval_seconds: int
) -> InferenceServer:
    """A pod's server, whose load follows the pod's use.

    Its counters begin at 0 when the pod starts, which may be before the period.
    """
    begin = int(pod.bound_at + period.start) // HOUR * HOUR
    uses = {at: use(at) for at in range(begin, min(period.end, int(pod.deleted_at + period.start)), HOUR)}
    address = f"10.{'.'.join(str(int(256 * draw('address', pod.id, part))) for part in range(3))}:8000"
    return InferenceServer(
        pod,
        serving.server,
        [
            ModelLoad(
                model,
                [
                    (at - period.start, {kind: round(rate * used * part / 100) for kind, rate in rates.items()})
                    for at, used in uses.items()
                ],
                consumer,
                unit,
            )
            for model, rates in serving.rates_by_model.items()
            for consumer, (unit, part) in serving.consumers.items()
        ],
        consumer_label=CONSUMER_LABEL if any(serving.consumers) else "",
        processes=(pod.run_interval,),
        scraping=Scraping("", address, interval_seconds),
        scraped_from=pod.bound_at,
    )


def stateful_set(
    period: Period,
    workload: Workload,
    slot: Slot,
    use: UseOfHour,
    *,
    cycle: int = WEEK,
    runs: Callable[[int], tuple[int, int] | None] = lambda start: (0, WEEK),
) -> Iterator[Pod]:
    """A StatefulSet with one replica, such as a notebook.

    Args:
        period: the period.
        workload: the workload.
        slot: where it runs.
        use: its utilization.
        cycle: minutes after which the pod is replaced.
        runs: the minutes of a cycle in which the pod exists, from the cycle's start; None: not in this cycle.
    """
    node, devices = slot
    for begin in period.cycles(cycle):
        exists = runs(begin)
        if exists is None or not period.overlaps(begin + exists[0], begin + exists[1]):
            continue
        start, end = begin + exists[0], begin + exists[1]
        yield Pod(
            f"{workload.name}-0",
            node,
            tuple(devices),
            use=use_curve(period, start, end, use),
            requests=workload.requests,
            namespace=workload.namespace,
            uid=f"uid-{workload.namespace}-{workload.name}-{start}",
            bound_at=start - period.start,
            running_at=start + 4 - period.start,
            deleted_at=end - period.start,
            owners=(("StatefulSet", workload.name),),
            labels=workload.pod_labels,
        )


@dataclass(frozen=True)
class Job:
    """A job of a queue, in absolute minutes."""

    name: str
    submitted: int
    start: int
    end: int
    succeeds: bool


def queued_jobs(period: Period, queue: str, *, longest: int, pause: int = 40, weekend: float = 0.5) -> Iterator[Job]:
    """The jobs of a queue that runs one job at a time, day by day.

    Args:
        period: the period.
        queue: a unique name.
        longest: minutes of the longest job.
        pause: the most minutes between two jobs.
        weekend: the part of jobs that is submitted on weekends, too.
    """
    for day in period.cycles(DAY, before=1, after=1):
        at = day + 2 * int(30 * draw(queue, "first", day))
        last_end = day + DAY - 10
        for number in range(24):
            key = (queue, day, number)
            length = 2 * int((longest / 5 + longest * 4 / 5 * draw(*key, "length")) / 2)
            end = min(at + length, last_end)
            if end - at < 30:
                break
            if not is_weekend(day) or draw(*key, "weekend") < weekend:
                wait = 2 * int(8 + 90 * draw(*key, "wait") ** 2)
                yield Job(suffix(*key, length=8), at - wait, at, end, draw(*key, "fails") > 0.06)
            at = end + 6 + 2 * int(pause / 2 * draw(*key, "pause"))


def job_pods(
    period: Period, workload: Workload, slots: Sequence[Slot], job: Job, use: UseOfHour, *, cron: bool = False
) -> Iterator[Pod]:
    """A job's pods, one in each slot: pending from its submission, then running, then finished."""
    deleted = job.end + KEPT_AFTER_END
    if not period.overlaps(job.submitted, deleted):
        return
    name = f"{workload.name}-{job.name}"
    owners = (("Job", name), *((("CronJob", workload.name),) if cron else ()))
    for index, (node, devices) in enumerate(slots):
        pod = f"{name}-{index}-{suffix(name, index)}"
        uid = f"uid-{workload.namespace}-{pod}"
        waiting = Pod(
            pod,
            None,
            requests=workload.requests,
            namespace=workload.namespace,
            uid=uid,
            owners=owners,
            labels=workload.pod_labels,
            bound_at=job.submitted - period.start,
            deleted_at=job.start - period.start,
            never_starts=True,
        )
        if period.overlaps(job.submitted, job.start):
            yield waiting
        if period.overlaps(job.start, deleted):
            yield Pod(
                pod,
                node,
                tuple(devices),
                use=use_curve(period, job.start, job.end, use),
                requests=workload.requests,
                namespace=workload.namespace,
                uid=uid,
                owners=owners,
                labels=workload.pod_labels,
                bound_at=job.start - period.start,
                running_at=job.start + 6 - period.start,
                finished_at=job.end - period.start,
                deleted_at=deleted - period.start,
                phase_at_end="Succeeded" if job.succeeds else "Failed",
            )


def use_curve(period: Period, start: int, end: int, use: UseOfHour) -> Use:
    """Utilization by hour, in the part of an interval that overlaps the period."""
    first, last = max(start, period.start), min(end, period.end)
    steps: list[tuple[int, str]] = []
    for hour in range(first // HOUR * HOUR, max(last, first + 1), HOUR):
        text = f"{min(1.0, max(0.0, use(hour))):.3f}"
        if not steps or steps[-1][1] != text:
            steps.append((hour - period.start, text))
    return steps


def _runs(start: int, hours: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The intervals of consecutive hours for which a condition is true."""
    begin: int | None = None
    for number, is_true in enumerate([*hours, False]):
        at = start + number * HOUR
        if is_true and begin is None:
            begin = at
        elif not is_true and begin is not None:
            yield begin, at
            begin = None
