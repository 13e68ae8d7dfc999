// The state of the data: statuses and notes of hours, and what to check.

import type { HourRow, Line } from "./api";
import { HOUR, percent } from "./format";
import { causesOf } from "./unmeasured";

export type HourStatus = "complete" | "provisional" | "incomplete" | "missing" | "restated";

/** Clusters and hours with a restatement. */
export type Restated = ReadonlySet<string>;

export function restatedOf(rows: readonly { cluster: string; hour: string }[]): Restated {
  return new Set(rows.map((row) => `${row.cluster} ${row.hour}`));
}

/** The status to show. A restated hour has figures, which replaced earlier ones. */
export function statusOf(row: Pick<HourRow, "cluster" | "hour" | "status">, restated: Restated): HourStatus {
  if (row.status === "missing" || row.status === "incomplete") return row.status;
  return restated.has(`${row.cluster} ${row.hour}`) ? "restated" : row.status;
}

export const STATUSES: Record<HourStatus, string> = {
  complete: "all figures are final",
  provisional: "usage is final; a price is missing or may still change",
  restated: "newer figures replaced earlier ones, for example after a price change",
  incomplete: "too few samples; the hour adds nothing to any figure and is tried again",
  missing: "no result; the hour adds nothing to any figure",
};

export interface NoteGroup {
  cluster: string;
  note: string;
  hours: number;
  /** Milliseconds. */
  first: number;
  last: number;
}

/** Notes of several hours, one row per cluster and text, most hours first. Numbers in a note may differ by hour. */
export function noteGroups(rows: readonly Pick<HourRow, "cluster" | "hour" | "notes">[]): NoteGroup[] {
  const groups = new Map<string, NoteGroup>();
  for (const row of rows) {
    const at = Date.parse(row.hour);
    const texts = new Map(row.notes.map((note) => [note.replace(/\d+(\.\d+)?/g, "#"), note]));
    for (const [pattern, note] of texts) {
      const key = `${row.cluster}\n${pattern}`;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, { cluster: row.cluster, note, hours: 1, first: at, last: at });
      else {
        group.hours++;
        group.first = Math.min(group.first, at);
        if (at > group.last) [group.last, group.note] = [at, note];
      }
    }
  }
  return [...groups.values()].sort((left, right) => right.hours - left.hours || right.last - left.last);
}

/** Hours by status. */
export function countsOf(
  rows: readonly Pick<HourRow, "cluster" | "hour" | "status">[],
  restated: Restated,
): Record<HourStatus, number> {
  const counts: Record<HourStatus, number> = { complete: 0, provisional: 0, restated: 0, incomplete: 0, missing: 0 };
  for (const row of rows) counts[statusOf(row, restated)]++;
  return counts;
}

export interface Finding {
  cluster: string;
  /** The doctor's check. */
  check: string;
  finding: string;
}

interface Figures {
  unmeasured_gpu_hours: number;
  unpriced_gpu_hours: number;
}

/** Which of the doctor's checks explain what the hours lack, as the hour view says for the pods of the newest hour. */
export function findingsOf(
  rows: readonly HourRow[],
  figures: ReadonlyMap<string, Figures>,
  newestPods: readonly Line[] = [],
): Finding[] {
  const findings: Finding[] = [];
  for (const cluster of new Set(rows.map((row) => row.cluster))) {
    const hours = rows.filter((row) => row.cluster === cluster);
    const add = (check: string, finding: string) => findings.push({ cluster, check, finding });
    const missing = hours.filter((row) => row.status === "missing").length;
    if (missing > 0) {
      const reason =
        "Prometheus did not answer, or the cluster was not attributed yet. gpucost backfill computes past hours.";
      add("Prometheus", `${missing} hours have no result. ${reason}`);
    }
    const lacking = (check: string, evidence: string, source: "allocation" | "utilization") => {
      const shares = hours.map((row) => row.coverage?.[source] ?? 1).filter((share) => share < 1);
      if (shares.length > 0)
        add(
          check,
          `${shares.length === 1 ? "1 hour lacks" : `${shares.length} hours lack`} scrapes that show ${evidence}, at most ${percent(1 - Math.min(...shares))} of an hour's.`,
        );
    };
    lacking("kube-state-metrics now, scrape interval", "which pods held GPUs", "allocation");
    lacking("GPU exporter now, exporter on every node", "utilization", "utilization");
    const { unmeasured_gpu_hours: unmeasured, unpriced_gpu_hours: unpriced } = figures.get(cluster) ?? {
      unmeasured_gpu_hours: 0,
      unpriced_gpu_hours: 0,
    };
    const causes = causesOf(
      newestPods.filter((line) => line.cluster === cluster),
      hours,
    );
    for (const { cause, check } of causes) add(check, `${cause}, in the newest hour.`);
    if (unmeasured > 1e-6 && causes.length === 0)
      add("pods of devices", "Pods held GPUs without a utilization measurement before the newest hour.");
    if (unpriced > 1e-6)
      add("kube_node_labels", "Nodes have no price. Does each node have its instance type, zone and capacity type?");
  }
  return findings;
}

/** End of the last hour of a group, in milliseconds. */
export function endOfGroup({ last }: NoteGroup): number {
  return last + HOUR;
}
