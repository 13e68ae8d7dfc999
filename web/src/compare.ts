// Compares a period with an earlier one of the same length.

import { NEEDS } from "./amounts";
import type { CostRow, Coverage } from "./api";
import { counted, DAY, type Figure, HOUR, instant, moment, ratio, type Zone } from "./format";

type CostKey = keyof typeof NEEDS;

/** A period to compare with. */
export interface Earlier {
  start: string;
  end: string;
  /** In sentences, for example "a week before". */
  name: string;
}

/** The periods that readers can choose to compare with. */
export const COMPARISONS: Readonly<Record<string, string>> = {
  "": "Auto: the same weekdays before",
  week: "A week before",
  previous: "Previous period",
};

const WEEK = 7 * DAY;

/** Earlier periods, the best first: the same hours of the same weekdays, then the period directly before. If one of them
 * was chosen, there is no other. */
export function earlierPeriods(start: string, end: string, chosen = ""): [Earlier, ...Earlier[]] {
  const length = Date.parse(end) - Date.parse(start);
  const weeks = Math.ceil(length / WEEK);
  const shifted = (by: number, name: string) => ({
    start: instant(Date.parse(start) - by),
    end: instant(Date.parse(end) - by),
    name,
  });
  const aligned = shifted(weeks * WEEK, weeks === 1 ? "a week before" : `${weeks} weeks before`);
  if (length === weeks * WEEK || chosen === "week") return [aligned];
  const previous = shifted(length, `the previous ${lengthText(length)}`);
  return chosen === "previous" ? [previous] : [aligned, previous];
}

function lengthText(length: number): string {
  return length % DAY === 0 && length > DAY ? counted(length / DAY, "day") : counted(length / HOUR, "hour");
}

export interface Compared<Body> {
  period: Earlier;
  body: Body;
  /** Why it is not the same hours of the same weekdays, in words; null if it is, or if the reader chose it. */
  reason: string | null;
}

/** Fetches the chosen earlier period. If none was chosen, it is the first one that has enough figures; if none has, the
 * default. */
export async function fetchEarlier<Body extends { coverage: Coverage }>(
  now: { start: string; end: string; coverage: Coverage },
  load: (period: { start: string; end: string }) => Promise<Body>,
  chosen?: string,
): Promise<Compared<Body>> {
  const [first, other] = earlierPeriods(now.start, now.end, chosen);
  const fetched = ({ start, end }: Earlier) => load({ start, end });
  const body = await fetched(first);
  if (other === undefined || isEnough(body.coverage)) return { period: first, body, reason: null };
  const otherBody = await fetched(other);
  if (!isEnough(otherBody.coverage)) return { period: first, body, reason: null };
  const { hours_complete: complete, hours_expected: expected } = body.coverage;
  const hours = complete === 0 ? "no figures" : `figures for ${complete} of ${counted(expected, "cluster-hour")}`;
  return { period: other, body: otherBody, reason: `Not with ${first.name}, which has ${hours}` };
}

/** Which period figures are compared with, when it was, and why it is not the default, for example
 * "a week before (Wed 11 Nov, 05:00 UTC to Thu 12 Nov, 05:00 UTC)". */
export function earlierText({ period, reason }: Omit<Compared<unknown>, "body">, zone: Zone): string {
  const when = `${moment(period.start, zone)} to ${moment(period.end, zone)}`;
  return `${period.name} (${when})${reason === null ? "" : `. ${reason}`}`;
}

export interface Comparison {
  /** Cluster-hours with figures ÷ those of the earlier period. 1 if both periods are complete. */
  factor: number;
  isExact: boolean;
}

/** Least share of hours with figures in both periods. With fewer, a change could come from what is missing. */
const LEAST = 0.95;

const completeShare = ({ hours_complete, hours_expected }: Coverage) => ratio(hours_complete, hours_expected) ?? 0;

const isEnough = (coverage: Coverage) => completeShare(coverage) >= LEAST;

/** How the figures of two periods compare; null if too many hours are missing in one of them. */
export function comparisonOf(now: Coverage, before: Coverage): Comparison | null {
  if (!isEnough(now) || !isEnough(before)) return null;
  const isExact = [now, before].every((coverage) => completeShare(coverage) === 1);
  return { factor: isExact ? 1 : now.hours_complete / before.hours_complete, isExact };
}

/** A figure of the earlier period, for as many hours as have figures now. */
export function scaled(before: Figure, comparison: Comparison | null): Figure {
  return comparison === null || before == null ? null : before * comparison.factor;
}

/** A figure minus that of the earlier period, for the same number of hours with figures. */
export function changeOf(now: Figure, before: Figure, comparison: Comparison | null): Figure {
  const was = scaled(before, comparison);
  return now == null || was == null ? null : now - was;
}

/** The change as a share of the figure before. */
export function relativeChange(now: Figure, before: Figure, comparison: Comparison | null): Figure {
  return ratio(changeOf(now, before, comparison), scaled(before, comparison));
}

/** A sentence for readers if hours are missing; null if both periods are complete. */
export function comparisonNote(now: Coverage, before: Coverage, name: string): string | null {
  const comparison = comparisonOf(now, before);
  if (comparison?.isExact === true) return null;
  if (before.hours_complete === 0)
    return `Changes are not shown. There are no figures of the earlier period (${name}): it is older than the data, or all its hours are missing.`;
  const missing = ({ hours_expected: expected, hours_complete: complete }: Coverage, when: string) =>
    complete === expected ? [] : [`${expected - complete} of ${expected} ${when}`];
  const counts = [...missing(now, "now"), ...missing(before, name)].join(", and ");
  return `Changes are ${comparison === null ? "not shown" : "approximate"}. Cluster-hours without figures: ${counts}.`;
}

/** The rows of both periods. A group that only the earlier period has is a row of zeros. */
export function withVanished(rows: readonly CostRow[], before: readonly CostRow[]): CostRow[] {
  const present = new Set(rows.map(groupKey));
  const vanished = before.filter((row) => !present.has(groupKey(row))).map((row) => ({ ...row, ...zerosOf(row) }));
  return [...rows, ...vanished];
}

/** Zeros in place of a row's amounts, except for energy that is not known. */
function zerosOf(row: CostRow): Pick<CostRow, CostKey> & { cost_usd: 0 } {
  const isKnown = (key: CostKey) => NEEDS[key] === "nothing" || NEEDS[key] === "price" || row[key] != null;
  const zeros = (Object.keys(NEEDS) as CostKey[]).map((key) => [key, isKnown(key) ? 0 : null]);
  return { ...(Object.fromEntries(zeros) as Pick<CostRow, CostKey>), cost_usd: 0 };
}

/** Identifies a group within a response. */
export function groupKey({ kind, group }: Pick<CostRow, "kind" | "group">): string {
  return `${kind} ${Object.values(group).join("\n")}`;
}
