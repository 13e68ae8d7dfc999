// What the waste of a period costs in a month.

import type { HourRow } from "./api";
import { type Figure, HOURS_PER_MONTH } from "./format";

/** Hours with figures of each cluster; null if the statuses are not available. */
export function hoursByCluster(
  rows: readonly Pick<HourRow, "cluster" | "status">[] | null,
): Map<string, number> | null {
  if (rows === null) return null;
  const counts = new Map<string, number>();
  for (const { cluster, status } of rows) {
    if (status === "complete" || status === "provisional") counts.set(cluster, (counts.get(cluster) ?? 0) + 1);
  }
  return counts;
}

/** Waste of a month of 730 hours, at the mean rate of the hours with figures; null if there are none. */
export function monthlyWaste(waste: Figure, hours: number): number | null {
  return waste === null || waste === undefined || hours === 0 ? null : (waste / hours) * HOURS_PER_MONTH;
}
