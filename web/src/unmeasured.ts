// Why GPU-hours of an hour have no utilization measurement, as far as its pods and its coverage show.

import type { HourRow, Line } from "./api";
import { percent } from "./format";

export interface Cause {
  cause: string;
  /** The doctor's check. */
  check: string;
  lines: Line[];
  gpuHours: number;
  /** Null if a price is missing. */
  usd: number | null;
}

const TINY = 1e-9;

/** The probable causes, most GPU-hours first. */
export function causesOf(lines: readonly Line[], hours: readonly HourRow[]): Cause[] {
  const coverage = new Map(hours.map((row) => [`${row.cluster} ${row.hour}`, row.coverage?.utilization ?? null]));
  const measuredNodes = new Set(lines.filter(isMeasured).map(nodeKey));
  const causes = new Map<string, Cause>();
  for (const line of lines) {
    if (line.unmeasured_gpu_hours <= TINY) continue;
    const scraped = coverage.get(`${line.cluster} ${line.hour}`) ?? 1;
    const { cause, check } = causeOf(line, scraped, measuredNodes.has(nodeKey(line)));
    const group = causes.get(cause) ?? { cause, check, lines: [], gpuHours: 0, usd: 0 };
    group.lines.push(line);
    group.gpuHours += line.unmeasured_gpu_hours;
    group.usd = group.usd === null || line.unmeasured_usd === null ? null : group.usd + line.unmeasured_usd;
    causes.set(cause, group);
  }
  return [...causes.values()].sort((left, right) => right.gpuHours - left.gpuHours);
}

function causeOf(line: Line, scraped: number, isNodeMeasured: boolean): Pick<Cause, "cause" | "check"> {
  const share = line.unmeasured_gpu_hours / line.allocated_gpu_hours;
  if (share <= 1 - scraped + 0.05)
    return {
      cause: `The GPU exporter of cluster ${line.cluster} was not scraped for ${percent(1 - scraped)} of the hour`,
      check: "GPU exporter now",
    };
  if (isMeasured(line))
    return { cause: "These pods were measured for a part of the hour only", check: "scrape interval" };
  if (!isNodeMeasured)
    return {
      cause: `No pod of node ${line.node} is measured: the GPU exporter does not run there, or does not map GPUs to pods`,
      check: "exporter on every node",
    };
  if (/\/mig-/.test(line.resource))
    return { cause: "The exporter's signal does not measure these MIG slices", check: "signal under MIG" };
  return {
    cause: `Other pods of node ${line.node} are measured, but no sample of the GPU exporter names these pods`,
    check: "pods of devices",
  };
}

const isMeasured = (line: Line) => line.allocated_gpu_hours - line.unmeasured_gpu_hours > TINY;
const nodeKey = (line: Line) => `${line.cluster} ${line.hour} ${line.node}`;
