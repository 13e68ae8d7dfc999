"""Utilization signals: which are there, under which names, and whether their values are at the scale in use."""

from collections.abc import Iterable
from decimal import Decimal

from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, Status, first_few
from gpucost_cli.doctor.signals import Signal, families, usual_scale

_TOLERANCE_UNDER_MIG = Decimal(2)
"""Under MIG, profiling ratios were seen somewhat above 1 (NVIDIA/DCGM#152); percentages of a busy GPU are not."""
_TOLERANCE = Decimal("1.01")
_PERCENT = 100
_BEST_SIGNAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def available(context: CheckContext) -> Iterable[Check]:
    """The signal that settings name, under any of its names; what stands in for it; other families."""
    facts = context.facts
    best = context.ranks[0]
    wanted = next(signal for signal in best if signal.name == context.settings.utilization.signal)
    names = [signal for signal in best if facts.has(signal.name)]
    others = [signal for rank in context.ranks[1:] for signal in rank if facts.has(signal.name)]
    for signal in names:
        alias = f"read as {wanted.name}: the name that exporters {signal.exporter} give it"
        yield context.check("utilization signal", signal.name, "recommended", note=alias if signal != wanted else None)
    yield from _fallback_devices(context, wanted, {signal.name for signal in names})
    if not names:
        fault = _missing_signal(wanted, others) if facts.uses_gpus else None
        status: Status = "missing" if fault else "not needed"
        yield context.check("utilization signal", wanted.name, "recommended", fault, status=status, series=0)
    for family, signals in families().items():
        if family == wanted.family:
            continue
        found = [signal for signal in signals if facts.has(signal.name)]
        for signal in found:
            yield context.check(f"signal of the {family}", signal.name, "optional")
        if not found:
            yield context.check(f"signal of the {family}", signals[0].name, "optional", status="not needed", series=0)


def _fallback_devices(context: CheckContext, wanted: Signal, preferred: set[str]) -> Iterable[Check]:
    """Devices that tell a signal other than the preferred one, though some tell that."""
    facts = context.facts
    devices = [device for device in facts.gpu_devices if device.signal not in preferred]
    if preferred and devices:
        count, where = len({device.key for device in devices}), first_few(facts.node_of(device) for device in devices)
        fault = Fault(
            f"{count} devices of {where} have no {wanted.name}: {devices[0].signal} stands in for it",
            f"dcgm-exporter: {_counter(wanted.name, wanted.family)}, on every node",
        )
        yield context.check("signal of every device", devices[0].signal, "recommended", fault)


def scales(context: CheckContext) -> Iterable[Check]:
    """Values that do not fit the scale that settings or the catalogue give them."""
    facts = context.facts
    sliced = any(sharing.is_sliced(facts, node) for node in facts.gpu_nodes.values())
    used = {device.signal for device in facts.devices}
    for rank in context.ranks:
        for signal in rank:
            highest = facts.max_values.get(signal.name)
            if highest is None or signal.name not in used:
                continue
            above = signal.scale * (_TOLERANCE_UNDER_MIG if sliced and signal.works_under_mig else _TOLERANCE)
            told = f"values of {signal.name} reach {highest:f} at a scale of {signal.scale:f}"
            fault = None
            if highest > above:
                fault = Fault(f"{told}: use is overstated", _scale_line(signal, 100 if highest <= _PERCENT else None))
            elif signal.scale > 1 and (0 < highest < 1 or (highest == 1 and usual_scale(signal) == 1)):
                fault = Fault(f"{told}: a ratio, so that use is understated", _scale_line(signal, 1))
            # Of a percentage that reaches 1, nothing tells whether it is a busy ratio or an idle hour.
            unsure = f"{told}: all but idle, or a ratio" if signal.scale > 1 and highest == 1 else None
            yield context.check(f"scale of {signal.name}", signal.name, "required", fault, note=unsure)


def under_mig(context: CheckContext) -> Iterable[Check]:
    """A signal that says nothing of MIG slices, where there are some."""
    facts = context.facts
    sliced = [node.name for node in facts.gpu_nodes.values() if sharing.is_sliced(facts, node)]
    usable = [signal for rank in context.ranks for signal in rank if facts.has(signal.name)]
    if not sliced or not usable:
        return
    fault = None
    if not any(signal.works_under_mig for signal in usable):
        fault = Fault(
            f"{usable[0].name} is not measured of MIG slices, and {len(sliced)} nodes have some",
            f"settings: utilization: {{signal: {_BEST_SIGNAL}}}; dcgm-exporter: {_counter(_BEST_SIGNAL, 'graphics engine')}",
        )
    yield context.check("signal under MIG", usable[0].name, "recommended", fault)


def _missing_signal(wanted: Signal, others: list[Signal]) -> Fault:
    """The signal that settings name has no series."""
    change = f"dcgm-exporter: {_counter(wanted.name, wanted.family)}"
    if not others:
        install = "helm install dcgm-exporter gpu-helm-charts/dcgm-exporter"
        return Fault(
            f"{wanted.name} has no series, nor has any other signal: no GPU's use is measured",
            f"{change}; where it is not installed: {install}",
        )
    rough = "; it overstates, since it tells only that anything ran at all" if others[0].family == "device" else ""
    return Fault(f"{wanted.name} has no series: {others[0].name} stands in for it{rough}", change)


def _counter(name: str, what: str) -> str:
    return f"counters (-f, or Helm's customMetrics): {name}, gauge, {what}"


def _scale_line(signal: Signal, scale: int | None) -> str:
    if scale is None:
        return f"Prometheus: a rule or relabelling changes {signal.name}; take the exporter's own values"
    return f"settings: utilization: {{signal: {signal.name}, scale: {scale}}}"
