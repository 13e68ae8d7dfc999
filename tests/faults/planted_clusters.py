"""Faults for what real clusters say and no catalog has: what metering did before each thing was understood or named."""

from tests.faults.planted import PACKAGE, Fault

METERING = f"{PACKAGE}/core/metering"
READER = f"{PACKAGE}/sources/prometheus"
CHECKS = "gpucost_cli/doctor/checks"

UNLABELED_TESTS = ("tests/core/test_unlabeled_gpus.py",)
CLAIM_TESTS = ("tests/core/test_claims.py", "tests/system/test_unknown_claims.py")
RECORDED_TESTS = ("tests/recorded_hour/test_incomplete_collection.py",)
PHASE_TESTS = ("tests/system/test_missing_phases.py",)
LIVE_TESTS = ("tests/recorded_hour/test_live_figures.py",)
RESOURCE_TESTS = ("tests/system/test_unknown_resources.py",)
LABEL_TESTS = ("tests/sources/test_cluster_labels.py", *RESOURCE_TESTS)
DOCTOR_TESTS = ("tests/system/test_doctor.py", "-k", "cluster")
PROPERTIES = ("tests/core/test_unexplained.py",)
FINDING_TESTS = ("tests/gpucost_cli/test_doctor_findings.py",)
PAIR_TESTS = ("tests/recorded_hour/test_pairs.py", "-m", "not nightly")
CAUSE_TESTS = ("tests/recorded_hour/test_doctor_causes.py",)
RANDOM_TESTS = ("tests/system/test_unknown_at_random.py",)

CLUSTER_FAULTS = tuple(
    Fault(f"clusters: {mistake}", file, original, faulty, tests)
    for mistake, file, original, faulty, tests in (
        ("a shared GPU without labels of nodes is a whole GPU for each pod", f"{METERING}/nodes.py", "    return reported, is_complete and is_healthy and units % reported == 0", "    return reported, False", UNLABELED_TESTS),
        ("shared GPUs without labels of nodes have no note", f"{METERING}/metering.py", "                *unlabeled_gpus_notes(lifecycle for of_name in lifecycles.values() for lifecycle in of_name),\n", "", UNLABELED_TESTS),
        ("GPUs are stranded whose claims no metric explains", f"{READER}/resource_claims.py", "        hour.unexplained_claims = unreported_claims(claims, hour.claiming, vendors)\n", "        hour.unexplained_claims = []\n", CLAIM_TESTS),
        ("pods without phases hold GPUs after they completed", f"{READER}/pods.py", 'return bool(results["requests"]) and not (results["running"] or results.get("phases"))', "return False", PHASE_TESTS),
        ("missing phases have no note", f"{READER}/pods.py", "        return hour.pods.unknown_phases()\n", "        return ()\n", PHASE_TESTS),
        ("claims with admin access hold what they look at", f"{METERING}/claims.py", "        and pod.namespace in admin_namespaces\n", "        and not admin_namespaces\n", CLAIM_TESTS),
        ("claims for requests in a namespace of admins hold nothing", f"{METERING}/claims.py", "        and not is_claim_of_extended_resources(pod.claimed_device.claim, pod.pod)\n", "", CLAIM_TESTS),
        ("the label of admin access is read only with claims of kube-state-metrics", f"{READER}/resource_claims.py", "if hour.claiming and hour.admin_namespaces is None:", "if False:", CLAIM_TESTS),
        ("each of several claims holds the whole device", f"{METERING}/claims.py", "        if len(holders) > 1:\n            pieces |=", "        if len({holder.pod.claimed_device for holder in holders}) == 1 < len(holders):\n            pieces |=", CLAIM_TESTS),
        ("several claims on a device have no note", f"{METERING}/metering.py", "        *notes_on_claimed_devices(holdings, collects_admin_access=bool(admin_namespaces)),\n", "", RECORDED_TESTS),
        ("notes on several claims do not name the label", f"{METERING}/metering.py", "collects_admin_access=bool(admin_namespaces)", "collects_admin_access=True", RECORDED_TESTS),
        ("doctor does not see several claims on a device", f"{CHECKS}/__init__.py", "    devices.check_several_claims,\n", "", CLAIM_TESTS),
        ("rules count claims with admin access", "gpucost_cli/rules/recording.py", "{claims} unless on (namespace, pod) {looks} unless", "{claims} unless", LIVE_TESTS),
        ("rules do not know claims", "gpucost_cli/rules/recording.py", "(sum by ({POD_LABELS}, node) ({gpus}) or {claimed})", "sum by ({POD_LABELS}, node) ({gpus})", LIVE_TESTS),
        ("rules count a device for each of its claims", "gpucost_cli/rules/recording.py", 'return f"{held} / on ({DEVICE_LABELS}) group_left () count by ({DEVICE_LABELS}) ({held})"', "return held", LIVE_TESTS),
        ("doctor takes a node without GPU resources for one without capacity", f"{CHECKS}/nodes.py", "if node.reports_capacity}", "if node.capacity}", CLAIM_TESTS),
        ("unknown resources have no note", f"{READER}/nodes.py", '        return unknown_resources(hour.rows["nodes"], self._metrics.cluster)\n', "        return ()\n", RESOURCE_TESTS),
        ("doctor does not name unknown resources", f"{CHECKS}/__init__.py", "    unexplained.check_unexplained,\n", "", RESOURCE_TESTS),
        ("GPUs that an unknown resource may be are stranded", f"{METERING}/metering.py", "        node = node.with_unexplained_as_unobserved()\n", "        pass\n", RESOURCE_TESTS),
        ("units of the settings are not read", f"{READER}/queries.py", '    return "|".join([GPU_RESOURCES, *sorted(name for name, gpus in units.items() if gpus)])', "    return GPU_RESOURCES", RESOURCE_TESTS),
        ("resources that the settings call no GPUs are noted", f"{READER}/queries.py", "no_gpus = sorted(name for name, gpus in units.items() if not gpus)", "no_gpus = list[str]()", RESOURCE_TESTS),
        ("usual resources that are no GPUs are noted", f"{METERING}/resource_names.py", "|attachable_volumes|vpc_amazonaws_com|", "|attachable_volumes|", RESOURCE_TESTS),
        ("only the label cluster tells clusters apart", f"{READER}/cluster_labels.py", 'if "cluster" in name.lower() and', 'if name == "cluster" and', LABEL_TESTS),
        ("an unusual label that divides nodes has no note", f"{READER}/cluster_labels.py", "        for name, values in sorted(divided.items())\n", "        for name, values in ()\n", LABEL_TESTS),
        ("labels of targets divide clusters", f"{READER}/cluster_labels.py", "if not _OF_TARGETS.fullmatch(name) and sum", "if sum", LABEL_TESTS),
        ("nodes that another one's name hides are not counted", f"{READER}/cluster_labels.py", "        lost = sum(map(len, nodes_of_clusters)) - len(set().union(*nodes_of_clusters))\n", "        lost = 0\n", LABEL_TESTS),
        ("the GPU-hours of merged clusters are those of both nodes", f"{READER}/cluster_labels.py", "sum(hours) - max(hours)", "sum(hours)", LABEL_TESTS),
        ("doctor reads other labels of clusters than attribution", f"{CHECKS}/sources.py", "mixed = values_of_cluster_labels(context.facts.cluster_labels)", 'mixed = {name: sorted(values) for name, values in context.facts.cluster_labels.items() if name == "cluster" and len(values) > 1}', DOCTOR_TESTS),
        ("claims that hold no GPU are noted where a driver offers the GPUs", f"{METERING}/unexplained.py", "- {key for key in _gpu_nodes(silent) if key in explained}", "", CLAIM_TESTS),
        ("claims that hold no GPU are noted where nodes advertise all GPUs", f"{METERING}/unexplained.py", "    silent = [lifecycle for lifecycle in of_name if not lifecycle.states and _pool(lifecycle) not in advertising]\n", "    silent = of_name\n", CLAIM_TESTS),
        ("a node that is not ready is unobserved because of claims of others", f"{METERING}/unexplained.py", "if not lifecycle.states and _pool(lifecycle) not in advertising]", "if not lifecycle.states]", CLAIM_TESTS),
        ("nodes of one inferred type are of one pool", f"{METERING}/unexplained.py", "return bool(node.node_pool or (node.instance_type and not node.instance_type_source))", "return bool(node.node_pool or node.instance_type)", ("tests/core/test_unexplained.py",)),
        ("interfaces are devices of an unknown driver", f"{METERING}/accelerators.py", '    "(compute-domain[.]nvidia[.]com|dra[.]net|qat[.]intel[.]com|.*(efa|net|nic|rdma|sriov|dranet|cpu|memory).*)"', '    "(compute-domain[.]nvidia[.]com)"', ("tests/sources/test_resource_slices.py", "tests/system/test_lacking_exporters.py")),
        ("what is not understood loses its amount", f"{METERING}/unexplained.py", "amount = sum((unexplained.amount for unexplained in things), Decimal(0))", "amount = Decimal(len(things))", PROPERTIES),
        ("only the first thing that is not understood has a note", f"{METERING}/metering.py", "    notes = unexplained_notes(relevant)\n    explained", "    notes = unexplained_notes(relevant[:1])\n    explained", PROPERTIES),
        ("doctor names only some of what is not understood", f"{CHECKS}/unexplained.py", "        if not unexplained.node\n        or unexplained", "        if unexplained", PROPERTIES),
        ("doctor lists consequences as causes", "gpucost_cli/doctor/findings.py", "explained = next((roots[name] for name in check.explained_by if name in roots), None)", "explained = None", FINDING_TESTS),
        ("doctor forgets the cause of a cause", "gpucost_cli/doctor/findings.py", "roots.setdefault(check.name, line)", "roots.setdefault(check.name, check.change)", FINDING_TESTS),
        ("doctor ranks a cause below what follows from it", "gpucost_cli/doctor/findings.py", "checks = (self.cause, *self.same_change, *self.consequences)", "checks = (self.cause, *self.same_change)", FINDING_TESTS),
        ("doctor does not say that labels of nodes follow from their metric", f"{CHECKS}/model.py", "*([metric] if metric != name else [])", "*[]", CAUSE_TESTS),
        ("doctor needs no requests where a claim exists", f"{CHECKS}/allocation_metrics.py", "return labeled or _with_init_requests(context) or not", "return not", CAUSE_TESTS),
        ("doctor lets completed pods without phases hold GPUs", "gpucost_cli/doctor/collection.py", "has_phases=bool(series.get(PHASE) or not series.get(REQUESTS))", "has_phases=True", CAUSE_TESTS),
        ("doctor takes units under another name for GPUs", "gpucost_cli/doctor/collection.py", "            if holder.resource not in names_of_unknown", "            if True", RESOURCE_TESTS),
        ("doctor does not see gaps of scrapes", f"{CHECKS}/__init__.py", "    sources.check_scrape_gaps,\n", "", CAUSE_TESTS),
        ("doctor looks for unknown drivers only where claims are collected", "gpucost_cli/doctor/collection.py", "if facts.series.get(CLAIM_INFO) or facts.has_silent_nodes:", "if facts.series.get(CLAIM_INFO):", RANDOM_TESTS),
        ("unknown drivers of silent nodes have no note", f"{READER}/resource_claims.py", "if not claims and not silent_nodes:", "if not claims:", RANDOM_TESTS),
        ("doctor does not name labels that divide nodes", "gpucost_cli/doctor/collection.py", '                *multiple_clusters(labels for labels, _ in clusters if "node" in labels)[1],\n', "", RANDOM_TESTS),
        ("pods of which no metric says when they end hold GPUs on", f"{METERING}/metering.py", "    if observation.lacks_ends_of_pods:\n", "    if False:\n", PAIR_TESTS),
        ("pods that no exporter names hold GPUs without ends", f"{METERING}/holdings.py", "holding.pod.namespace, holding.pod.pod), _NEVER)", "holding.pod.namespace, holding.pod.pod), holding.held)", ("tests/system/test_missing_phases.py",)),
        ("used GPUs that no node advertises are stranded", f"{METERING}/metering.py", "    return nodes | nodes_in_use, notes\n", "    return nodes, notes\n", PAIR_TESTS),
        ("doctor does not see silent nodes without claims", f"{CHECKS}/devices.py", "        yield from _check_silent_nodes(context)\n", "", CAUSE_TESTS),
        ("doctor lets pods whose ends are unknown hold GPUs", "gpucost_cli/doctor/collection.py", "if not self._queries.has_phases and not series.get(COMPLETION):", "if False:", CAUSE_TESTS),
    )
)  # fmt: skip
