// The node cost and unallocated cost of Explore: by cluster from the fleet's reports, by other dimensions from its nodes.

import {
  type CostsResponse,
  fetchAll,
  fetchHours,
  fetchJson,
  type FleetResponse,
  type FleetTotals,
  MAX_DETAIL_HOURS,
  type NodeRow,
} from "./api";
import { chartedRows, type Costs, dimensionsOf, type ExploreRow, type Filter, nameOf, type Question } from "./explore";
import { type Figure, HOUR, instant } from "./format";
import { heldGpuHours, sumOf } from "./removal";
import { exactly } from "./route";
import { bucketsOf, type Step } from "./series";

const PAGE_ROWS = 2000;
const MAX_PAGES = 10;
const SUMS = [
  "node_cost_usd",
  "unallocated_usd",
  "allocated_usd",
  "effective_usd",
  "waste_usd",
  "unmeasured_usd",
  "allocated_gpu_hours",
  "effective_gpu_hours",
  "unmeasured_gpu_hours",
  "unpriced_gpu_hours",
] as const;

interface Period {
  start: string;
  end: string;
  cluster: string | undefined;
}

export interface NodeCosts {
  whole: CostsResponse;
  rows: ExploreRow[];
  names: string[];
  groups: Costs[];
  all: Costs[];
}

/** Costs of the period in the form of those of pods. Null if the fleet has too many nodes for it. */
export async function fetchNodeCosts(
  question: Question,
  period: Period,
  step: Step,
  most: number,
): Promise<NodeCosts | null> {
  const fleet = await fetchJson("v1/fleet", { ...period, granularity: "total" });
  const dimensions = [...dimensionsOf(question), ...question.filters.map(({ dimension }) => dimension)];
  const isByCluster = dimensions.every((name) => name === "cluster");
  const parts = isByCluster ? await fetchClusters(question, period, step) : await fetchNodes(question, period, step);
  if (parts === null) return null;
  return { ...summed(question, parts, most), whole: wholeOf(question, fleet, period, parts) };
}

/** The rows of the table and of the chart, from rows by bucket. */
export function summed(question: Question, parts: readonly Costs[], most: number): Omit<NodeCosts, "whole"> {
  const rows = addedUp(parts, (row) => nameOf(question, row));
  const charted = chartedRows(question, rows, most);
  return {
    rows,
    names: charted.map((row) => nameOf(question, row)),
    groups: addedUp(parts, (row) => `${row.start} ${nameOf(question, row)}`),
    all: addedUp(parts, (row) => row.start),
  };
}

function wholeOf(question: Question, fleet: FleetResponse, { start, end }: Period, parts: readonly Costs[]) {
  const { currency, coverage, default_window } = fleet;
  const rows = addedUp(parts, (row) => nameOf(question, row));
  return { start, end, default_window, currency, coverage, rows, row_count: rows.length, cursor: null } as never;
}

/** Sums of the rows with the same key. An unknown figure makes the sum unknown. */
function addedUp(parts: readonly Costs[], keyOf: (row: Costs) => string): Costs[] {
  const rowsByKey = new Map<string, Costs[]>();
  for (const row of parts) {
    const rows = rowsByKey.get(keyOf(row));
    if (rows === undefined) rowsByKey.set(keyOf(row), [row]);
    else rows.push(row);
  }
  return [...rowsByKey.values()].map((rows) => {
    const sums = SUMS.map((key) => [key, sumOf(rows.map((row) => row[key] ?? null))]);
    return { ...(rows[0] as Costs), ...(Object.fromEntries(sums) as Partial<Costs>) };
  });
}

async function fetchClusters(question: Question, period: Period, step: Step): Promise<Costs[]> {
  const hours = await fetchHours(period);
  const costs = await fetchAll("v1/costs", { ...period, granularity: "total", group_by: "cluster" });
  const all = new Set([
    ...(hours?.rows ?? []).map(({ cluster }) => cluster),
    ...costs.rows.map(({ group }) => group["cluster"] ?? ""),
  ]);
  const names = [...all].sort().filter((cluster) => isIncluded(question.filters, { cluster }));
  const { start, end } = period;
  const fleets = await Promise.all(
    names.map((name) => fetchJson("v1/fleet", { start, end, cluster: exactly(name), granularity: step })),
  );
  return fleets.flatMap(({ rows }, at) => rows.map((row) => costsOfFleet(row, names[at] ?? "")));
}

function costsOfFleet(row: FleetTotals & { start: string; end: string }, cluster: string): Costs {
  return { ...row, kind: "workload", group: { cluster } } as unknown as Costs;
}

async function fetchNodes(question: Question, period: Period, step: Step): Promise<Costs[] | null> {
  const [first, last] = [Date.parse(period.start), Date.parse(period.end)];
  const starts: number[] = [];
  for (let at = first; at < last; at += MAX_DETAIL_HOURS * HOUR) starts.push(at);
  const pages = await Promise.all(
    starts.map((start) => {
      const end = instant(Math.min(last, start + MAX_DETAIL_HOURS * HOUR));
      const { cluster } = period;
      return fetchAll("v1/nodes", { start: instant(start), end, cluster, limit: `${PAGE_ROWS}` }, MAX_PAGES);
    }),
  );
  if (pages.some(({ cursor }) => cursor !== null)) return null;
  return costsOfNodes(
    question,
    period,
    step,
    pages.flatMap(({ rows }) => rows),
  );
}

/** Rows of nodes as rows of costs, at the starts of the chart's buckets. */
export function costsOfNodes(
  question: Pick<Question, "by" | "then" | "filters">,
  { start, end }: Pick<Period, "start" | "end">,
  step: Step,
  nodes: readonly NodeRow[],
): Costs[] {
  const { starts } = bucketsOf(start, end, step);
  const bucketOf = (hour: string) => instant(starts.findLast((at) => at <= Date.parse(hour)) ?? Date.parse(start));
  return nodes
    .filter((node) => isIncluded(question.filters, namesOf(node)))
    .map((node) => {
      const names = namesOf(node);
      const group = Object.fromEntries(dimensionsOf(question).map((dimension) => [dimension, names[dimension] ?? ""]));
      const held = heldGpuHours([node]);
      const unpriced = node.unpriced_capacity_gpu_hours;
      const figures: Partial<Record<(typeof SUMS)[number], Figure>> = {
        ...held,
        effective_gpu_hours: (node.holders ?? []).reduce((sum, { effective_gpu_hours: used }) => sum + (used ?? 0), 0),
        unpriced_gpu_hours: Math.min(unpriced, held.allocated_gpu_hours ?? unpriced),
      };
      return { ...node, ...figures, start: bucketOf(node.hour), end, kind: "workload", group } as unknown as Costs;
    });
}

function namesOf(node: NodeRow): Readonly<Record<string, string>> {
  const { cluster, node_pool, instance_type, gpu_model, capacity_type, zone } = node;
  return { cluster, node_pool, instance_type, gpu_model, capacity_type, zone, node: node.node };
}

/** Whether a node has one of the names of each filtered dimension, and none that is excluded. */
export function isIncluded(filters: readonly Filter[], names: Readonly<Record<string, string>>): boolean {
  return [...new Set(filters.map(({ dimension }) => dimension))].every((dimension) => {
    const of = filters.filter((filter) => filter.dimension === dimension);
    const isNamed = ({ name }: Filter) => name === (names[dimension] ?? "");
    const wanted = of.filter(({ isExcluded }) => !isExcluded);
    return (wanted.length === 0 || wanted.some(isNamed)) && !of.some((filter) => filter.isExcluded && isNamed(filter));
  });
}
