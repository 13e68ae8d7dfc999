"""Checks of utilization signals: which ones have series, under which names, and whether their scales are right."""

from collections.abc import Iterable
from decimal import Decimal

from gpucost.core.metering.accelerators import accelerator_of_power
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Status, doctor_check, first_few
from gpucost_cli.doctor.signals import (
    ENERGY_COUNTER,
    ENERGY_COUNTERS,
    ENERGY_METRICS,
    Signal,
    all_signal_names,
    signals_by_family,
    usual_scale,
)

_RESET_OF_NVIDIA = (
    "dcgm-exporter: restart it, and end other tools that use DCGM's profiling counters; or settings: "
    "utilization: {on_contradiction: device}, to measure such GPUs by another signal"
)
_TOLERANCE_UNDER_MIG = Decimal(2)
"""Under MIG, profiling ratios can be somewhat above 1 (NVIDIA/DCGM#152), unlike percentages of a busy GPU."""
_TOLERANCE = Decimal("1.01")
_PERCENT = 100
_BEST_SIGNAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


@doctor_check(
    "the GPU exporter",
    """
utilization signal | the settings' signal has no series under any of its names (exporter 1.x, 2 to 4.8, 4.9); the finding names the signal that is used instead | the counter, in the exporter's CSV
signal of every device | some devices have only a fallback signal | the same counters on every node; a card without profiling counters keeps the fallback signal
""",  # noqa: E501 - one line for each row
    metrics=all_signal_names(),
)
def check_signals(context: CheckContext) -> Iterable[Check]:
    """Check the configured signal under all its names, its fallbacks, and signals of other families."""
    facts = context.facts
    preferred = context.ranks[0]
    configured = next(signal for signal in preferred if signal.name == context.settings.utilization.signal)
    with_series = [signal for signal in preferred if facts.has_series_of_any(signal.name)]
    fallbacks = [signal for rank in context.ranks[1:] for signal in rank if facts.has_series_of_any(signal.name)]
    for signal in with_series:
        alias = f"read as {configured.name}: the name in exporters {signal.exporter_versions}"
        note = alias if signal != configured else None
        yield context.check("utilization signal", signal.name, "recommended", note=note)
    yield from _fallback_devices(context, configured, {signal.name for signal in with_series})
    if not with_series:
        # A selector that matches no kube-state-metrics says nothing about GPUs, and its check has the finding.
        is_unknown = not facts.has_kube_state_metrics and not facts.labels_outside_selector
        may_have_gpus = facts.uses_gpus or is_unknown
        fault = _missing_signal(context, configured, fallbacks) if may_have_gpus else None
        status: Status = "missing" if fault else "not needed"
        yield context.check("utilization signal", configured.name, "recommended", fault, status=status, series=0)
    for family, signals in signals_by_family().items():
        if family == configured.family:
            continue
        available_signals = [signal for signal in signals if facts.has_series_of_any(signal.name)]
        for signal in available_signals:
            yield context.check(f"signal of the {family}", signal.name, "optional")
        if not available_signals:
            yield context.check(f"signal of the {family}", signals[0].name, "optional", status="not needed", series=0)


def _fallback_devices(context: CheckContext, configured: Signal, preferred: set[str]) -> Iterable[Check]:
    """Check for devices that have only a fallback signal, although others have the preferred one."""
    facts = context.facts
    devices = [device for device in facts.gpu_devices if device.signal not in preferred]
    if preferred and devices:
        count, nodes = len({device.key for device in devices}), {facts.node_of(device) for device in devices}
        finding = (
            f"{count} devices of {first_few(nodes)} have no {configured.name}: {devices[0].signal} is used instead"
        )
        change = f"dcgm-exporter: {_counter(configured.name, configured.family)}, on every node"
        if nodes <= {facts.node_of(device) for device in facts.gpu_devices if device.signal in preferred}:
            finding += "; other devices of the same node have it, so these cards may have no such counter"
            change = f"nothing for cards without it; else {change}"
        fault = Fault(finding, change)
        yield context.check("signal of every device", devices[0].signal, "recommended", fault)


@doctor_check(
    "the GPU exporter",
    """
scale of … (required) | values above the scale: utilization is overstated. A percentage that stays below 1 is a ratio: utilization is understated. One that reaches exactly 1 can be either, which is a note only | `utilization: {signal, scale}`
""",  # noqa: E501 - one line for each row
)
def check_signal_scales(context: CheckContext) -> Iterable[Check]:
    """Check whether the signals' values fit their scales."""
    facts = context.facts
    sliced = any(sharing.is_sliced(facts, node) for node in facts.gpu_nodes.values())
    used = {device.signal for device in facts.devices}
    for rank in context.ranks:
        for signal in rank:
            highest = facts.max_values.get(signal.name)
            if highest is None or signal.name not in used:
                continue
            above = signal.scale * (_TOLERANCE_UNDER_MIG if sliced and signal.works_under_mig else _TOLERANCE)
            observed = f"values of {signal.name} reach {highest:f} at a scale of {signal.scale:f}"
            fault = None
            if highest > above:
                scale = 100 if highest <= _PERCENT else None
                fault = Fault(f"{observed}: utilization is overstated", _scale_line(signal, scale))
            elif signal.scale > 1 and (0 < highest < 1 or (highest == 1 and usual_scale(signal) == 1)):
                fault = Fault(f"{observed}: it is a ratio, so utilization is understated", _scale_line(signal, 1))
            # A percentage with a maximum of 1 can be a ratio of a busy GPU or an almost idle hour.
            note = f"{observed}: almost idle, or a ratio" if signal.scale > 1 and highest == 1 else None
            yield context.check(f"scale of {signal.name}", signal.name, "required", fault, note=note)


@doctor_check(
    "the GPU exporter",
    """
signal of 0 | the signal of held GPUs is 0 all hour, although another signal or their power says that they are in use: they are [unmeasured](../explanation/cost-model.md#signals-that-are-stuck-at-0) | restart of the exporter, and no other tool that uses DCGM's profiling counters; for NVIDIA's GPUs also `utilization: {on_contradiction: device}`
""",  # noqa: E501 - one line for each row
)
def check_stuck_signals(context: CheckContext) -> Iterable[Check]:
    """Check whether another metric contradicts signals of 0 of GPUs that pods hold."""
    facts = context.facts
    by_witness: dict[str, dict[str, tuple[str, str]]] = {}
    for device in facts.devices:
        if witness := facts.contradictions.get(device.uuid):
            by_witness.setdefault(witness, {})[device.uuid] = facts.node_of(device), device.signal
    for witness, devices in sorted(by_witness.items()):
        nodes, signals = zip(*devices.values(), strict=True)
        accelerator = accelerator_of_power(witness)
        is_power = witness in ENERGY_METRICS or accelerator is not None
        says = "is at least twice that of their lowest hour of the day" if is_power else "says that they are in use"
        change = accelerator.reset if accelerator is not None else _RESET_OF_NVIDIA
        fault = Fault(
            f"{first_few(signals)} of {len(devices)} GPUs of {first_few(nodes)} is 0, although {witness} {says}: their "
            "use is unmeasured",
            change,
        )
        yield context.check("signal of 0", witness, "recommended", fault, series=len(devices))


@doctor_check(
    "the GPU exporter",
    """
signal under MIG | `DCGM_FI_DEV_GPU_UTIL` does not work for MIG slices | `DCGM_FI_PROF_GR_ENGINE_ACTIVE`
""",
)
def check_signals_under_mig(context: CheckContext) -> Iterable[Check]:
    """Check whether a signal works for MIG slices, if there are any."""
    facts = context.facts
    sliced = [node.name for node in facts.gpu_nodes.values() if sharing.is_sliced(facts, node)]
    usable = [signal for rank in context.ranks for signal in rank if facts.has_series_of_any(signal.name)]
    if not sliced or not usable:
        return
    fault = None
    if not any(signal.works_under_mig for signal in usable):
        fault = Fault(
            f"{usable[0].name} does not work for MIG slices, and {len(sliced)} nodes have some",
            f"settings: utilization: {{signal: {_BEST_SIGNAL}}}; "
            f"dcgm-exporter: {_counter(_BEST_SIGNAL, 'graphics engine')}",
            explained_by=["utilization signal"],
        )
    yield context.check("signal under MIG", usable[0].name, "recommended", fault)


@doctor_check(
    "the GPU exporter",
    """
energy (optional) | neither the energy nor the power of GPUs has series, so that [energy and emissions](../explanation/energy.md) are unknown. It is not needed for costs | `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION` in dcgm-exporter's counters
""",  # noqa: E501 - one line for each row
    metrics=ENERGY_METRICS,
)
def check_energy(context: CheckContext) -> Iterable[Check]:
    """Check whether the energy of GPUs is measured: by a counter, or by their power. It need not be."""
    facts = context.facts
    if not facts.gpu_devices:
        return
    metric = next((name for name in ENERGY_METRICS if facts.has_series_of_any(name)), None)
    if metric is None or not context.settings.energy.enabled:
        reason = (
            f"energy and emissions are unknown: add {ENERGY_COUNTER} to dcgm-exporter's counters to measure them"
            if context.settings.energy.enabled
            else "the settings turn energy off (energy.enabled: false)"
        )
        yield context.check("energy", ENERGY_COUNTER, "optional", note=reason, status="not needed", series=0)
        return
    note = None if metric in ENERGY_COUNTERS else "energy is computed from power, and unknown in gaps of its samples"
    yield context.check("energy", metric, "optional", note=note)


def _missing_signal(context: CheckContext, configured: Signal, fallbacks: list[Signal]) -> Fault:
    """The fault of a configured signal without series."""
    change = f"dcgm-exporter: {_counter(configured.name, configured.family)}"
    if not fallbacks:
        return Fault(
            f"{configured.name} and all other signals have no series: no GPU's utilization is measured",
            f"{change}; if it is not installed: {context.install_command('dcgm-exporter', 'gpu-operator')}",
        )
    overstates = fallbacks[0].family == "device"
    caveat = "; it overstates utilization, because it only shows that something ran" if overstates else ""
    return Fault(f"{configured.name} has no series: {fallbacks[0].name} is used instead{caveat}", change)


def _counter(name: str, description: str) -> str:
    return f"counters (-f, or Helm's customMetrics): {name}, gauge, {description}"


def _scale_line(signal: Signal, scale: int | None) -> str:
    if scale is None:
        return f"Prometheus: a rule or relabeling changes {signal.name}; use the exporter's own values"
    return f"settings: utilization: {{signal: {signal.name}, scale: {scale}}}"
