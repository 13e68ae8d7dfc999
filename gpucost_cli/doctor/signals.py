"""Which utilization signals attribution would read: the one place that asks the catalogue.

Everything here in `doctor` knows signals by these records only, so that a change of the catalogue ends here.
"""

from collections.abc import Sequence
from decimal import Decimal

from gpucost.core.metering.signals import NEURON, SIGNALS, Signal, signals_by_preference

__all__ = ["NEURON", "Signal", "all_names", "families", "ranked", "usual_scale"]


def ranked(signal: str, scale: Decimal | None) -> Sequence[Sequence[Signal]]:
    """Signals that attribution asks for, best rank first: the settings' own under all its names, then stand-ins."""
    return signals_by_preference(signal, scale)


def usual_scale(signal: Signal) -> Decimal:
    """What the exporter's value at full use is, whatever the settings say."""
    return SIGNALS[signal.name].scale


def families() -> dict[str, list[Signal]]:
    """Every known signal, by what it measures; the names of one family are one quantity in several exporters."""
    found: dict[str, list[Signal]] = {}
    for signal in SIGNALS.values():
        found.setdefault(signal.family, []).append(signal)
    return found


def all_names() -> tuple[str, ...]:
    """Every metric that may tell of use."""
    return (*SIGNALS, NEURON.name)
