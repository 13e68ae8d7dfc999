"""Faults for vendors, drivers and signals: what metering and `gpucost doctor` did before they knew each."""

from tests.faults.planted import PACKAGE, Fault

STUCK_TESTS = (
    "tests/core/test_stuck_signals.py",
    "tests/system/test_metering_devices.py",
    "tests/system/test_economy.py",
)
LACKING_TESTS = ("tests/system/test_lacking_exporters.py",)
VERSION_TESTS = ("tests/sources/test_exporter_versions.py",)
CORE_TESTS = ("tests/core/test_accelerators.py", "tests/authoring/test_hardware.py")
RULES_TESTS = ("tests/dashboards/test_rules.py", "-k", "cores or shares")
HYPERPOD_TESTS = ("tests/core/test_hyperpod.py",)
PRICE_TESTS = ("tests/sources/test_price_fetchers.py", "tests/sources/test_bill_statements.py")

METERING = f"{PACKAGE}/core/metering"
READER = f"{PACKAGE}/sources/prometheus"
CHECKS = "gpucost_cli/doctor/checks"

VENDOR_FAULTS = tuple(
    Fault(f"vendors: {mistake}", file, original, faulty, tests)
    for mistake, file, original, faulty, tests in (
        ("a signal that is stuck at 0 is believed", f"{READER}/witnesses.py", "        if not at_zero:\n", "        if True:\n", STUCK_TESTS),
        ("any use of another signal contradicts a 0", f"{METERING}/stuck_signals.py", "MIN_WITNESSED_USE = Fraction(1, 10)", "MIN_WITNESSED_USE = Fraction(1, 100)", STUCK_TESTS),
        ("only much use of another signal contradicts a 0", f"{METERING}/stuck_signals.py", "MIN_WITNESSED_USE = Fraction(1, 10)", "MIN_WITNESSED_USE = Fraction(1, 5)", STUCK_TESTS),
        ("any further power contradicts a 0", f"{METERING}/stuck_signals.py", "MIN_POWER_RATIO = 2", "MIN_POWER_RATIO = 1", STUCK_TESTS),
        ("only three times the power contradicts a 0", f"{METERING}/stuck_signals.py", "MIN_POWER_RATIO = 2", "MIN_POWER_RATIO = 3", STUCK_TESTS),
        ("power is compared with the hour before", f"{READER}/witnesses.py", "HOURS_OF_DAY = 24", "HOURS_OF_DAY = 2", STUCK_TESTS),
        ("energy is no witness", f"{READER}/queries.py", 'statistics[f"{POWER} {name}"] = f"rate({counter}{_HOUR_RANGE}) * {joules}"', "pass", STUCK_TESTS),
        ("a 0 is doubted although another held GPU of the node is in use", f"{METERING}/stuck_signals.py", "                held_in_use.add(of_vendor)\n", "                pass\n", STUCK_TESTS),
        ("idle nodes without pods are doubted", f"{METERING}/stuck_signals.py", "nodes.intersection(pod.node for pod in pods) if nodes else nodes", "nodes", STUCK_TESTS),
        ("devices of other vendors have no witness", f"{READER}/witnesses.py", "accelerator = accelerator_of_power(metric)", "accelerator = None", STUCK_TESTS),
        ("witnesses of all nodes are read", f"{READER}/witnesses.py", "only = nodes if label and len(nodes) <= NAMES_PER_QUERY else []", "only: list[str] = []", STUCK_TESTS),
        ("settings do not let a witness measure", f"{READER}/witnesses.py", "if self._measures_contradicted and contradicted else ()", "if False else ()", STUCK_TESTS),
        ("a witness measures by default", f"{READER}/witnesses.py", "if self._measures_contradicted and contradicted else ()", "if contradicted else ()", STUCK_TESTS),
        ("use that a witness contradicts is waste", f"{METERING}/metering.py", "device.is_contradicted = device.key[:2] in observation.contradicted_gpus", "device.is_contradicted = False", STUCK_TESTS),
        ("doctor does not doubt a 0", "gpucost_cli/doctor/collection.py", "if at_zero := _held_gpus_at_zero(facts, NVIDIA, {signal.name for signal in self._ranks[0]}):", "if at_zero := ():", LACKING_TESTS),
        ("doctor does not doubt a 0 of other vendors", "gpucost_cli/doctor/collection.py", "if accelerator.power_metrics and (at_zero", "if False and (at_zero", LACKING_TESTS),
        ("doctor doubts a 0 next to a GPU in use", "gpucost_cli/doctor/collection.py", "        if all(device.is_zero for device in held):\n            uuids |= {device.uuid for device in held}", "        uuids |= {device.uuid for device in held if device.is_zero}", LACKING_TESTS),
        ("doctor does not look for Services of Neuron's exporters", "gpucost_cli/doctor/collection.py", "for name in held | facts.gpu_nodes.keys()):", "for name in facts.gpu_nodes.keys()):", LACKING_TESTS),
        ("the signal is that of the node", f"{READER}/devices.py", "without = nodes.with_missing_gpus(gpus_by_node)", "without = nodes.with_missing_gpus(gpus_by_node) - gpus_by_node.keys()", STUCK_TESTS),
        ("the new name of energy is not read", f"{METERING}/energy.py", ', SUCCESSORS[ENERGY_COUNTER]: Decimal(1)}', "}", VERSION_TESTS),
        ("joules are read as millijoules", f"{METERING}/energy.py", 'SUCCESSORS[ENERGY_COUNTER]: Decimal(1)}', 'SUCCESSORS[ENERGY_COUNTER]: Decimal("0.001")}', VERSION_TESTS),
        ("the new name of memory is not read", f"{PACKAGE}/features/recommendations/sources/gpu_memory.py", ", SUCCESSORS[_FRAMEBUFFER_USED]: 1}", "}", VERSION_TESTS),
        ("bytes are read as MiB", f"{PACKAGE}/features/recommendations/sources/gpu_memory.py", "SUCCESSORS[_FRAMEBUFFER_USED]: 1}", "SUCCESSORS[_FRAMEBUFFER_USED]: _MIB}", VERSION_TESTS),
        ("the new name of utilization is not read", f"{METERING}/signals.py", 'Signal("DCGM_FI_DEV_GPU_UTIL_RATIO", "device", _RATIO, works_under_mig=False, exporter_versions="4.9+"),', "", VERSION_TESTS),
        ("the catalog overrules the cores that a node advertises", f"{METERING}/gpu_shares.py", "if devices and cores and cores % devices == 0:", "if devices and cores and not NEURON_OF_INSTANCE.get(self.instance_type):", CORE_TESTS),
        ("cores are physical by default", f"{METERING}/instance_types.py", '{"Trainium2": 2}', "{}", CORE_TESTS),
        ("the catalog overrules the partitions that a node advertises", f"{METERING}/gpu_shares.py", "if self.devices and units and len(self.capacity) == 1 and units % self.devices == 0:", "if self.devices and units and not partitions_per_gpu(partition, self.gpu_model):", CORE_TESTS),
        ("rules read how many cores a type has", "gpucost_cli/rules/shares.py", 'yield f"clamp_max(1 / ({cores} / on (node) group_left () {of_node}), 1)"', 'yield f"{cores} * 0 + 0.125"', RULES_TESTS),
        ("pods without labels have no note", f"{METERING}/utilization.py", "if is_never_measured or ((node, vendor) in reported and node not in labeled):", "if False:", LACKING_TESTS),
        ("doctor does not look for labels of Neuron pods", f"{CHECKS}/accelerators.py", "        yield from _check_pods(context, accelerator, signal, devices)\n        return\n", "        return\n", LACKING_TESTS),
        ("doctor misses labels of pods that are alone", f"{CHECKS}/accelerators.py", "if pods_by_node[holder.node] > 1]", "]", LACKING_TESTS),
        ("the driver of Neuron is not known", f"{METERING}/accelerators.py", '    dra_driver="neuron.aws.com",\n', "", LACKING_TESTS),
        ("a Neuron node without capacity has no claims", f"{READER}/resource_claims.py", "(INSTANCE_TYPE_LABEL.value_in(node.labels) or node.unlabeled.instance_type) in NEURON_OF_INSTANCE", "False", LACKING_TESTS),
        ("claims on Neuron nodes are blamed on dcgm-exporter", f"{READER}/resource_claims.py", "change=CHANGE_FOR_NEURON if NEURON.vendor in vendors and NVIDIA not in vendors else _CHANGE_FOR_NVIDIA,", "change=_CHANGE_FOR_NVIDIA,", LACKING_TESTS),
        ("unknown drivers have no note", f"{READER}/resource_claims.py", "        hour.unexplained_claims += collected.unknown_drivers() if collected else []\n", "", LACKING_TESTS),
        ("GPUs that an exporter hides are stranded", f"{METERING}/claims.py", "count = max(reported, node.devices or most[_pool(node)])", "count = reported", LACKING_TESTS),
        ("GPUs that an exporter hides have no note", f"{METERING}/claims.py", "if count > reported:", "if False:", LACKING_TESTS),
        ("doctor blames hidden GPUs of claims on a flag", f"{CHECKS}/devices.py", "has_claims = has_claims or (not node.capacity and any(device.claim for device in devices))", "pass", LACKING_TESTS),
        ("types of SageMaker have no hardware", f"{METERING}/instance_types.py", 'return types | {f"{SAGEMAKER_PREFIX}{name}": hardware for name, hardware in types.items()}', "return types", HYPERPOD_TESTS),
        ("instance groups are no node pools", f"{METERING}/kubernetes_labels.py", ', "sagemaker.amazonaws.com/instance-group-name"', "", HYPERPOD_TESTS),
        ("the instance id of HyperPod is not read", f"{METERING}/instance_types.py", 'return f"i-{name.rpartition(\'-i-\')[2]}" if name.startswith("hyperpod-") and "-i-" in name else name', "return name", HYPERPOD_TESTS),
        ("a type of SageMaker has the price of EC2", f"{PACKAGE}/core/pricing/prices.py", '"instance_type": node.instance_type,', '"instance_type": node.instance_type.removeprefix("ml."),', HYPERPOD_TESTS),
        ("the mean rate of SageMaker's bill is not used", f"{PACKAGE}/core/pricing/node_costs.py", "rate = self._sagemaker_rate(facts) if billed is None else None", "rate = None", HYPERPOD_TESTS),
        ("prices of SageMaker are read as EC2's", f"{PACKAGE}/sources/aws_prices/on_demand.py", '_SAGEMAKER_OFFERS = _Offers("AmazonSageMaker", {"component": "Cluster"}, "-Cluster")', '_SAGEMAKER_OFFERS = _ec2_offers("linux", "Shared")', PRICE_TESTS),
        ("the bill's rows of SageMaker are left out", f"{PACKAGE}/sources/bill/statements/cur2.sql", "line_item_product_code = 'AmazonSageMaker'\n        AND", "line_item_product_code = 'AmazonEC2'\n        AND", PRICE_TESTS),
        ("doctor does not look for prices", f"{CHECKS}/__init__.py", "    prices.check_prices,\n", "", ("tests/system/test_doctor_prices.py",)),
        ("a Service of exporters is not noticed", f"{READER}/devices.py", "        hour.device_notes += _notes_on_services(table)\n", "", LACKING_TESTS),
        ("a Service of shards of kube-state-metrics is not noticed", f"{READER}/nodes.py", "if take_turns([*of_nodes]))", "if False)", LACKING_TESTS),
        ("a target with two nodes at once is a Service", f"{READER}/tables.py", "if len(times) == 1 or sum(map(len, times)) != len(set[int]().union(*times)):", "if len(times) == 1:", LACKING_TESTS),
        ("doctor advises to install an exporter that a Service hides", f"{CHECKS}/devices.py", "if any(device.target in facts.nodes_in_turn for device in facts.gpu_devices):", "if False:", LACKING_TESTS),
        ("doctor does not notice Services", f"{CHECKS}/__init__.py", "    devices.check_targets_in_turn,\n", "", LACKING_TESTS),
    )
)  # fmt: skip
