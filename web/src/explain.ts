// The path from a sum to its sources: the formula, its largest periods, and the prices of an hour.

import { capitalized, exactMoney, type GpuHours, gpuHours, isUnmeasured, knownFigure, NOT_MEASURED } from "./format";
import { AMOUNTS, PARTS, type PartKey } from "./identity";

export type FigureKey = PartKey | "allocated_usd" | "node_cost_usd";

const KEYS: readonly FigureKey[] = ["node_cost_usd", "allocated_usd", ...PARTS.map((part) => part.key)];

export function figureOf(text: string | undefined): FigureKey | null {
  return KEYS.find((key) => key === text) ?? null;
}

/** Figures that pods have; the others belong to nodes. */
export function isOfPods(key: FigureKey): boolean {
  return ["allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"].includes(key);
}

export type Amounts = Partial<Record<FigureKey, number | null> & GpuHours>;

/** How the figure follows from others of the same row, with amounts. */
export function formulaOf(key: FigureKey, row: Amounts, currency: string): string {
  const term = (name: FigureKey) => `${AMOUNTS[name]} ${exactMoney(knownFigure(row, name), currency)}`;
  const total = term(key);
  if (isUnmeasured(row, key)) return `${total}: ${NOT_MEASURED}. ${capitalized(term("unmeasured_usd"))}.`;
  if (key === "waste_usd")
    return `${term("allocated_usd")} − ${term("effective_usd")} − ${term("unmeasured_usd")} = ${total}`;
  if (key === "allocated_usd")
    return `${term("effective_usd")} + ${term("waste_usd")} + ${term("unmeasured_usd")} = ${total}`;
  if (key === "node_cost_usd")
    return `${PARTS.filter((part) => row[part.key])
      .map((part) => term(part.key))
      .join(" + ")} = ${total}`;
  const part = PARTS.find((candidate) => candidate.key === key);
  return `${total}: ${part?.meaning ?? ""}`;
}

interface PodCost extends Amounts {
  currency: string;
  gpu_hourly_usd: number | null;
  allocated_gpu_hours: number;
  effective_gpu_hours: number | null;
  unmeasured_gpu_hours: number;
}

/** How a pod's figure follows from its GPU-hours and its price. */
export function answerOf(key: FigureKey, line: PodCost): string {
  const { currency, gpu_hourly_usd: price } = line;
  const product = (figure: number | null) =>
    `${gpuHours(figure)} GPU-hours × ${exactMoney(price, currency)} = ${AMOUNTS[key]} ${exactMoney(line[key], currency)}`;
  if (isUnmeasured(line, key)) return formulaOf(key, line, currency);
  if (key === "unmeasured_usd") return `Without a measurement: ${product(line.unmeasured_gpu_hours)}`;
  if (key === "effective_usd") return `Used: ${product(line.effective_gpu_hours)}`;
  if (key === "allocated_usd") return `Held: ${product(line.allocated_gpu_hours)}`;
  return formulaOf(key, line, currency);
}

/** Whether the formula's amounts are rounded, so that their last digits need not add up. */
export function isRounded(key: FigureKey, row: Amounts): boolean {
  const isSum = key === "waste_usd" || key === "allocated_usd";
  const terms: FigureKey[] =
    key === "node_cost_usd" ? PARTS.map((part) => part.key) : isSum ? KEYS.filter(isOfPods) : [];
  if (terms.length === 0) return false; // no formula
  const isCut = (usd: number) => Math.abs(usd * 1e6 - Math.round(usd * 1e6)) > 1e-4;
  return [key, ...terms].some((term) => isCut(row[term] ?? 0));
}

/** An hour's notes that concern some instance types: those on the prices of other types are left out. */
export function notesOn(notes: readonly string[], types: ReadonlySet<string>): string[] {
  return notes.filter((note) => {
    const [, type] = /^(\S+) is priced at /.exec(note) ?? [];
    return type === undefined || types.has(type);
  });
}

/** The largest rows, and the sum of the others. */
export function largest<Row extends Amounts>(
  rows: readonly Row[],
  key: FigureKey,
  most: number,
): { shown: Row[]; others: number; rest: number } {
  const sorted = rows.filter((row) => row[key]).sort((left, right) => (right[key] ?? 0) - (left[key] ?? 0));
  const others = sorted.slice(most);
  return {
    shown: sorted.slice(0, most),
    others: others.length,
    rest: others.reduce((sum, row) => sum + (row[key] ?? 0), 0),
  };
}

export interface Price {
  source: string;
  split: string;
  /** Per GPU-hour; null without a price. */
  amount: number | null;
  rows: number;
  gpuHours: number;
}

interface Priced {
  price_source: string;
  split_policy: string;
  gpu_hourly_usd: number | null;
  allocated_gpu_hours: number;
}

/** The prices behind pods, most GPU-hours first. */
export function pricesOf(rows: readonly Priced[]): Price[] {
  const prices = new Map<string, Price>();
  for (const { price_source: source, split_policy: split, gpu_hourly_usd: amount, allocated_gpu_hours } of rows) {
    const key = `${source} ${split} ${amount}`;
    const price = prices.get(key) ?? { source, split, amount, rows: 0, gpuHours: 0 };
    price.rows++;
    price.gpuHours += allocated_gpu_hours;
    prices.set(key, price);
  }
  return [...prices.values()].sort((left, right) => right.gpuHours - left.gpuHours);
}

interface Pod {
  namespace: string;
  pod: string;
  resource: string;
}

const SIGNALS =
  "DCGM_FI_PROF_GR_ENGINE_.+|DCGM_FI_PROF_SM_.+|DCGM_FI_DEV_GPU_UTIL.*|dcgm_.+util.*|neuroncore_utilization_ratio|(amd_)?gpu_gfx_.+";

/** Queries that show the samples of a pod: its requests, and its devices' utilization. */
export function queriesOf({ namespace, pod, resource }: Pod): { title: string; query: string }[] {
  const exposed = resource.replace(/[^A-Za-z0-9]/g, "_"); // as kube-state-metrics writes resource names
  const label = (name: string, text: string) => `${name}=${JSON.stringify(text)}`;
  const devices = (prefix: string) =>
    `{${label("__name__", SIGNALS).replace("=", "=~")}, ${label(`${prefix}namespace`, namespace)}, ${label(`${prefix}pod`, pod)}}`;
  return [
    {
      title: "Requested GPUs",
      query: `kube_pod_container_resource_requests{${label("namespace", namespace)}, ${label("pod", pod)}, ${label("resource", exposed)}}`,
    },
    { title: "Utilization", query: `${devices("exported_")} or ${devices("")}` },
  ];
}
