"""Plants faults in a copy of the layer, one at a time. The golden answers must detect each.

    python -m tests.golden.faults [NUMBER ...]

They name text of the code as it was recorded. When code moves, a fault whose text is gone says so: update it, or drop
it once `make faults` and `make mutate` cover it.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.golden import adapter, recording
from tests.golden.compare import Difference


class Fault(NamedTuple):
    """A fault: a text in a file of `layers/common/gpucost`, and its replacement."""

    title: str
    scenario: str
    file: str
    right: str
    wrong: str


FAULTS = (
    Fault("a MIG slice's share is that of its compute alone", "fleet", "core/metering/gpu_models.py",
          'return max(Fraction(int(match["compute"]), gpu.compute_slices), Fraction(memory, gpu.memory_slices))',
          'return Fraction(int(match["compute"]), gpu.compute_slices)'),
    Fault("a node that no pod is on is dropped", "fleet", "core/pricing/rating.py",
          "        prices.append(price)\n        lines, capacity",
          "        if not pods:\n            continue\n        prices.append(price)\n        lines, capacity"),
    Fault("money of a line is rounded to cents", "demo", "core/pricing/rating.py",
          "    (effective_hours, _, unmeasured_hours), (",
          "    usd = round(usd, -10)\n    (effective_hours, _, unmeasured_hours), ("),
    Fault("waste and unmeasured are swapped", "fleet", "core/pricing/rating.py",
          "[pod.effective_gpu_ms, pod.waste_gpu_ms, pod.unmeasured_gpu_ms]",
          "[pod.effective_gpu_ms, pod.unmeasured_gpu_ms, pod.waste_gpu_ms]"),
    Fault("a price that changed in the past is forgotten", "prices", "pipeline/reprice.py",
          "        for change in changes:\n", "        for change in changes[1:]:\n"),
    Fault("a closed month begins an hour late", "prices", "core/hours.py",
          "start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)\n    return start, ",
          "start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)\n    return start - HOUR, -HOUR + "),
    Fault("a business unit moves an hour late", "prices", "core/attribution.py",
          "if unit.since is None or unit.since <= hour]", "if unit.since is None or unit.since < hour]"),
    Fault("a spot price counts from its end", "prices", "sources/aws_prices/spot.py",
          "for (start, amount), (end, _) in pairwise(", "for (start, _), (end, amount) in pairwise("),
    Fault("idle cost that is shared evenly is shared by allocation", "demo", "core/query/idle.py",
          "if group_by_holder is not None:", "if group_by_holder == {}:"),
    Fault("an alert ends an hour late", "demo", "features/alerting/state_machine.py",
          "elif clear_run >= max(1, policy.keep_firing_hours):",
          "elif clear_run > max(1, policy.keep_firing_hours):"),
    Fault("a viewer is an admin", "demo", "core/access.py",
          'return Scope(None, is_admin="admin" in distinct_roles)', "return Scope(None, is_admin=True)"),
    Fault("an exported remainder has no cost", "demo", "features/exports/focus.py",
          "cost = amount if node.price_source else None", "cost = None"),
    Fault("OpenCost's efficiency is of all time, observed or not", "demo", "features/opencost/routes.py",
          "efficiency = quantize(Fraction(costs.effective_gpu_hours, measured)) if measured > 0 else None",
          "efficiency = quantize(Fraction(costs.effective_gpu_hours, measured) / 2) if measured > 0 else None"),
    Fault("recommendations leave the busiest hour at 60%", "months", "features/recommendations/rules/rightsizing.py",
          "LOW, TARGET, HIGH = 0.30, 0.70, 0.90", "LOW, TARGET, HIGH = 0.30, 0.60, 0.90"),
    Fault("a budget is projected on the hours that passed", "months", "core/run_rate.py",
          "total += quantize(_DECIMAL_CONTEXT.divide(spent * period_hours, Decimal(hours_with_data)))",
          "total += quantize(_DECIMAL_CONTEXT.divide(spent * period_hours, Decimal(hours_so_far)))"),
    Fault("a week's row begins on Sunday", "months", "core/query/periods.py",
          "return day - day.weekday() * DAY\n    return day.replace", "return day - (day.weekday() + 1) % 7 * DAY\n    return day.replace"),
)  # fmt: skip


def main() -> int:
    """Plant each fault. Exit status 1 if one is not detected."""
    chosen = [FAULTS[int(number) - 1] for number in sys.argv[1:]] or list(FAULTS)
    missed = 0
    with adapter.running_dynamodb() as dynamodb:
        for fault in chosen:
            changes = noticed(fault, dynamodb)
            missed += not changes
            first = f": {changes[0].path}: {changes[0].expected!s:.60} → {changes[0].actual!s:.60}" if changes else ""
            result = f"noticed, {len(changes)} differences{first}" if changes else "NOT NOTICED"
            print(f"{FAULTS.index(fault) + 1:2} {fault.title} [{fault.scenario}]: {result}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults noticed")
    return int(missed > 0)


def noticed(fault: Fault, dynamodb: str) -> list[Difference]:
    """The differences that a fault causes."""
    with tempfile.TemporaryDirectory(prefix="gpucost-golden-fault-") as folder:
        root = Path(folder)
        for entry in adapter.REPOSITORY.iterdir():
            if entry.name not in {"layers", ".git"}:
                (root / entry.name).symlink_to(entry)
        layer = root / "layers" / "common"
        shutil.copytree(adapter.REPOSITORY / "layers" / "common", layer, ignore=shutil.ignore_patterns("__pycache__"))
        path = layer / "gpucost" / fault.file
        text = path.read_text(encoding="utf-8")
        if text.count(fault.right) != 1:
            sys.exit(
                f"{fault.title}: {fault.file} holds the text to replace {text.count(fault.right)} times; update it"
            )
        path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
        return recording.check(fault.scenario, dynamodb, root=root)


if __name__ == "__main__":
    sys.exit(main())
