// Compares a period with the period of the same length before it.

import type { CostRow, Coverage } from "./api";
import { type Figure, ratio } from "./format";

export interface Comparison {
  /** Cluster-hours with figures ÷ those of the period before. 1 if both periods are complete. */
  factor: number;
  isExact: boolean;
}

/** Least share of hours with figures in both periods. With fewer, a change could come from what is missing. */
const LEAST = 0.95;

/** How the figures of two periods compare; null if too many hours are missing in one of them. */
export function comparisonOf(now: Coverage, before: Coverage): Comparison | null {
  const shares = [now, before].map(({ hours_complete, hours_expected }) => ratio(hours_complete, hours_expected) ?? 0);
  if (Math.min(...shares) < LEAST) return null;
  const isExact = shares.every((share) => share === 1);
  return { factor: isExact ? 1 : now.hours_complete / before.hours_complete, isExact };
}

/** A figure minus that of the period before, for the same number of hours with figures. */
export function changeOf(now: Figure, before: Figure, comparison: Comparison | null): Figure {
  if (comparison === null || now == null || before == null) return null;
  return now - before * comparison.factor;
}

/** The change as a share of the figure before. */
export function relativeChange(now: Figure, before: Figure, comparison: Comparison | null): Figure {
  return ratio(changeOf(now, before, comparison), before == null ? null : before * (comparison?.factor ?? 1));
}

/** A sentence for readers if hours are missing; null if both periods are complete. */
export function comparisonNote(now: Coverage, before: Coverage): string | null {
  const comparison = comparisonOf(now, before);
  if (comparison?.isExact === true) return null;
  const counts =
    `${now.hours_complete} of ${now.hours_expected} cluster-hours have figures, ` +
    `and ${before.hours_complete} of ${before.hours_expected} of the period before.`;
  return comparison === null
    ? `Changes are not shown: ${counts}`
    : `Changes are approximate, for the same number of hours: ${counts}`;
}

/** The rows of both periods. A group that only the period before has is a row of zeros. */
export function withVanished(rows: readonly CostRow[], before: readonly CostRow[]): CostRow[] {
  const present = new Set(rows.map(groupKey));
  const zeros = { allocated_usd: 0, effective_usd: 0, waste_usd: 0, unmeasured_usd: 0, cost_usd: 0 };
  const hours = { allocated_gpu_hours: 0, effective_gpu_hours: 0, unmeasured_gpu_hours: 0, unpriced_gpu_hours: 0 };
  const vanished = before.filter((row) => !present.has(groupKey(row))).map((row) => ({ ...row, ...zeros, ...hours }));
  return [...rows, ...vanished];
}

/** Identifies a group within a response. */
export function groupKey({ kind, group }: Pick<CostRow, "kind" | "group">): string {
  return `${kind} ${Object.values(group).join("\n")}`;
}
