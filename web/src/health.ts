// The state of the data: statuses and notes of hours, and what to check.

import type { HourRow, Line } from "./api";
import { counted, HOUR, percent } from "./format";
import { causesOf } from "./unmeasured";

export type HourStatus = "complete" | "provisional" | "incomplete" | "pending" | "missing" | "restated";

/** Clusters and hours with a restatement. */
export type Restated = ReadonlySet<string>;

export function restatedOf(rows: readonly { cluster: string; hour: string }[]): Restated {
  return new Set(rows.map((row) => `${row.cluster} ${row.hour}`));
}

/** The status to show. A restated hour has figures, which replaced earlier ones. */
export function statusOf(row: Pick<HourRow, "cluster" | "hour" | "status">, restated: Restated): HourStatus {
  if (row.status !== "complete" && row.status !== "provisional") return row.status;
  return restated.has(`${row.cluster} ${row.hour}`) ? "restated" : row.status;
}

export const STATUSES: Record<HourStatus, string> = {
  complete: "all figures are final",
  provisional: "usage is final; a price is missing or may still change",
  restated: "newer figures replaced earlier ones, for example after a price change",
  incomplete: "too few samples; the hour adds nothing to any figure and is tried again",
  pending: "the hour has just ended and is being computed",
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

/** Numbers that may differ by hour, and not the digits of names such as g5.12xlarge. */
const NUMBERS = /(?<![\w.])\d+(\.\d+)?(?![\w.]*[A-Za-z])/g;
const PRICED = /^(\S+) is priced at (.*)$/s;

/** One sentence for all instance types that have the same price source. */
function pricedNote(types: ReadonlySet<string>, source: string): string {
  return `${[...types].sort().join(", ")} ${types.size === 1 ? "is" : "are"} priced at ${source}`;
}

/** An hour's notes, with one for all instance types that have the same price source. */
export function joinPriced(notes: readonly string[]): string[] {
  const types = new Map<string, Set<string>>();
  for (const [, type = "", source = ""] of notes.map((note) => PRICED.exec(note) ?? []))
    if (type !== "") types.set(source, (types.get(source) ?? new Set<string>()).add(type));
  return [
    ...[...types].map(([source, names]) => pricedNote(names, source)),
    ...notes.filter((note) => !PRICED.test(note)),
  ];
}

/** Notes of several hours, one row per cluster and text, most hours first. Numbers in a note may differ by hour. */
export function noteGroups(rows: readonly Pick<HourRow, "cluster" | "hour" | "notes">[]): NoteGroup[] {
  const groups = new Map<string, NoteGroup>();
  const types = new Map<string, Set<string>>();
  for (const { cluster, hour, notes } of rows) {
    const at = Date.parse(hour);
    const seen = new Set<string>();
    for (const note of notes) {
      const [, type, source] = PRICED.exec(note) ?? [];
      const key = `${cluster}\n${source ?? note.replace(NUMBERS, "#")}`;
      const group = groups.get(key) ?? { cluster, note, hours: 0, first: at, last: at };
      if (type !== undefined && source !== undefined) {
        types.set(key, (types.get(key) ?? new Set<string>()).add(type));
        group.note = pricedNote(types.get(key) ?? new Set(), source);
      } else if (at > group.last) group.note = note;
      if (!seen.has(key)) group.hours++;
      seen.add(key);
      group.first = Math.min(group.first, at);
      group.last = Math.max(group.last, at);
      groups.set(key, group);
    }
  }
  return [...groups.values()].sort((left, right) => right.hours - left.hours || right.last - left.last);
}

/** Hours by status. */
export function countsOf(
  rows: readonly Pick<HourRow, "cluster" | "hour" | "status">[],
  restated: Restated,
): Record<HourStatus, number> {
  const counts: Record<HourStatus, number> = {
    complete: 0,
    provisional: 0,
    restated: 0,
    incomplete: 0,
    pending: 0,
    missing: 0,
  };
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
      add("Prometheus", `${counted(missing, "hour")} ${missing === 1 ? "has" : "have"} no result. ${reason}`);
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
