// Aligns rows with evenly spaced buckets. A bucket without a row is a gap: unknown, not zero.

import type { Coverage, HourRow, HoursResponse } from "./api";
import { type HourStatus, lackingStatus } from "./health";
import { clockOf, dateOf, DAY, type Figure, HOUR, type Zone } from "./format";

export interface Buckets {
  /** Starts, in milliseconds. */
  starts: number[];
  end: number;
  step: Step;
}

/** Granularities of the API's rows. */
export type Step = "hour" | "day" | "week" | "month";
export type Grain = Extract<Step, "hour" | "day">;

/** Days, weeks (from Monday), and months are those of UTC. The first and the last bucket may be cut. */
export function bucketsOf(start: string, end: string, step: Step): Buckets {
  const [first, last] = [Date.parse(start), Date.parse(end)];
  const starts = [first];
  for (let at = nextStart(first, step); at < last; at = nextStart(at, step)) starts.push(at);
  return { starts, end: last, step };
}

function nextStart(time: number, step: Step): number {
  if (step === "hour") return (Math.floor(time / HOUR) + 1) * HOUR;
  const day = new Date(Math.floor(time / DAY) * DAY);
  if (step === "month") return Date.UTC(day.getUTCFullYear(), day.getUTCMonth() + 1, 1);
  return day.getTime() + (step === "day" ? 1 : 7 - ((day.getUTCDay() + 6) % 7)) * DAY;
}

export function endOf(buckets: Buckets, index: number): number {
  return buckets.starts[index + 1] ?? buckets.end;
}

/** The row of each bucket; undefined if there is none. */
export function align<Row extends { start: string }>(buckets: Buckets, rows: readonly Row[]): (Row | undefined)[] {
  const rowsByStart = new Map(rows.map((row) => [Date.parse(row.start), row]));
  return buckets.starts.map((start) => rowsByStart.get(start));
}

/** Share of each bucket's ended hours that have figures, 0 to 1, over all clusters.
 *
 * Without hours (null), buckets with a row count as complete, and all buckets do if the period is complete. */
export function completeShare(
  buckets: Buckets,
  hours: readonly Pick<HourRow, "hour" | "status">[] | null,
  rows: readonly (object | undefined)[],
  isPeriodComplete = false,
): number[] {
  const expected = buckets.starts.map(() => 0);
  const complete = buckets.starts.map(() => 0);
  let index = 0;
  for (const { hour, status } of hours ?? []) {
    if (status === "pending") continue; // not expected yet
    const at = Date.parse(hour);
    if (at < (buckets.starts[index] ?? 0)) index = 0;
    while (index < buckets.starts.length - 1 && at >= endOf(buckets, index)) index++;
    expected[index] = (expected[index] ?? 0) + 1;
    if (hasFigures({ status })) complete[index] = (complete[index] ?? 0) + 1;
  }
  return buckets.starts.map((_, at) => {
    const all = expected[at] ?? 0;
    if (all > 0) return (complete[at] ?? 0) / all;
    return isPeriodComplete || rows[at] !== undefined ? 1 : 0;
  });
}

export interface Priced {
  allocated_gpu_hours?: Figure;
  unpriced_gpu_hours?: Figure;
  capacity_gpu_hours?: Figure;
  unpriced_capacity_gpu_hours?: Figure;
}

/** Share of a row's GPU-hours that have a price, 0 to 1. Amounts include only these. */
export function pricedShare(row: Priced): number {
  // The capacity includes the allocated GPU-hours.
  const all = Math.max(row.capacity_gpu_hours ?? 0, row.allocated_gpu_hours ?? 0);
  const unpriced = Math.max(row.unpriced_capacity_gpu_hours ?? 0, row.unpriced_gpu_hours ?? 0);
  return all > 0 ? 1 - Math.min(1, unpriced / all) : 1;
}

/** Cumulative sums for a stacked chart, the topmost first. Unknown values stay gaps. */
export function stack(columns: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const sums: (number | null)[][] = [];
  columns.forEach((column, at) => {
    const below = sums[at - 1];
    sums.push(column.map((value, index) => (value === null ? null : value + (below?.[index] ?? 0))));
  });
  return sums.reverse();
}

/** The granularity of a period, unless another one is selected. */
export function grainOf(hours: number, requested: string | undefined): Grain {
  if (requested === "hour" && hours <= 35 * 24) return "hour";
  if (requested === "day") return "day";
  return hours <= 14 * 24 ? "hour" : "day";
}

/** Hours of a bucket that the period cuts, and those of the whole one; null if it is whole. */
export function cutOf(buckets: Buckets, index: number): { hours: number; of: number } | null {
  const { starts, step } = buckets;
  const start = starts[index];
  if (start === undefined || step === "hour") return null;
  const whole = { start: startOf(start, step), end: nextStart(start, step) };
  const of = (whole.end - whole.start) / HOUR;
  const hours = (endOf(buckets, index) - start) / HOUR;
  return hours < of ? { hours, of } : null;
}

function startOf(time: number, step: Exclude<Step, "hour">): number {
  const day = new Date(Math.floor(time / DAY) * DAY);
  if (step === "month") return Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), 1);
  return day.getTime() - (step === "day" ? 0 : (day.getUTCDay() + 6) % 7) * DAY;
}

/** The hours that can contain costs of some clusters: theirs, and those of clusters without any figures, because costs
 * there are unknown. Without clusters (null), all. */
export function hoursIn<Hours extends Pick<HoursResponse, "rows">>(
  hours: Hours | null,
  clusters: ReadonlySet<string> | null,
): Hours | null {
  if (hours === null || clusters === null) return hours;
  const withFigures = new Set(hours.rows.filter(hasFigures).map(({ cluster }) => cluster));
  return { ...hours, rows: hours.rows.filter(({ cluster }) => clusters.has(cluster) || !withFigures.has(cluster)) };
}

const hasFigures = ({ status }: Pick<HourRow, "status">) => status === "complete" || status === "provisional";

/** The clusters of which hours of a bucket are missing or incomplete. */
export function lackingClusters(
  buckets: Buckets,
  index: number,
  hours: readonly Pick<HourRow, "cluster" | "hour" | "status">[],
): string[] {
  const [start, end] = [buckets.starts[index] ?? 0, endOf(buckets, index)];
  const lacking = hours.filter(({ hour, status }) => {
    const at = Date.parse(hour);
    return at >= start && at < end && (status === "missing" || status === "incomplete");
  });
  return [...new Set(lacking.map(({ cluster }) => cluster))].sort();
}

/** Hours between two labels. From a day on, labels are at midnight. */
const STRIDES = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 1344, 2688];

/** Labels of buckets at their starts, as many as fit: hours at full strides of the day, with the date at midnight and
 * in the first label, and dates for longer buckets. */
export function timeTicks(buckets: Buckets, zone: Zone, most: number): { column: number; text: string }[] {
  const { starts, step } = buckets;
  const room = Math.max(1, most);
  if (step !== "hour") {
    const every = Math.max(1, Math.ceil(starts.length / room));
    return starts.flatMap((start, column) => (column % every === 0 ? [{ column, text: dateOf(start, "utc") }] : []));
  }
  const stride = STRIDES.find((hours) => starts.length / hours <= room) ?? STRIDES.at(-1) ?? 1;
  let midnights = 0;
  const ticks: { column: number; text: string }[] = [];
  starts.forEach((start, column) => {
    const clock = clockOf(start, zone);
    const hour = Number(clock.slice(0, 2));
    const isMidnight = hour === 0;
    const isLabelled = stride < 24 ? hour % stride === 0 : isMidnight && midnights % (stride / 24) === 0;
    if (isMidnight) midnights++;
    if (!isLabelled) return;
    const text = isMidnight ? dateOf(start, zone) : ticks.length === 0 ? `${dateOf(start, zone)}, ${clock}` : clock;
    ticks.push({ column, text });
  });
  return ticks;
}

/** Labels with the pixels at which they begin. The last one ends at the edge, and is left out without room there. */
export function placedTicks(
  ticks: readonly { column: number; text: string }[],
  columns: number,
  width: number,
  letter: number,
): { column: number; text: string; left: number }[] {
  let end = 0;
  return ticks.flatMap(({ column, text }) => {
    const room = text.length * letter;
    const left = Math.min((width * column) / columns, width - room);
    if (left < end) return [];
    end = left + room;
    return [{ column, text, left }];
  });
}

/** Whether a period is complete. Changes are shown only between complete periods. */
export function isWhole(coverage: Pick<Coverage, "hours_expected" | "hours_complete">): boolean {
  return coverage.hours_expected > 0 && coverage.hours_complete === coverage.hours_expected;
}

export interface Gap {
  cluster: string;
  status: HourStatus;
  /** Milliseconds. */
  start: number;
  end: number;
}

/** Hours without figures, consecutive ones of a status merged, in order of cluster and time. */
export function gapsOf(
  hours: readonly (Pick<HourRow, "cluster" | "hour" | "status"> & Partial<Pick<HourRow, "closed">>)[],
): Gap[] {
  const lacking = hours.filter(({ status }) => status === "missing" || status === "incomplete");
  const ordered = lacking
    .map((row) => ({ row, start: Date.parse(row.hour) }))
    .map(({ row, start }) => ({ cluster: row.cluster, status: lackingStatus(row), start, end: start + HOUR }))
    .sort((left, right) =>
      left.cluster < right.cluster ? -1 : left.cluster > right.cluster ? 1 : left.start - right.start,
    );
  const gaps: Gap[] = [];
  for (const next of ordered) {
    const last = gaps.at(-1);
    if (last?.cluster === next.cluster && last.status === next.status && last.end === next.start) last.end = next.end;
    else gaps.push(next);
  }
  return gaps;
}
