"""Faults for metering and its sources: mistakes of similar products and of prototypes of this one."""

from typing import NamedTuple

PACKAGE = "layers/common/gpucost"
METERING = (
    "tests/system/test_fleet.py",
    "tests/system/test_documentation.py",
    "tests/system/test_metering.py",
    "tests/system/test_metering_devices.py",
    "tests/system/test_open_outages.py",
    "tests/core",
)
SUSPECT_TESTS = ("tests/system/test_suspect_samples.py",)
FLEET = "tests/system/test_fleet.py"
"""With `-k`, only the clusters whose names have one of the words are attributed; other words select other files."""
PROCESS_TESTS = ("tests/core/test_process_use.py", FLEET, "-k", "process")
CLAIM_TESTS = ("tests/core/test_claims.py", FLEET, "-k", "claim")
RACK_TESTS = ("tests/core/test_nvlink_domains.py", "tests/system/test_fleet_racks.py", FLEET, "-k",
              "nvlink or rack or of-a-gpu or unlisted")  # fmt: skip
PARTITION_TESTS = (
    "tests/core/test_claims.py",
    "tests/core/test_mig_partitions.py",
    "tests/sources/test_resource_slices.py",
    "tests/storage/test_stored_usage.py",
)
FRACTION_TESTS = ("tests/core/test_gpu_fractions.py", FLEET, "-k",
                  "gpu_fractions or hami or kai or runai or vgpus or reservations")  # fmt: skip
VENDOR_TESTS = ("tests/system/test_vendors.py", FLEET, "-k", "vendor or amd or gaudi or intel")
ENERGY_TESTS = ("tests/core/test_energy.py", "tests/system/test_energy.py", FLEET, "-k", "test_energy.py or energy-")
DOCTOR_TESTS = ("tests/system/test_doctor_utilization.py",)
STANDALONE_POD_TESTS = ("tests/system/test_standalone_pods.py",)


class Fault(NamedTuple):
    """A mistake: the original text in a file, and the faulty text that replaces it."""

    mistake: str
    file: str
    original: str
    faulty: str
    tests: tuple[str, ...] = METERING
    """The tests of which one must fail: arguments of pytest."""


FAULTS = (
    Fault("a pod ends with its last sample", f"{PACKAGE}/core/metering/spans.py", "return after if after is not None and 2 * (after - last) <= 3 * interval else last + interval", "return last"),
    Fault("hours do not wait for the end of an outage", f"{PACKAGE}/core/metering/outages.py", "if now >= end + LOOK_AROUND_MS:", "if True:"),
    Fault("a silent shard does not count as an outage", f"{PACKAGE}/core/metering/outages.py", "if last_samples and all(", "if not last_samples and all("),
    Fault("a silent replica counts as an outage", f"{PACKAGE}/core/metering/outages.py", "instance in silent and last >= silent[instance] for instance, last in last_samples.items()", "last >= silent[instance] for instance, last in last_samples.items() if instance in silent"),
    Fault("a restarted source counts as an outage", f"{PACKAGE}/core/metering/outages.py", "if len(silent) <= _count_replacements(", "if not silent or 0 > _count_replacements("),
    Fault("one new process replaces all silent ones", f"{PACKAGE}/core/metering/outages.py", "if len(silent) <= _count_replacements(", "if not silent or 0 < _count_replacements("),
    Fault("hours wait for the end of an outage forever", f"{PACKAGE}/core/metering/outages.py", "if now >= end + LOOK_AROUND_MS:", "if False:"),
    Fault(
        "finished pods keep holding GPUs",
        f"{PACKAGE}/sources/prometheus/pods.py",
        "held = _without_times(raw.requested, raw.finished)",
        "held = _without_times(raw.requested, {})",
    ),
    Fault(
        "the phase of a pod is ignored",
        f"{PACKAGE}/sources/prometheus/pods.py",
        'return start == end == "Running" or not has_phases',
        "return True",
    ),
    Fault("image pull counts as running", f"{PACKAGE}/core/metering/spans.py", "if pod.running_samples is None:", "if True:"),
    Fault(
        "an init container is added to the other containers",
        f"{PACKAGE}/core/metering/holdings.py",
        "int(max(together.get(name, zero), largest_init.get(name, zero)))",
        "int(together.get(name, zero) + largest_init.get(name, zero))",
    ),
    Fault(
        "a sidecar counts as an init container",
        f"{PACKAGE}/sources/prometheus/pods.py",
        'return "sidecar" if runs_with_pod else "init"',
        'return "init"',
    ),
    Fault("unhealthy GPUs count as unallocated", f"{PACKAGE}/core/metering/capacity.py", "usage.unhealthy_gpu_ms += unhealthy", "usage.unallocated_gpu_ms += unhealthy"),
    Fault("a MIG geometry may exceed its GPU", f"{PACKAGE}/core/metering/gpu_shares.py", "if advertised > self.physical_gpus:", "if False:"),
    Fault(
        "a MIG slice counts by its compute share only",
        f"{PACKAGE}/core/metering/gpu_models.py",
        'return max(Fraction(int(match["compute"]), gpu.compute_slices), Fraction(memory, gpu.memory_slices))',
        'return Fraction(int(match["compute"]), gpu.compute_slices)',
    ),
    Fault("a MIG slice is free", f"{PACKAGE}/core/metering/gpu_shares.py", 'return GpuShare(share / replicas, "mig-profile", replicas)', 'return GpuShare(share / replicas / 1000, "mig-profile", replicas)'),
    Fault("a partition of an AMD GPU counts as the GPU", f"{PACKAGE}/core/metering/gpu_shares.py", 'return GpuShare(Fraction(1, parts), "partition")', 'return GpuShare(Fraction(1), "partition")', VENDOR_TESTS),
    Fault("the activity of an AMD GPU is that of its first partition", f"{PACKAGE}/sources/prometheus/devices.py", "(signal.works_under_mig if is_partition else signal.works_on_whole_gpus)", "(is_partition or signal.works_on_whole_gpus)", VENDOR_TESTS),
    Fault("the activities of an AMD partition's dies are added", f"{PACKAGE}/sources/prometheus/devices.py", "sum(by_time[time], Decimal(0)) / len(by_time[time])", "sum(by_time[time], Decimal(0))", VENDOR_TESTS),
    Fault("the pod of Gaudi's exporter holds its devices", f"{PACKAGE}/core/metering/accelerators.py", 'labels=DeviceLabels(device=("UUID", "Serial"), pod=("pod_namespace", "pod_name")),', 'labels=DeviceLabels(device=("UUID", "Serial")),', VENDOR_TESTS),
    Fault("every engine of an Intel GPU is its utilization", f"{PACKAGE}/core/metering/accelerators.py", 'matchers=(("hw_gpu_task", "all"), ("com_intel_subdevice_id", "")),', "", VENDOR_TESTS),
    Fault("Neuron devices and their cores are added", f"{PACKAGE}/core/metering/gpu_shares.py", "neuron = max(neuron, devices)", "neuron += devices"),
    Fault(
        "pods hold GPUs of a terminated node",
        f"{PACKAGE}/core/metering/holdings.py",
        "                span.time.overlap(lifecycle.present),\n                min(span.last_sample_ms, lifecycle.present.end),\n",
        "                span.time,\n                span.last_sample_ms,\n",
    ),
    Fault(
        "a node replaced under its name is the same node",
        f"{PACKAGE}/sources/prometheus/nodes.py",
        'times = raw.present.setdefault(labels.get("provider_id", ""), {}).setdefault(target, set())',
        'times = raw.present.setdefault("", {}).setdefault(target, set())',
    ),
    Fault("free GPUs during an outage count as unallocated", f"{PACKAGE}/core/metering/capacity.py", "    if is_unobserved:\n        usage.unobserved_gpu_ms += available * length\n        return ZERO\n", ""),
    Fault("a booting node counts as unallocated", f"{PACKAGE}/core/metering/capacity.py", "usage.not_ready_gpu_ms += remaining * length", "usage.unallocated_gpu_ms += remaining * length"),
    Fault("what a MIG geometry leaves unusable counts as unallocated", f"{PACKAGE}/core/metering/capacity.py", "usage.geometry_gpu_ms += (remaining - available) * length", "usage.unallocated_gpu_ms += (remaining - available) * length"),
    Fault("free GPUs of different racks are added up", f"{PACKAGE}/core/metering/nvlink_domains.py", "domains.setdefault(GPU_CLIQUE_LABEL.value_in(usage.node.labels), [])", 'domains.setdefault("", [])', RACK_TESTS),
    Fault("a job does not fit a rack with exactly as many free GPUs", f"{PACKAGE}/core/metering/nvlink_domains.py", "if free < minimum:", "if free <= minimum:", RACK_TESTS),
    Fault("a rack has room for a job at any time of the hour", f"{PACKAGE}/core/metering/nvlink_domains.py", "for start, end in pairwise(sorted(changes)):", "for start, end in [(min(changes), max(changes))] if changes else []:", RACK_TESTS),
    Fault("free GPUs of a rack without room for a job are in no part", f"{PACKAGE}/core/metering/usage.py", "+ self.unhealthy_gpu_ms + self.domain_gpu_ms", "+ self.unhealthy_gpu_ms", RACK_TESTS),
    Fault("stored usage forgets the racks without room for a job", f"{PACKAGE}/storage/usage_documents.py", "(*_NODE_AMOUNTS, _DOMAIN_AMOUNT) if has_domains else _NODE_AMOUNTS", "_NODE_AMOUNTS", ("tests/storage/test_stored_usage.py",)),
    Fault("instance types of the settings are ignored while a node boots", f"{PACKAGE}/sources/prometheus/nodes.py", "return _has_instance_type(labels, self._gpus_by_instance_type)", "return _has_instance_type(labels, GPUS_OF_INSTANCE)", RACK_TESTS),
    Fault("GPUs of instance types in the settings are ignored", f"{PACKAGE}/core/metering/nodes.py", "physical_gpus=gpus_by_instance_type.get(instance_type)", "physical_gpus=GPUS_OF_INSTANCE.get(instance_type)", RACK_TESTS),
    Fault("a part of a GPU counts as a whole one", f"{PACKAGE}/core/metering/instance_types.py", "int(instance_type.devices) if instance_type.devices >= 1 else instance_type.devices", "max(1, int(instance_type.devices))", RACK_TESTS),
    Fault("the smallest slice of a GB200 has the name of later drivers only", f"{PACKAGE}/core/metering/gpu_models.py", '{"1g.24gb": 1, "3g.95gb": 4,', '{"3g.95gb": 4,', ("tests/core/test_gpu_models.py",)),
    Fault("GPUs held in excess of the node are dropped", f"{PACKAGE}/core/metering/capacity.py", "usage.excess_gpu_ms += (held - physical) * length", "usage.excess_gpu_ms += 0"),
    Fault(
        "the copies of pods that share a GPU are summed",
        f"{PACKAGE}/core/metering/device_use.py",
        "return max(without_uid or by_label.values())",
        "return min(sum(without_uid or by_label.values(), ZERO), Fraction(1))",
    ),
    Fault(
        "values above full use are not clamped",
        f"{PACKAGE}/core/metering/device_use.py",
        "return min(max(Fraction(value) / Fraction(scale), ZERO), Fraction(1))",
        "return max(Fraction(value) / Fraction(scale), ZERO)",
    ),
    Fault(
        "values above full use are clamped in the mean only",
        f"{PACKAGE}/sources/prometheus/devices.py",
        "is_implausible = row.has_implausible_peak or not is_amount(row.sample_sum) or row.sample_sum < 0",
        "is_implausible = not is_amount(row.sample_sum) or row.sample_sum < 0",
    ),
    Fault("each pod is credited with all use of a shared device", f"{PACKAGE}/core/metering/utilization.py", "used_ms * sharing.replicas[index] / shared.replicas", "used_ms"),
    Fault("a pod is credited with more than it holds", f"{PACKAGE}/core/metering/utilization.py", "credited += min(part, allocated_then)", "credited += part"),
    Fault("pods without label on a shared GPU are ignored", f"{PACKAGE}/core/metering/device_assignment.py", "if not is_shared_resource(holding) or holding.node.devices != 1:", "if True:"),
    Fault(
        "labels count even if their pod does not run",
        f"{PACKAGE}/core/metering/utilization.py",
        "use = device.use_during(holding.running, pods=pods)",
        "use = device.use_during(self._window, pods=pods)",
    ),
    Fault(
        "unobserved use counts as the mean",
        f"{PACKAGE}/core/metering/utilization.py",
        "return running.length if is_complete else observed_ms",
        "return running.length if observed_ms else 0",
    ),
    Fault("a percentage is read as a ratio", f"{PACKAGE}/core/metering/signals.py", 'Signal("DCGM_FI_DEV_GPU_UTIL", "device", _PERCENT', 'Signal("DCGM_FI_DEV_GPU_UTIL", "device", _RATIO'),
    Fault("a ratio is divided by 100", f"{PACKAGE}/core/metering/signals.py", '"DCGM_FI_PROF_GR_ENGINE_ACTIVE",\n            "graphics engine",\n            _RATIO', '"DCGM_FI_PROF_GR_ENGINE_ACTIVE",\n            "graphics engine",\n            _PERCENT'),
    Fault("the names of exporter 4.9 are unknown", f"{PACKAGE}/core/metering/signals.py", '"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"', '"DCGM_FI_PROF_GR_ENGINE_RATIO"'),
    Fault("one scrape interval is used for the whole hour", f"{PACKAGE}/core/intervals.py", "return self._intervals[min(max(index, 0), len(self._intervals) - 1)]", "return max(self._intervals)"),
    Fault("a gap ends pods with samples on both sides", f"{PACKAGE}/core/metering/spans.py", "last = max(times[-1] for times in sample_times.values() if times)\n        return Span(IntervalMs(first", "last = min(first + 1_200_000, max(times[-1] for times in sample_times.values() if times))\n        return Span(IntervalMs(first"),
    Fault("the reported start time within a gap is ignored", f"{PACKAGE}/core/metering/spans.py", "start = pod.scheduled_at", "pass"),
    Fault("the reported completion time within a gap is ignored", f"{PACKAGE}/core/metering/spans.py", "end = pod.completed_at", "pass"),
    Fault("a GPU counts twice when it changes hands", f"{PACKAGE}/core/metering/holdings.py", "return _trim_handovers(holdings)", "return holdings"),
    Fault("a node's last state counts for its whole hour", f"{PACKAGE}/core/metering/holdings.py", "return span, lifecycle.state_during(span.time)", "return span, lifecycle.node"),
    Fault("owners of owners are not resolved", f"{PACKAGE}/sources/prometheus/owners.py", "return self._of_owners.get((namespace, *owner)) or owner", "return owner"),
    Fault("the owners of deleted pods are unknown", f"{PACKAGE}/sources/prometheus/reader.py", "pods.missing_owners(names).items()", "{}.items()"),
    Fault("a second instance of a source doubles requests", f"{PACKAGE}/sources/prometheus/pods.py", "pod.units[container] = _larger_request(pod.units.get(container), value)", "pod.units[container] = value + (pod.units.get(container) or 0)"),
    Fault("series of untrusted jobs are read", f"{PACKAGE}/sources/prometheus/queries.py", '",".join((*matchers, *of_cluster, *of_source, *of_shard))', '",".join((*matchers, *of_cluster, *of_shard))', SUSPECT_TESTS),
    Fault("a uid in two namespaces gets a line", f"{PACKAGE}/sources/prometheus/pods.py", "    if len(pod.reported_objects) == 1:", "    if True:", SUSPECT_TESTS),
    Fault("a request that exceeds the node gets a line", f"{PACKAGE}/core/metering/holdings.py", "if bounds and units > max(bounds):", "if False:", SUSPECT_TESTS),
    Fault("what a contradictory pod may hold counts as unallocated", f"{PACKAGE}/core/metering/capacity.py", "contested = min(disputed, physical - held)", "contested = ZERO", SUSPECT_TESTS),
    Fault("pods that held a node in succession get each other's samples", f"{PACKAGE}/core/metering/device_assignment.py", "if any(other is not holding and other.held.overlap(time_with_margin).length for other in neighbors):", "if False:", STANDALONE_POD_TESTS),
    Fault("a request that has a claim counts twice", f"{PACKAGE}/sources/prometheus/resource_claims.py", "if is_extended and (device.namespace, device.pod) in pods_with_requests:", "if False:", CLAIM_TESTS),
    Fault("claims of long pod names are not recognized as those of requests", f"{PACKAGE}/sources/prometheus/resource_claims.py", 'f"{pod}-extended-resources-"[:_MAX_NAME_BASE]', 'f"{pod}-extended-resources-"', CLAIM_TESTS),
    Fault("every pod of a shared claim holds the whole GPU", f"{PACKAGE}/core/metering/claims.py", "        for holder in holders if len(holders) > 1 else ():", "        for holder in ():", CLAIM_TESTS),
    Fault("a shared claim is divided by all pods of the hour, not by those of the time", f"{PACKAGE}/core/metering/claims.py", "count = sum(_claim_of(other) == _claim_of(holding) for other in present)", "count = sum(_claim_of(other) == _claim_of(holding) for other in others)", CLAIM_TESTS),
    Fault("claims of the same name in two namespaces are one", f"{PACKAGE}/core/metering/claims.py", "    return holding.pod.namespace, holding.pod.claimed_device", '    return "", holding.pod.claimed_device and holding.pod.claimed_device._replace(uuid="", name="")', CLAIM_TESTS),
    Fault("a pod's claimed devices are its lines", f"{PACKAGE}/core/metering/metering.py", "pods=tuple(merge_pieces(holdings))", "pods=tuple(holdings)", CLAIM_TESTS),
    Fault("free GPUs of a DRA driver are stranded", f"{PACKAGE}/core/metering/claims.py", "elif _pool(node) in pools and any(", "elif False and any(", CLAIM_TESTS),
    Fault("pods with claims have no owner", f"{PACKAGE}/sources/prometheus/queries.py", "and on (uid) {self._pods_with_gpus()}\"\n        return union(\n            {\n                NO_STATISTIC_LABEL: _owner", "and on (uid) {self._gpu_pods(_AT_END)}\"\n        return union(\n            {\n                NO_STATISTIC_LABEL: _owner", CLAIM_TESTS),
    Fault("pods with claims have no labels", f"{PACKAGE}/sources/prometheus/queries.py", 'f"({pods} and on (uid) {self._pods_with_gpus()})"', 'f"({pods} and on (uid) {self._gpu_pods(_AT_END)})"', CLAIM_TESTS),
    Fault("pods with claims that ended have no owner", f"{PACKAGE}/sources/prometheus/reader.py", "ended = ended_pods_with_claims(owners, pods.uids())", "ended = {}", CLAIM_TESTS),
    Fault("each pod of a shared claim is credited with all of its use", f"{PACKAGE}/core/metering/claims.py", '"sharing", count)', '"whole")', CLAIM_TESTS),
    Fault("the device's own series is added to those of its processes", f"{PACKAGE}/core/metering/process_use.py", 'total = max(observed.device_ms, sum(observed.pod_ms.values(), ZERO))', 'total = observed.device_ms + sum(observed.pod_ms.values(), ZERO)', PROCESS_TESTS),
    Fault('use of processes outside pods belongs to the pods', f"{PACKAGE}/core/metering/process_use.py", 'total = max(observed.device_ms, sum(observed.pod_ms.values(), ZERO))', 'total = sum(observed.pod_ms.values(), ZERO)', PROCESS_TESTS),
    Fault('processes that the exporter cannot see use nothing', f"{PACKAGE}/core/metering/process_use.py", 'return 2 * pods_ms >= values.device_ms if has_all_pods else pods_ms > 0', 'return True', PROCESS_TESTS),
    Fault('a pod whose uid the exporter does not know uses nothing', f"{PACKAGE}/core/metering/process_use.py", 'pods = {uid: utilization for (_, _, uid), utilization in by_label.items() if uid}', 'pods = {uid or name: utilization for (_, name, uid), utilization in by_label.items() if name}', PROCESS_TESTS),
    Fault('values per process are the use itself', f"{PACKAGE}/core/metering/process_use.py", '{uid: pod_ms / total for uid', '{uid: pod_ms / (used_ms or total) for uid', PROCESS_TESTS),
    Fault('a pod without value uses nothing of a shared GPU', f"{PACKAGE}/core/metering/utilization.py", 'left = 1 - sum(shares.by_uid.values(), ZERO)', 'left = ZERO', PROCESS_TESTS),
    Fault('pods without value get what the others used, too', f"{PACKAGE}/core/metering/utilization.py", 'left = 1 - sum(shares.by_uid.values(), ZERO)', 'left = Fraction(1)', PROCESS_TESTS),
    Fault('replicas are preferred to processes', f"{PACKAGE}/settings/__init__.py", 'Field(min_length=1)] = ("pod", "process", "shared")', 'Field(min_length=1)] = ("pod", "shared", "process")', PROCESS_TESTS),
    Fault("a line with a gap of its processes' values is as precise as one without", f"{PACKAGE}/core/metering/utilization.py", 'source = "shared"  # of a line', 'pass  # of a line', PROCESS_TESTS),
    Fault('time without value of a process is observed', f"{PACKAGE}/core/metering/utilization.py", 'if not self._prefers_processes:\n                return use', 'if not self._prefers_processes:\n                return _SharedUse(use.part_ms, whole.used_ms, whole.observed_ms, is_whole=True)', PROCESS_TESTS),
    Fault("a part of a GPU that no MIG partition fits is unallocated", f"{PACKAGE}/core/metering/mig_partitions.py", "return min(rest, _largest_sum(choices))", "return rest", PARTITION_TESTS),
    Fault("partitions lie anywhere in a GPU", f"{PACKAGE}/core/metering/mig_partitions.py", "        if taken.isdisjoint(placement.slices)", "        if True", PARTITION_TESTS),
    Fault("a whole GPU is stranded while it has a MIG partition", f"{PACKAGE}/core/metering/claims.py", "claimable + sum(shares, Fraction(0))", "sum(shares, Fraction(0))", PARTITION_TESTS),
    Fault("MIG partitions hold more than their GPU", f"{PACKAGE}/core/metering/claims.py", "return gpu / total if is_possible else Fraction(1)", "return Fraction(1)", PARTITION_TESTS),
    Fault("MIG partitions that contradict each other are scaled down to their GPU", f"{PACKAGE}/core/metering/claims.py", "return gpu / total if is_possible else Fraction(1)", "return gpu / total", PARTITION_TESTS),
    Fault("partitions that are not created for claims make room for others", f"{PACKAGE}/core/metering/claims.py", "                static.add(device.uuid)", "                pass", PARTITION_TESTS),
    Fault("partitions in ResourceSlices add up to more GPUs", f"{PACKAGE}/core/metering/claims.py", "            whole = {name for name in names | held_names if partition_of(name) is None}", "            whole = names | held_names", PARTITION_TESTS),
    Fault("devices count as offered before they are in ResourceSlices", f"{PACKAGE}/core/metering/claims.py", "for device in offered if device.time.contains(piece.start)}", "for device in offered}", PARTITION_TESTS),
    Fault("a claim that exporter and collector report counts twice", f"{PACKAGE}/sources/prometheus/resource_slices.py", "if not in_exporters.isdisjoint(", "if False and not in_exporters.isdisjoint(", PARTITION_TESTS),
    Fault("replicas of a collector of claims double the holdings", f"{PACKAGE}/sources/prometheus/resource_slices.py", "{labels.get(collector.uid, '')}/", "{scrape_target(labels)}/", PARTITION_TESTS),
    Fault("a claim's name is lost when its hour is restated", f"{PACKAGE}/storage/usage_documents.py", "        **_claims(usage.pods),\n", "", PARTITION_TESTS),
    Fault("a fraction counts by its cores only", f"{PACKAGE}/core/metering/gpu_fractions.py", "return min(_WHOLE, max(cores, memory))", "return min(_WHOLE, cores)", FRACTION_TESTS),
    Fault("the shares of pods on a GPU may exceed it", f"{PACKAGE}/core/metering/metering.py", "holdings = limit_to_gpus(holdings, gpus_of_pod)", "pass", FRACTION_TESTS),
    Fault("what HAMi advertises are GPUs", f"{PACKAGE}/core/metering/nodes.py", "has_vgpus or bool(profile)", "bool(profile)", FRACTION_TESTS),
    Fault("a vGPU without a request for memory has none", f"{PACKAGE}/core/metering/gpu_fractions.py", "units.get(MEMORY_PERCENTAGE) or Decimal(100)", "units.get(MEMORY_PERCENTAGE) or Decimal(0)", FRACTION_TESTS),
    Fault("HAMi's zero for containers without cores counts as use", f"{PACKAGE}/core/metering/container_use.py", "return with_gpus <= with_cores", "return True", FRACTION_TESTS),
    Fault("fractions of one GPU have equal parts of its use", f"{PACKAGE}/core/metering/utilization.py", " * (\n                holder.share.gpus_per_unit\n            )", "", FRACTION_TESTS),
    Fault("the names of HAMi 2.8 are unknown", f"{PACKAGE}/core/metering/signals.py", '"Device_utilization_desc_of_container"', '"Device_utilization"', FRACTION_TESTS),
    Fault("a reservation pod is charged along with its sharers", f"{PACKAGE}/core/metering/holdings.py", "if pod.reserved_group is not None:", "if False:", FRACTION_TESTS),
    Fault("reserved GPUs of unknown pods are unallocated", f"{PACKAGE}/core/metering/gpu_fractions.py", "        if not group:\n            yield reservation.node, DisputedHolding(reservation.time, gpus)\n            continue\n", "", FRACTION_TESTS),
    Fault("pods with fractions of several GPUs hold one", f"{PACKAGE}/sources/prometheus/gpu_reservations.py", "str(len(groups))", '"1"', FRACTION_TESTS),
    Fault("energy: copies of a GPU's counter are added up", f"{PACKAGE}/core/metering/energy.py", "Fraction(max(increases))", "Fraction(sum(increases))", ENERGY_TESTS),
    Fault("energy: a counter that started again is subtracted", f"{PACKAGE}/core/metering/energy.py", "later_joules - joules_then if later_joules >= joules_then else later_joules", "abs(later_joules - joules_then)", ENERGY_TESTS),
    Fault("energy: a pod gets the whole hour of its GPU", f"{PACKAGE}/core/metering/energy.py", "joules, measured_ms = energy.during(piece)", "joules, measured_ms = energy.during(time)", ENERGY_TESTS),
    Fault("energy: each sharer of a GPU gets all of it", f"{PACKAGE}/core/metering/energy.py", "joules * holder.gpus / held_gpus", "joules", ENERGY_TESTS),
    Fault("energy: an idle GPU is not attributed", f"{PACKAGE}/core/metering/energy.py", "        if not present:\n", "        if False:\n", ENERGY_TESTS),
    Fault("energy: a GPU of unknown pods is idle", f"{PACKAGE}/core/metering/energy.py", "if held_gpus < 1 and any(", "if False and any(", ENERGY_TESTS),
    Fault("energy: power lasts through a gap", f"{PACKAGE}/core/metering/energy.py", "end = next_time if 2 * (next_time - time) <= 5 * interval else time + interval", "end = next_time", ENERGY_TESTS),
    Fault("energy: millijoules are joules", f"{PACKAGE}/core/metering/energy.py", 'JOULES_PER_COUNT = Decimal("0.001")', 'JOULES_PER_COUNT = Decimal("1")', ENERGY_TESTS),
    Fault("energy: the sum of an hour counts for pods of a part of it", f"{PACKAGE}/sources/prometheus/energy.py", "if device.samples is not None", "if False", ENERGY_TESTS),
    Fault("energy: an increase hides that the counter started again", f"{PACKAGE}/sources/prometheus/queries.py", " unless resets({counter}[65m]) > 0)", ")", ENERGY_TESTS),
    Fault("energy: what was not measured is zero", f"{PACKAGE}/core/pricing/rating.py", "        if pod.energy_joules is None\n", "        if False\n", ENERGY_TESTS),
    Fault("energy: emissions leave out the data center", f"{PACKAGE}/core/pricing/emissions.py", "Fraction(factor * self.pue)", "Fraction(factor)", ENERGY_TESTS),
    Fault("doctor: a replaced exporter is a second one", "gpucost_cli/doctor/collection.py", "several &= _nodes_with_several_exporters(replace(facts, devices=before))", "pass", DOCTOR_TESTS),
    Fault("doctor: a pool whose exporter reports claims hides others", "gpucost_cli/doctor/checks/devices.py", "not node.capacity and _pool_of(facts, name) not in pools_with_claims", "not node.capacity and not pools_with_claims", DOCTOR_TESTS),
    Fault("doctor: a pod that waits has a claim that no exporter reports", "gpucost_cli/doctor/queries.py", "({self.select(CLAIM_INFO)} unless on ({on}) {idle})", "({self.select(CLAIM_INFO)})", DOCTOR_TESTS),
    Fault("doctor: the jobs of HAMi are not listed", "gpucost_cli/doctor/checks/jobs.py", "KUBE_DRA_EXPORTER.devices, *VGPU_METRIC_NAMES,", "KUBE_DRA_EXPORTER.devices,", ("tests/manifests/test_other_exporters.py",)),
    Fault("series of HAMi are selected by the job of another source", f"{PACKAGE}/sources/prometheus/metrics_sources.py", '("hami_container_", "hami_vgpu_monitor")', '("hami_container_", "hami_scheduler")', ("tests/manifests/test_other_exporters.py",)),
    Fault("use without a request is not reported", f"{PACKAGE}/core/metering/metering.py", "if used >= NOTEWORTHY_GPU_MS:", "if False:"),
)  # fmt: skip
