// What Explore asks the API, from the URL: a dimension, a measure, filters, and the way back.

import { COST_NAMES, NEEDS, QUANTITIES } from "./amounts";
import { type CostRow, MAX_DETAIL_HOURS, type Parameters } from "./api";
import { counted, DAY, type Figure, HOUR, knownFigure } from "./format";
import { AMOUNTS, amountTitle } from "./identity";
import { keyOf } from "./order";
import { sumOf } from "./removal";
import { exactly, type Route } from "./route";
import { type Buckets, pricedShare, type Step } from "./series";

export const DIMENSIONS: Readonly<Record<string, string>> = {
  business_unit: "Business unit",
  cluster: "Cluster",
  namespace: "Namespace",
  workload: "Workload",
  workload_kind: "Workload kind",
  node_pool: "Node pool",
  instance_type: "Instance type",
  gpu_model: "GPU model",
  capacity_type: "Capacity type",
  resource: "Resource",
  zone: "Zone",
  node: "Node",
  pod: "Pod",
};

/** The dimension that explains a group of another dimension. */
const NEXT: Readonly<Record<string, string>> = {
  business_unit: "workload",
  cluster: "business_unit",
  namespace: "workload",
  workload: "pod",
  node_pool: "business_unit",
  instance_type: "node_pool",
  node: "pod",
  pod: "node",
};

/** Amounts that nodes have, and pods do not. */
const OF_NODES = ["node_cost_usd", "unallocated_usd"] as const;
export type NodeMeasure = (typeof OF_NODES)[number];
type Money = keyof typeof COST_NAMES | "cost_usd" | NodeMeasure;
export type Measure = Money | keyof typeof QUANTITIES;

const MONEY = [...Object.keys(COST_NAMES), "cost_usd", ...OF_NODES] as Money[];
export const MEASURES: Readonly<Record<Measure, string>> = {
  ...(Object.fromEntries(MONEY.map((key) => [key, amountTitle(key)])) as Record<Money, string>),
  ...QUANTITIES,
};

export const isMoney = (measure: Measure) => measure.endsWith("_usd");

export const isOfNodes = (measure: Measure): measure is NodeMeasure => OF_NODES.some((key) => key === measure);

/** The dimensions that nodes have, and so their costs. */
export const NODE_DIMENSIONS = [
  "cluster",
  "node_pool",
  "instance_type",
  "gpu_model",
  "capacity_type",
  "zone",
  "node",
] as const;

/** A row of costs: of pods, or of nodes. */
export type Costs = CostRow & Partial<Record<NodeMeasure, number | null>>;

export const figureOf = (row: Costs, measure: Measure): Figure => row[measure];

/** Whether a measure is unknown where no energy was measured, or also without an emission factor. */
export function energyNeedOf(measure: Measure): "energy" | "emission factor" | null {
  const need = measure === "cost_usd" || isOfNodes(measure) ? "price" : NEEDS[measure];
  return need === "energy" || need === "emission factor" ? need : null;
}

const FILTER = "f.";
const HOURLY = ["business_unit", "cluster", "namespace"];

export interface Filter {
  dimension: string;
  name: string;
  isExcluded: boolean;
}

export interface Question {
  by: string;
  /** A second dimension of the groups; "" for none. */
  then: string;
  measure: Measure;
  filters: Filter[];
  /** Dimensions that were opened on the way, the first one first. */
  trail: string[];
  isCompared: boolean;
  /** Whether the idle cost of "Cost with idle" is a row, and not shared by the others. */
  isIdleSeparate: boolean;
}

/** Whether costs can be grouped by it. */
export const isDimension = (name: string) => Object.hasOwn(DIMENSIONS, name) || /^label:./.test(name);

export function questionOf(route: Route): Question {
  const { by: first = "business_unit", then = "", measure = "", compare, trail = "", idle } = route.query;
  const by = isDimension(first) ? first : "business_unit";
  return {
    by,
    then: isDimension(then) && then !== by ? then : "",
    measure: Object.hasOwn(MEASURES, measure) ? (measure as Measure) : "allocated_usd",
    filters: filtersIn(route),
    trail: trail.split(",").filter((dimension) => dimension !== ""),
    isCompared: compare === "1",
    isIdleSeparate: measure === "cost_usd" && idle === "separate",
  };
}

/** The dimensions that a question groups by. */
export const dimensionsOf = ({ by, then }: Pick<Question, "by" | "then">) => (then === "" ? [by] : [by, then]);

/** What a row's group is called. */
export function nameOf(question: Pick<Question, "by" | "then">, { group }: Pick<CostRow, "group">): string {
  const names = dimensionsOf(question).map((dimension) => group[dimension] ?? "");
  return names.length === 1 ? (names[0] ?? "") : names.map((name) => (name === "" ? "none" : name)).join(" · ");
}

/** The URL's filters. */
export function filtersIn(route: Route): Filter[] {
  return Object.entries(route.query)
    .filter(([key]) => key.startsWith(FILTER))
    .flatMap(([key, list]) => readList(list).map((entry) => ({ dimension: key.slice(FILTER.length), ...entry })));
}

/** The filters as parameters of the URL. Those of `before` that are gone are empty, which removes them. */
export function filterQuery(filters: readonly Filter[], before: readonly Filter[]): Record<string, string> {
  const query = Object.fromEntries(before.map(({ dimension }) => [FILTER + dimension, ""]));
  for (const dimension of new Set(filters.map((filter) => filter.dimension))) {
    query[FILTER + dimension] = filters
      .filter((filter) => filter.dimension === dimension)
      .map(({ name, isExcluded }) => writeEntry(name, isExcluded))
      .join(",");
  }
  return query;
}

/** The URL's parameters after a group was opened: a filter for each of its names, and the next dimension. */
export function opened(question: Question, group: Readonly<Record<string, string>>): Record<string, string> {
  const { by, filters, trail } = question;
  const dimensions = dimensionsOf(question);
  const kept = filters.filter(({ dimension }) => !dimensions.includes(dimension));
  const taken = new Set([...dimensions, ...kept.map(({ dimension }) => dimension)]);
  const chosen = dimensions.map((dimension) => ({ dimension, name: group[dimension] ?? "", isExcluded: false }));
  const step = dimensions.join(STEP);
  const ofNodes = ["node_pool", "instance_type", "node", "cluster"];
  const next = isOfNodes(question.measure)
    ? ofNodes
    : [NEXT[by] ?? "business_unit", "business_unit", "workload", "namespace", "gpu_model", "node_pool"];
  return {
    ...filterQuery([...kept, ...chosen], filters),
    by: next.find((dimension) => !taken.has(dimension)) ?? by,
    then: "",
    trail: [...trail.filter((before) => before !== step), step].join(","),
  };
}

/** The URL's parameters after a group was excluded. */
export function excluded({ by, filters }: Question, name: string): Record<string, string> {
  return filterQuery([...filters, { dimension: by, name, isExcluded: true }], filters);
}

/** The URL's parameters of a step of the trail: the filters of later steps are removed. */
export function backTo(question: Question, step: number): Record<string, string> {
  const later = new Set(question.trail.slice(step).flatMap(dimensionsOfStep));
  const [by = question.by, then = ""] = dimensionsOfStep(question.trail[step] ?? question.by);
  return {
    ...filterQuery(
      question.filters.filter(({ dimension }) => !later.has(dimension)),
      question.filters,
    ),
    by,
    then,
    trail: question.trail.slice(0, step).join(","),
  };
}

/** Between the dimensions of a step of the trail that grouped by two. */
const STEP = "+";
export const dimensionsOfStep = (step: string) => step.split(STEP);

type Query = Parameters<"v1/costs">;

/** The API's parameters of a question, without its period. */
export function costsOf(question: Question): Query {
  const { measure, filters, isIdleSeparate } = question;
  const idle = isIdleSeparate ? "separate" : "shared-by-allocation";
  return {
    group_by: dimensionsOf(question).join(","),
    ...filtersOf(filters),
    ...(measure === "cost_usd" ? { idle } : {}),
  };
}

/** The table's order as the API's. Orders that the API does not have become that of the measure. */
export function sortOf({ by, then, measure }: Question, order: string | undefined): string {
  if (order === undefined) return `-${measure}`;
  const sign = order.startsWith("-") ? "-" : "";
  const key = keyOf(order);
  if (key === "share") return sign + measure;
  return key === by || key === then || Object.hasOwn(MEASURES, key) ? order : `-${measure}`;
}

/** The filters as parameters of the API. */
export function filtersOf(filters: readonly Filter[]): Record<string, string> {
  const parameters: Record<string, string> = {};
  for (const { dimension, name, isExcluded } of filters) {
    const isLabel = dimension.startsWith("label:");
    const entry = name === "" && isExcluded ? "*" : (isExcluded ? "!" : "") + exactly(name);
    const key = isLabel ? "label" : dimension;
    const text = isLabel ? `${dimension.slice("label:".length)}:${entry}` : entry;
    parameters[key] = parameters[key] === undefined ? text : `${parameters[key]},${text}`;
  }
  return parameters;
}

/** The beginning that Jobs of one kind share: "train" of train-7f2kq9xz and of train-2106-1-retry. */
export function familyOf(job: string): string {
  const segments = job.split("-");
  const numbered = segments.findIndex((segment) => /\d/.test(segment));
  return segments.slice(0, numbered > 0 ? numbered : -1).join("-");
}

/** Fewer Jobs are rows of their own. */
const LEAST_JOBS = 3;

/** A row of a table: a group of the API, or Jobs whose names begin alike. */
export type ExploreRow = Costs & { jobs?: readonly CostRow[] };

const SUMS = [...Object.keys(NEEDS), "cost_usd"] as (keyof typeof NEEDS | "cost_usd")[];

/** Rows of workloads, in which Jobs whose names begin alike are one row: the sum of theirs. They have the same other
 * dimensions, such as their namespace. */
export function groupJobs(rows: readonly CostRow[], isJob: (row: CostRow) => boolean): ExploreRow[] {
  const families = new Map<string, CostRow[]>();
  for (const row of rows) {
    if (row.kind === "idle" || !isJob(row)) continue;
    const family = familyOf(row.group["workload"] ?? "");
    if (family === "") continue;
    const key = JSON.stringify({ ...row.group, workload: family });
    families.set(key, [...(families.get(key) ?? []), row]);
  }
  const grouped = [...families.values()].filter(({ length }) => length >= LEAST_JOBS);
  const taken = new Set(grouped.flat());
  return [...grouped.map(sumOfJobs), ...rows.filter((row) => !taken.has(row))];
}

function sumOfJobs(members: readonly CostRow[]): ExploreRow {
  const [first] = members;
  if (first === undefined) throw new Error("no Jobs");
  const workload = `${familyOf(first.group["workload"] ?? "")}-*`;
  const row: ExploreRow = { ...first, group: { ...first.group, workload }, jobs: members };
  for (const key of SUMS) {
    const figures = members.map((member) => member[key]);
    if (figures.every((figure) => figure !== undefined)) Object.assign(row, { [key]: sumOf(figures) });
  }
  return row;
}

/** What tables say of rows of Jobs. */
export function jobsText(rows: readonly ExploreRow[]): string {
  const count = rows.filter(({ jobs }) => jobs !== undefined).length;
  return count === 0 ? "" : `Jobs with similar names share ${counted(count, "row")}; open one to see them`;
}

/** The rows of the table that the chart names: those with the largest figures. */
export function chartedRows({ measure }: Question, rows: readonly ExploreRow[], most: number): ExploreRow[] {
  return rows
    .filter(({ kind }) => kind !== "idle")
    .sort((left, right) => (figureOf(right, measure) ?? 0) - (figureOf(left, measure) ?? 0))
    .slice(0, most);
}

/** The API's parameters of the question about only some rows of its table. Of grouped Jobs, the beginning of their names
 * selects others, too. */
export function costsOfRows(question: Question, rows: readonly ExploreRow[]): Query {
  const dimensions = dimensionsOf(question);
  const others = question.filters.filter(({ dimension }) => !dimensions.includes(dimension));
  // Of two dimensions, also pairs of names that no row has: the chart adds them to the others.
  const chosen = dimensions.flatMap((dimension) =>
    [...new Set(rows.map(({ group }) => group[dimension] ?? ""))].map((name) => ({
      dimension,
      name,
      isExcluded: false,
    })),
  );
  const costs = costsOf({ ...question, filters: [...others, ...chosen] });
  if (rows.every(({ jobs }) => jobs === undefined)) return costs;
  const names = rows.map(({ group, jobs }) => {
    const workload = group["workload"] ?? "";
    return jobs === undefined ? exactly(workload) : `${exactly(workload.slice(0, -1))}*`;
  });
  return { ...costs, workload: [...new Set(names)].join(",") };
}

/** The granularity of the chart: the one that was selected, if the API has it for this period and dimension. */
export function stepOf(question: Question, start: string, end: string, selected: string | undefined): Step {
  const hours = (Date.parse(end) - Date.parse(start)) / HOUR;
  const dimensions = [...dimensionsOf(question), ...question.filters.map(({ dimension }) => dimension)];
  const isHourly = hours <= MAX_DETAIL_HOURS || dimensions.every((dimension) => HOURLY.includes(dimension));
  const allowed: Step[] = [];
  if (hours <= 35 * 24 && isHourly) allowed.push("hour");
  if (hours <= 100 * 24) allowed.push("day");
  allowed.push("week", "month");
  const wanted = selected ?? (hours <= 72 ? "hour" : hours <= 100 * 24 ? "day" : "week");
  return allowed.find((step) => step === wanted) ?? allowed[0] ?? "day";
}

/** Key of all groups that the chart does not name. No name contains this character. */
export const OTHERS = "\0others";
/** Key of the idle cost, if it is a row. */
export const IDLE = "\0idle";

export interface ChartRows {
  /** Figures by group; undefined in a bucket without figures. */
  rows: (Record<string, number | null> | undefined)[];
  /** Null for a group of which no figure is known. */
  totals: Record<string, number | null>;
  /** Share of the GPU-hours that have a price. */
  priced: number[];
}

/** The chart's figures: those of the named groups, the idle cost, and what remains of all rows. Rows of the API belong
 * to the group of their name. */
export function chartRows(
  question: Question,
  { starts }: Buckets,
  names: readonly string[],
  groups: readonly Costs[],
  all: readonly Costs[],
  groupByName: ReadonlyMap<string, string> = new Map(names.map((name) => [name, name])),
): ChartRows {
  const { measure, isIdleSeparate } = question;
  const rows: ChartRows["rows"] = starts.map(() => undefined);
  const hours = starts.map(() => ({ allocated_gpu_hours: 0, unpriced_gpu_hours: 0 }));
  const at = new Map(starts.map((start, index) => [start, index]));
  const add = (index: number | undefined, key: string, figure: Figure) => {
    if (index === undefined) return;
    const row = (rows[index] ??= {});
    row[key] = figure == null || row[key] === null ? null : (row[key] ?? 0) + figure;
  };
  for (const row of all) {
    const index = at.get(Date.parse(row.start));
    add(index, row.kind === "idle" ? IDLE : OTHERS, figureOf(row, measure));
    const sums = index === undefined ? undefined : hours[index];
    if (sums === undefined) continue;
    sums.allocated_gpu_hours += row.allocated_gpu_hours;
    sums.unpriced_gpu_hours += row.unpriced_gpu_hours;
  }
  for (const row of groups) {
    const group = groupByName.get(nameOf(question, row));
    if (row.kind === "idle" || group === undefined) continue;
    const [index, figure] = [at.get(Date.parse(row.start)), figureOf(row, measure)];
    add(index, group, knownFigure(row, measure));
    add(index, OTHERS, figure == null ? null : -figure);
  }
  // Where there are figures, a group without a row held nothing: a zero, not a gap.
  const keys = [...names, OTHERS, ...(isIdleSeparate ? [IDLE] : [])];
  for (const row of rows) for (const key of keys) if (row !== undefined) row[key] ??= key in row ? null : 0;
  const totals: Record<string, number | null> = {};
  for (const row of rows)
    for (const [key, figure] of Object.entries(row ?? {}))
      totals[key] = figure === null ? (totals[key] ?? null) : (totals[key] ?? 0) + figure;
  return { rows, totals, priced: isMoney(measure) ? hours.map(pricedShare) : hours.map(() => 1) };
}

/** The totals of an earlier period at the buckets of this one, which begins later by a number of milliseconds. Empty if
 * its buckets begin at other times. */
export function earlierTotals(
  measure: Measure,
  { starts, step }: Buckets,
  later: number,
  rows: readonly Costs[],
): (number | null)[] {
  const length = { hour: HOUR, day: DAY, week: 7 * DAY, month: Infinity }[step];
  if (later % length !== 0) return [];
  const totals = new Map<number, number | null>();
  for (const row of rows) {
    const [at, figure] = [Date.parse(row.start) + later, figureOf(row, measure)];
    const sum = totals.get(at) ?? 0;
    totals.set(at, figure == null || totals.get(at) === null ? null : sum + figure);
  }
  return starts.map((start) => totals.get(start) ?? null);
}

/** One sentence if the API cannot answer the question for the period; undefined if it can. */
export function limitOf(question: Question, start: string, end: string): string | undefined {
  const hours = (Date.parse(end) - Date.parse(start)) / HOUR;
  const dimensions = [...dimensionsOf(question), ...question.filters.map(({ dimension }) => dimension)];
  if (isOfNodes(question.measure)) return nodeLimitOf(question.measure, dimensions, hours);
  const detail = dimensions.find((name) => name === "pod" || name === "node");
  if (detail === undefined || hours <= MAX_DETAIL_HOURS) return undefined;
  return `Costs by ${detail} are kept for reports of at most ${MAX_DETAIL_HOURS} hours. Select a shorter period, or another dimension.`;
}

/** Longest period, in hours, of nodes: they are read in parts. */
const MAX_NODE_HOURS = 7 * 24 + 1;

function nodeLimitOf(measure: NodeMeasure, dimensions: readonly string[], hours: number): string | undefined {
  const names = NODE_DIMENSIONS.map((key) => DIMENSIONS[key]?.toLowerCase() ?? key);
  if (dimensions.some((name) => !NODE_DIMENSIONS.some((key) => key === name)))
    return `The ${AMOUNTS[measure]} is that of nodes, which have no other dimensions than ${names.join(", ")}. Group and filter by these, or select the measure “${MEASURES.cost_usd}”.`;
  if (hours > MAX_NODE_HOURS && dimensions.some((name) => name !== "cluster"))
    return `The ${AMOUNTS[measure]} of longer periods than 7 days is known by cluster only. Select a shorter period, or group by cluster.`;
  return undefined;
}

function readList(list: string): { name: string; isExcluded: boolean }[] {
  const entries: { name: string; isExcluded: boolean }[] = [];
  for (const entry of list.match(/(?:\\.|[^,\\])+/g) ?? []) {
    // A star matches every name except the empty one; an escaped star is a name.
    if (entry === "*" || entry === "!*") {
      entries.push({ name: "", isExcluded: entry === "*" });
      continue;
    }
    const isExcluded = entry.startsWith("!");
    entries.push({ name: entry.slice(isExcluded ? 1 : 0).replace(/\\(.)/g, "$1"), isExcluded });
  }
  return entries;
}

function writeEntry(name: string, isExcluded: boolean): string {
  if (name === "") return isExcluded ? "*" : "!*";
  return (isExcluded ? "!" : "") + exactly(name);
}
