"""Writes a scenario as OpenMetrics: exactly the samples that Prometheus would have scraped."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from gpucost_devstack.fleet import (
    accelerator_exporters,
    claim_collector,
    dcgm_exporter,
    hami,
    inference_servers,
    karpenter,
    kube_state_metrics,
    neuron_monitor,
)
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scraping import Scraping
from gpucost_devstack.fleet.series import SimulatedSeries


def write(
    scenarios: Sequence[Scenario], base: datetime, path: Path, progress: Callable[[float], None] = lambda _: None
) -> None:
    """Write all samples of some clusters, distinguished by the label `cluster`.

    Args:
        scenarios: the clusters.
        base: the full UTC hour that minutes count from.
        path: the file.
        progress: receives the completed part, 0 to 1.
    """
    series_by_cluster: list[tuple[str, SimulatedSeries]] = []
    for done, scenario in enumerate(scenarios):
        series_by_cluster += [(scenario.name, cluster_series) for cluster_series in series(scenario)]
        progress((done + 1) / len(scenarios) / 2)
    write_series(series_by_cluster, base, path, lambda done: progress(0.5 + done / 2))


def write_series(
    labelled_series: Iterable[tuple[str, SimulatedSeries]],
    base: datetime,
    path: Path,
    progress: Callable[[float], None] = lambda _: None,
) -> None:
    """Write series, each with the name of its cluster."""
    zero = int(base.timestamp()) * 1000
    timestamps: dict[int, str] = {}  # most series are scraped at the same times
    families: dict[str, list[tuple[str, SimulatedSeries]]] = {}
    for cluster, metric_series in labelled_series:
        families.setdefault(metric_series.metric, []).append((cluster, metric_series))
    with path.open("w", encoding="utf-8") as file:
        for done, metric in enumerate(sorted(families)):
            file.write(f"# TYPE {metric} gauge\n")
            for cluster, metric_series in families[metric]:
                name = f"{metric}{{{_label_text({'cluster': cluster, **metric_series.labels})}}}"
                lines = []
                for at, value in metric_series.samples:
                    if at not in timestamps:
                        timestamps[at] = _seconds(zero + at)
                    shown = _sample_value(value, zero) if value[0] == "@" else value
                    lines.append(f"{name} {shown} {timestamps[at]}\n")
                file.write("".join(lines))
            progress((done + 1) / len(families))
        file.write("# EOF\n")


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """All series of a cluster."""
    yield from kube_state_metrics.series(scenario)
    yield from dcgm_exporter.series(scenario)
    yield from hami.series(scenario)
    yield from neuron_monitor.series(scenario)
    yield from accelerator_exporters.series(scenario)
    yield from karpenter.series(scenario)
    yield from claim_collector.series(scenario)
    yield from inference_servers.series(scenario)
    yield from inference_servers.load_series(scenario)
    yield from inference_servers.gateway_series(scenario)
    targets = [instance.scraping for instance in scenario.ksm]
    targets += [scraping for _, scraping in dcgm_exporter.targets(scenario)]
    targets += claim_collector.targets(scenario)
    targets += [scraping for _, scraping in hami.targets(scenario)]
    for target in targets:
        yield from _up(target, scenario)


def _up(target: Scraping, scenario: Scenario) -> Iterable[SimulatedSeries]:
    if target.up == "dropped":
        return
    times = target.times(scenario.start, scenario.end)
    if target.up == "absent in gaps":
        times = [at for at in times if target.succeeds(at)]
    yield SimulatedSeries("up", target.target_labels, [(at, "1" if target.succeeds(at) else "0") for at in times])


def _sample_value(text: str, base_ms: int) -> str:
    """A sample's value. `@seconds` is a time, counted from the base."""
    return str(base_ms // 1000 + int(text[1:])) if text.startswith("@") else text


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
