// Why GPU-hours of an hour have no utilization measurement, as far as its pods and its coverage show.

import type { CostRow, HourRow, Line } from "./api";
import { percent } from "./format";

export interface Cause {
  cluster: string;
  /** The hour of the largest part. */
  hour: string;
  cause: string;
  /** The nodes with these pods; a cause of a whole cluster names none. */
  nodes: string[];
  /** The doctor's check. */
  check: string;
  /** Whether it happened in this hour only, such as a gap of some minutes. */
  isOfHour: boolean;
  lines: Line[];
  gpuHours: number;
  /** Null if a price is missing. */
  usd: number | null;
}

const TINY = 1e-9;
/** A part of an hour that scrapes of 60 s do not show. */
const TOLERANCE = 0.05;

/** The probable causes, most GPU-hours first.
 *
 * `all` has the other pods of these hours as well. Without them, a filter would change the cause. */
export function causesOf(lines: readonly Line[], hours: readonly HourRow[], all: readonly Line[] = lines): Cause[] {
  const coverage = new Map(hours.map((row) => [`${row.cluster} ${row.hour}`, row.coverage?.utilization ?? null]));
  const podsOf = grouped(all, nodeKey);
  const withSamples = new Set<string>();
  for (const [pod, ...others] of podsOf.values())
    if (pod !== undefined && gapOfNode([pod, ...others]) === null) withSamples.add(hourKey(pod));
  const causes = new Map<string, Cause>();
  for (const line of lines) {
    if (line.unmeasured_gpu_hours <= TINY) continue;
    const scraped = coverage.get(hourKey(line)) ?? 1;
    const pods = podsOf.get(nodeKey(line)) ?? [line];
    const {
      cause,
      check,
      isOfCluster,
      isOfHour = false,
    } = causeOf(line, scraped, pods, !withSamples.has(hourKey(line)));
    const { cluster, hour, node } = line;
    const key = [cluster, cause, isOfHour ? hour : ""].join("\n");
    const group = causes.get(key) ?? {
      cluster,
      hour,
      cause,
      nodes: [],
      check,
      isOfHour,
      lines: [],
      gpuHours: 0,
      usd: 0,
    };
    if (!isOfCluster && !group.nodes.includes(node)) group.nodes.push(node);
    group.lines.push(line);
    group.gpuHours += line.unmeasured_gpu_hours;
    group.usd = group.usd === null || line.unmeasured_usd === null ? null : group.usd + line.unmeasured_usd;
    causes.set(key, group);
  }
  return [...causes.values()]
    .map((cause) => ({ ...cause, hour: largestHour(cause.lines), nodes: cause.nodes.sort() }))
    .sort((left, right) => right.gpuHours - left.gpuHours);
}

export interface Unmeasured {
  gpuHours: number;
  /** Null if a price is missing. */
  usd: number | null;
}

/** What a cause of an hour that was read adds up to in the whole period: what its workloads have without a measurement,
 * except for causes of a single hour, which have their own.
 *
 * `rows` are costs by cluster, business unit, namespace and workload; a workload without a row counts as in its hour. */
export function inPeriod(cause: Cause, causes: readonly Cause[], rows: readonly CostRow[]): Unmeasured {
  const { gpuHours, usd } = cause;
  if (cause.isOfHour) return { gpuHours, usd };
  return {
    gpuHours: totalInPeriod(cause, causes, rows, (row) => row.unmeasured_gpu_hours) ?? gpuHours,
    usd: totalInPeriod(cause, causes, rows, (row) => row.unmeasured_usd),
  };
}

/** A total of `inPeriod`; null if it is unknown of any of the cause's pods or workloads. */
function totalInPeriod(
  cause: Cause,
  causes: readonly Cause[],
  rows: readonly CostRow[],
  figureOf: (row: Line | CostRow) => number | null,
): number | null {
  const ofWorkloads = new Map(rows.map((row) => [workloadKey(row.group), figureOf(row)]));
  const ofHours = causes.filter(({ isOfHour }) => isOfHour).flatMap(({ lines }) => lines);
  const sum = (lines: readonly Line[]) => lines.reduce((sum, line) => sum + (figureOf(line) ?? 0), 0);
  let total = 0;
  for (const [key, lines] of grouped(cause.lines, workloadKey)) {
    const figure = ofWorkloads.has(key) ? ofWorkloads.get(key) : sum(lines);
    if (figure === null || figure === undefined || lines.some((line) => figureOf(line) === null)) return null;
    total += Math.max(sum(lines), figure - sum(ofHours.filter((line) => workloadKey(line) === key)));
  }
  return total;
}

/** Whether a pod held GPUs and did not run, for example because its image was being pulled: all of its cost is waste. */
export function didNotRun(line: Pick<Line, "utilization_source" | "unmeasured_gpu_hours">): boolean {
  return line.utilization_source === "none" && line.unmeasured_gpu_hours <= TINY;
}

/** The doctor's checks as questions. */
const QUESTIONS: Readonly<Record<string, string>> = {
  Prometheus: "Does Prometheus answer?",
  "kube-state-metrics now": "Does Prometheus scrape kube-state-metrics?",
  "scrape interval": "Are exporters scraped often enough?",
  "GPU exporter now": "Does Prometheus scrape the GPU exporter?",
  "exporter on every node": "Does an exporter run on every GPU node?",
  "signal under MIG": "Does the utilization metric work for MIG slices?",
  "pods of devices": "Do the exporter's samples name the pod that holds each GPU?",
  kube_node_labels: "Do nodes have the labels that prices depend on?",
};

/** What the doctor's checks, separated by commas, look at. */
export function questionOf(checks: string): string {
  return checks
    .split(", ")
    .map((check) => QUESTIONS[check] ?? check)
    .join(" ");
}

interface Kind {
  cause: string;
  check: string;
  isOfCluster?: boolean;
  /** It says something of one hour, such as its minutes. */
  isOfHour?: boolean;
}

function causeOf(line: Line, scraped: number, pods: readonly Line[], areAllSilent: boolean): Kind {
  const share = line.unmeasured_gpu_hours / line.allocated_gpu_hours;
  if (areAllSilent && share <= 1 - scraped + TOLERANCE)
    return {
      cause: `The GPU exporter was not scraped in the whole cluster for ${percent(1 - scraped)} of the hour`,
      check: "GPU exporter now",
      isOfCluster: true,
      isOfHour: true,
    };
  const isNodeMeasured = pods.some(isMeasured);
  const gap = gapOfNode(pods);
  if (isNodeMeasured && scraped < 1 && gap !== null && (isMeasured(line) || heldOf(line) <= gap + TOLERANCE))
    return {
      cause: `The GPU exporter gave no samples for ${Math.round(60 * gap)} of 60 minutes`,
      check: "exporter on every node",
      isOfHour: true,
    };
  if (isMeasured(line))
    return {
      cause: "The GPU exporter was scraped, and its samples name these pods for a part of the hour only",
      check: "scrape interval",
    };
  if (!isNodeMeasured)
    return {
      cause: "No pod is measured: the GPU exporter does not run there, or does not map GPUs to pods",
      check: "exporter on every node",
    };
  if (/\/mig-/.test(line.resource))
    return { cause: "The exporter's signal does not measure these MIG slices", check: "signal under MIG" };
  return {
    cause: "Other pods are measured, but no sample of the GPU exporter names these",
    check: "pods of devices",
  };
}

/** The hours in which a node had no samples, if one gap explains what its pods lack; otherwise null.
 *
 * A pod with all of its measurements is no contradiction if it could run outside the gap. */
function gapOfNode(pods: readonly Line[]): number | null {
  const measured = pods.filter(isMeasured);
  const compared = measured.length > 0 ? measured : pods;
  const gap = Math.max(...compared.map(gapOf));
  const isExplained = (pod: Line) =>
    Math.abs(gapOf(pod) - gap) <= TOLERANCE || heldOf(pod) - gapOf(pod) <= 1 - gap + TOLERANCE;
  return gap > TINY && compared.every(isExplained) ? gap : null;
}

/** Hours in which the pod held its GPUs. A row of a shared pod has only a part of its GPU-hours. */
const heldOf = (line: Line) =>
  line.shared_from ? 1 : Math.min(1, line.allocated_gpu_hours / (line.units * line.gpu_share));
/** Of these, the hours without a measurement. */
const gapOf = (line: Line) => (heldOf(line) * line.unmeasured_gpu_hours) / line.allocated_gpu_hours;

function largestHour(lines: readonly Line[]): string {
  const sums = new Map<string, number>();
  for (const { hour, unmeasured_gpu_hours: gpuHours } of lines) sums.set(hour, (sums.get(hour) ?? 0) + gpuHours);
  return [...sums].reduce((first, second) => (second[1] > first[1] ? second : first), ["", -1])[0];
}

function grouped<Row>(rows: readonly Row[], key: (row: Row) => string): Map<string, Row[]> {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const group = groups.get(key(row));
    if (group === undefined) groups.set(key(row), [row]);
    else group.push(row);
  }
  return groups;
}

const workloadKey = (row: Partial<Record<"cluster" | "business_unit" | "namespace" | "workload", string>>) =>
  [row.cluster, row.business_unit, row.namespace, row.workload].join("\n");
const isMeasured = (line: Line) => line.allocated_gpu_hours - line.unmeasured_gpu_hours > TINY;
const hourKey = (line: Line) => `${line.cluster} ${line.hour}`;
const nodeKey = (line: Line) => `${hourKey(line)} ${line.node}`;
