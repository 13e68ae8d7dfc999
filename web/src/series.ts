// From rows of an answer to evenly spaced buckets. A bucket without a row is a gap: unknown, not zero.

import { type Figure, HOUR } from "./format";

export interface Buckets {
  /** Starts, in milliseconds. */
  starts: number[];
  end: number;
  step: number;
}

export type Grain = "hour" | "day";

export function bucketsOf(start: string, end: string, grain: Grain): Buckets {
  const step = grain === "hour" ? HOUR : 24 * HOUR;
  const first = Date.parse(start);
  const starts = [first];
  // Days are UTC days; the first and last may be parts of one.
  for (let at = (Math.floor(first / step) + 1) * step; at < Date.parse(end); at += step) starts.push(at);
  return { starts, end: Date.parse(end), step };
}

export function endOf(buckets: Buckets, place: number): number {
  return buckets.starts[place + 1] ?? buckets.end;
}

/** Rows by their bucket; undefined where there is none. */
export function align<Row extends { start: string }>(buckets: Buckets, rows: readonly Row[]): (Row | undefined)[] {
  const found = new Map(rows.map((row) => [Date.parse(row.start), row]));
  return buckets.starts.map((start) => found.get(start));
}

/** Share of each bucket's ended hours that have figures, 0 to 1, over all clusters.
 *
 * Where hours are not told (null), a bucket is known that has a row, and every one of a period that is known as a whole. */
export function knownShare(
  buckets: Buckets,
  hours: readonly { hour: string; status: string }[] | null,
  rows: readonly (object | undefined)[],
  areAllKnown = false,
): number[] {
  const expected = buckets.starts.map(() => 0);
  const known = buckets.starts.map(() => 0);
  let place = 0;
  for (const { hour, status } of hours ?? []) {
    const at = Date.parse(hour);
    if (at < (buckets.starts[place] ?? 0)) place = 0;
    while (place < buckets.starts.length - 1 && at >= endOf(buckets, place)) place++;
    expected[place] = (expected[place] ?? 0) + 1;
    if (status === "complete" || status === "provisional") known[place] = (known[place] ?? 0) + 1;
  }
  return buckets.starts.map((_, at) => {
    const all = expected[at] ?? 0;
    if (all > 0) return (known[at] ?? 0) / all;
    return areAllKnown || rows[at] !== undefined ? 1 : 0;
  });
}

export interface Priced {
  allocated_gpu_hours?: Figure;
  unpriced_gpu_hours?: Figure;
  capacity_gpu_hours?: Figure;
  unpriced_capacity_gpu_hours?: Figure;
}

/** Share of a row's GPU-hours that have a price, 0 to 1: amounts are of these. */
export function pricedShare(row: Priced): number {
  // A fleet's capacity holds what its pods hold.
  const all = Math.max(row.capacity_gpu_hours ?? 0, row.allocated_gpu_hours ?? 0);
  const unpriced = Math.max(row.unpriced_capacity_gpu_hours ?? 0, row.unpriced_gpu_hours ?? 0);
  return all > 0 ? 1 - Math.min(1, unpriced / all) : 1;
}

/** Running sums: what a stacked chart draws, the topmost first. Gaps stay gaps. */
export function stack(columns: readonly (readonly (number | null)[])[]): (number | null)[][] {
  const sums: (number | null)[][] = [];
  columns.forEach((column, at) => {
    const below = sums[at - 1];
    sums.push(column.map((value, place) => (value === null ? null : value + (below?.[place] ?? 0))));
  });
  return sums.reverse();
}

/** The grain that a period is shown in, unless another one was asked for. */
export function grainOf(hours: number, wanted: string | undefined): Grain {
  if (wanted === "hour" && hours <= 35 * 24) return "hour";
  if (wanted === "day") return "day";
  return hours <= 14 * 24 ? "hour" : "day";
}

/** Labels below columns: as many as fit, at starts of days or at full hours. */
export function ticksOf(
  buckets: Buckets,
  label: (start: number) => string,
  most: number,
): { column: number; text: string }[] {
  const every = Math.max(1, Math.ceil(buckets.starts.length / Math.max(1, most)));
  return buckets.starts.flatMap((start, column) => (column % every === 0 ? [{ column, text: label(start) }] : []));
}

/** Whether all of a period is known: a change against a part of one would say what did not happen. */
export function isWhole(coverage: { hours_expected: number; hours_complete: number }): boolean {
  return coverage.hours_expected > 0 && coverage.hours_complete === coverage.hours_expected;
}

export interface Gap {
  cluster: string;
  status: string;
  /** Milliseconds. */
  start: number;
  end: number;
}

/** Hours of which figures are not there, those that follow each other as one; in the order of clusters and time. */
export function gapsOf(hours: readonly { cluster: string; hour: string; status: string }[]): Gap[] {
  const lacking = hours.filter(({ status }) => status === "missing" || status === "incomplete");
  const ordered = lacking
    .map(({ cluster, hour, status }) => ({ cluster, status, start: Date.parse(hour), end: Date.parse(hour) + HOUR }))
    .sort((one, other) =>
      one.cluster < other.cluster ? -1 : one.cluster > other.cluster ? 1 : one.start - other.start,
    );
  const gaps: Gap[] = [];
  for (const next of ordered) {
    const last = gaps.at(-1);
    if (last?.cluster === next.cluster && last.status === next.status && last.end === next.start) last.end = next.end;
    else gaps.push(next);
  }
  return gaps;
}
