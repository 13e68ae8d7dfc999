// Which node to remove, and why GPUs are not held.

import type { NodeRow } from "./api";
import { HOURS_PER_MONTH, ratio } from "./format";

export interface Removal {
  node: NodeRow;
  /** Hours with figures, and those in which no pod held a GPU. */
  hours: number;
  emptyHours: number;
  /** Share of its GPU-hours that pods held; null if its capacity is unknown. */
  heldShare: number | null;
  /** The newest hour with a pod; null if there is none. */
  lastHeld: string | null;
  /** Cost of its unallocated GPUs in the period; null if a price is unknown. */
  unallocatedUsd: number | null;
  /** What the node and its hours without pods cost in the period; null if a price is unknown. */
  costUsd: number | null;
  emptyUsd: number | null;
  /** At the period's mean cost per hour; null if a price is unknown. */
  monthlyUsd: number | null;
  /** The part of the monthly cost that is for hours without pods; null if a price is unknown. */
  emptyMonthlyUsd: number | null;
}

/** Nodes of the newest hour: those without any pod first, then by the cost of hours without pods and of unallocated
 * GPUs. */
export function removalsOf(rows: readonly NodeRow[]): Removal[] {
  const newest = rows.reduce((latest, row) => (row.hour > latest ? row.hour : latest), "");
  const byNode = new Map<string, NodeRow[]>();
  for (const row of rows) {
    if (row.kind !== "node" || row.holders === null) continue;
    const key = `${row.cluster}\n${row.node}`;
    byNode.set(key, [...(byNode.get(key) ?? []), row]);
  }
  const removals: Removal[] = [];
  for (const hours of byNode.values()) {
    const empty = hours.filter((row) => row.holders?.length === 0);
    const node = hours.find((row) => row.hour === newest);
    if (node === undefined) continue;
    const held = hours.filter((row) => (row.holders?.length ?? 0) > 0).map((row) => row.hour);
    const cost = sumOf(hours.map((row) => row.node_cost_usd));
    const emptyCost = sumOf(empty.map((row) => row.node_cost_usd));
    const monthly = (usd: number | null) => (usd === null ? null : (usd / hours.length) * HOURS_PER_MONTH);
    const capacity = sumOf(hours.map((row) => row.capacity_gpu_hours));
    const allocated = hours.flatMap((row) => row.holders ?? []).reduce((sum, pod) => sum + pod.allocated_gpu_hours, 0);
    removals.push({
      node,
      hours: hours.length,
      emptyHours: empty.length,
      lastHeld: held.sort().at(-1) ?? null,
      heldShare: ratio(allocated, capacity),
      unallocatedUsd: sumOf(hours.map((row) => row.unallocated_usd)),
      costUsd: cost,
      emptyUsd: emptyCost,
      monthlyUsd: monthly(cost),
      emptyMonthlyUsd: monthly(emptyCost),
    });
  }
  return removals.sort(
    (left, right) =>
      Number(isEmpty(right)) - Number(isEmpty(left)) ||
      (right.emptyUsd ?? 0) - (left.emptyUsd ?? 0) ||
      right.emptyHours / right.hours - left.emptyHours / left.hours || // without prices
      (right.unallocatedUsd ?? 0) - (left.unallocatedUsd ?? 0) ||
      (left.heldShare ?? 1) - (right.heldShare ?? 1),
  );
}

/** A node with fewer hours may be starting for a pod that waits. */
export const LEAST_HOURS = 6;

function isEmpty({ hours, emptyHours }: Removal): boolean {
  return emptyHours === hours;
}

/** Reserved capacity is charged until its commitment ends, with or without nodes. */
export const isReserved = ({ capacity_type: type }: Pick<NodeRow, "capacity_type">) => type === "reserved";

export interface PoolWithoutPods {
  cluster: string;
  name: string;
  nodes: readonly NodeRow[];
  /** Cost of the hours without pods in the period, and for a month; null if a price is unknown. */
  emptyUsd: number | null;
  emptyMonthlyUsd: number | null;
}

/** Nodes that no pod used in the whole period, and pools whose other nodes were without pods for some hours: those to
 * scale down, and those of reserved nodes, of which fewer save nothing. */
export function removalGroups(removals: readonly Removal[]): {
  now: Removal[];
  pools: PoolWithoutPods[];
  reserved: PoolWithoutPods[];
} {
  const least = Math.min(LEAST_HOURS, Math.max(0, ...removals.map(({ hours }) => hours)));
  const isRemovable = (removal: Removal) => isEmpty(removal) && removal.hours >= least;
  const pools = new Map<string, Removal[]>();
  for (const removal of removals) {
    if (removal.emptyHours === 0 || isEmpty(removal)) continue;
    const key = `${removal.node.cluster}\n${removal.node.node_pool}`;
    pools.set(key, [...(pools.get(key) ?? []), removal]);
  }
  const some = [...pools.values()]
    .map((nodes) => ({
      cluster: nodes[0]?.node.cluster ?? "",
      name: nodes[0]?.node.node_pool ?? "",
      nodes: nodes.map(({ node }) => node),
      emptyUsd: sumOf(nodes.map(({ emptyUsd }) => emptyUsd)),
      emptyMonthlyUsd: sumOf(nodes.map(({ emptyMonthlyUsd }) => emptyMonthlyUsd)),
    }))
    .sort((left, right) => (right.emptyMonthlyUsd ?? 0) - (left.emptyMonthlyUsd ?? 0));
  const areReserved = ({ nodes }: PoolWithoutPods) => nodes.every(isReserved);
  return {
    now: removals.filter(isRemovable),
    pools: some.filter((pool) => !areReserved(pool)),
    reserved: some.filter(areReserved),
  };
}

/** Utilization of the GPU-hours of a node that were measured, 0 to 1; null if none were. */
export function utilizationOf(rows: readonly NodeRow[]): number | null {
  const measured = rows.flatMap((row) => row.holders ?? []).filter((holder) => holder.utilization !== null);
  const held = measured.reduce((sum, holder) => sum + holder.allocated_gpu_hours, 0);
  return ratio(
    measured.reduce((sum, holder) => sum + holder.allocated_gpu_hours * (holder.utilization ?? 0), 0),
    held,
  );
}

/** GPU-hours that pods held, and those of them without a measurement; null if the pods of an hour are unknown. */
export function heldGpuHours(rows: readonly NodeRow[]) {
  const holders = rows.some((row) => row.holders === null) ? null : rows.flatMap((row) => row.holders ?? []);
  const sum = (key: "allocated_gpu_hours" | "unmeasured_gpu_hours") => sumOf(holders?.map((pod) => pod[key]) ?? [null]);
  return { allocated_gpu_hours: sum("allocated_gpu_hours"), unmeasured_gpu_hours: sum("unmeasured_gpu_hours") };
}

/** The sum; null if a value is unknown. */
export function sumOf(values: readonly (number | null)[]): number | null {
  let sum = 0;
  for (const value of values) {
    if (value === null) return null;
    sum += value;
  }
  return sum;
}

/** The likely reason why GPUs of a node-hour were stranded. The ledger has one figure for all reasons. */
export function strandedReason(row: NodeRow): string {
  const stranded = row.stranded_gpu_hours ?? 0;
  const capacity = row.capacity_gpu_hours ?? 0;
  const areSlices = (row.holders ?? []).some((holder) => holder.gpu_share < 0.999);
  if (stranded >= capacity - 1e-6)
    return "the node offered no GPUs: it was starting, its device plugin did not run, MIG was being reconfigured, or it was billed outside Kubernetes";
  if (areSlices) return "probably the MIG geometry: its slices leave a part of the GPU that no pod can request";
  if (Math.abs(stranded - Math.round(stranded)) < 1e-6)
    return "probably unhealthy: the node has these GPUs, but does not offer them to pods. Check `kubectl describe node`";
  return "probably not ready for a part of the hour, or slices that leave a part of the GPU unused";
}

/** Why GPUs of a node-hour were unallocated. */
export function freeReason(row: NodeRow): string {
  if (row.holders?.length === 0) return "no pod held a GPU of this node. It can be removed if this stays so";
  return "the node offered it, and no pod requested it. Pods on this node keep it running";
}

/** A text with its middle left out, as long as fits; null if not even a few characters fit. */
export function shortened(text: string, fits: (text: string) => boolean): string | null {
  if (fits(text)) return text;
  let [low, high] = [0, text.length - 1];
  const cut = (length: number) => {
    const tail = Math.ceil(length / 2);
    return `${text.slice(0, length - tail)}…${text.slice(text.length - tail)}`;
  };
  while (low < high) {
    const length = Math.ceil((low + high) / 2);
    if (fits(cut(length))) low = length;
    else high = length - 1;
  }
  return low < MIN_CHARACTERS ? null : cut(low);
}

/** Fewer characters do not identify a pod. */
const MIN_CHARACTERS = 6;
