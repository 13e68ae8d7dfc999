// The state of the data: statuses and notes of hours, and what to check.

import type { HourRow, Line } from "./api";
import { NEGLIGIBLE } from "./charts/colors";
import { counted, HOUR, percent } from "./format";
import { type Cause, causesOf } from "./unmeasured";

export type HourStatus = "complete" | "provisional" | "incomplete" | "pending" | "missing" | "closed" | "restated";

type HourState = Pick<HourRow, "cluster" | "hour" | "status"> & Partial<Pick<HourRow, "closed">>;

/** Clusters and hours with a restatement. */
export type Restated = ReadonlySet<string>;

export function restatedOf(rows: readonly { cluster: string; hour: string }[]): Restated {
  return new Set(rows.map((row) => `${row.cluster} ${row.hour}`));
}

/** The status of an hour without figures. In a closed month, none will come, whether it is missing or incomplete. */
export function lackingStatus(row: Pick<HourRow, "status"> & Partial<Pick<HourRow, "closed">>): HourStatus {
  return row.closed && (row.status === "missing" || row.status === "incomplete") ? "closed" : row.status;
}

/** The status to show. A restated hour has figures, which replaced earlier ones. */
export function statusOf(row: HourState, restated: Restated): HourStatus {
  if (row.status !== "complete" && row.status !== "provisional") return lackingStatus(row);
  return restated.has(`${row.cluster} ${row.hour}`) ? "restated" : row.status;
}

export const STATUSES: Record<HourStatus, string> = {
  complete: "all figures are final",
  provisional: "usage is final; a price is missing or may still change",
  restated: "newer figures replaced earlier ones, for example after a price change",
  incomplete: "too few samples; the hour adds nothing to any figure and is tried again",
  pending: "the hour has just ended and is being computed",
  missing: "no result; the hour adds nothing to any figure",
  closed: "no figures, and its month is closed; what arrives later is an adjustment, in no figure",
};

/** Hours without figures, and why: their notes, or else what their status means. */
export function lackingHours(rows: readonly (HourState & Pick<HourRow, "notes">)[]) {
  return rows
    .filter(({ status }) => status !== "complete" && status !== "provisional")
    .map((row) => ({ ...row, status: lackingStatus(row) }))
    .map(({ cluster, hour, status, notes }) => ({
      cluster,
      hour,
      status: status === "pending" ? "being computed" : status,
      reason: notes.length > 0 ? notes.join(". ") : STATUSES[status],
    }));
}

export interface NoteGroup {
  cluster: string;
  /** Its text; with "…" in place of names, if they differ. */
  note: string;
  /** The names in which the notes differ; empty if they do not. */
  names: string[];
  hours: number;
  /** Milliseconds. */
  first: number;
  last: number;
}

/** Names of pods with their namespaces, of nodes, and quoted ones, which may differ. */
const NAMES = /'[^']*'|[\w.-]+\/[\w./-]*\w|(?<=\bnode )[\w.-]*\d[\w.-]*/g;
/** Numbers that may differ by hour, and not the digits of names such as g5.12xlarge. */
const NUMBERS = /(?<![\w.])\d+(\.\d+)?(?![\w.]*[A-Za-z])/g;
const PRICED = /^(\S+) is priced at (.*)$/s;

/** One sentence for all instance types that have the same price source. */
function pricedNote(types: ReadonlySet<string>, source: string): string {
  return `${[...types].sort().join(", ")} ${types.size === 1 ? "is" : "are"} priced at ${source}`;
}

/** Notes with one for all instance types that have the same price source. */
export function joinPriced(notes: readonly string[]): string[] {
  const types = new Map<string, Set<string>>();
  for (const [, type = "", source = ""] of notes.map((note) => PRICED.exec(note) ?? []))
    if (type !== "") types.set(source, (types.get(source) ?? new Set<string>()).add(type));
  return [
    ...[...types].map(([source, names]) => pricedNote(names, source)),
    ...notes.filter((note) => !PRICED.test(note)),
  ];
}

/** Notes of hours, one row per cluster and text, most hours first. Numbers and names in a text may differ. */
export function noteGroups(rows: readonly Pick<HourRow, "cluster" | "hour" | "notes">[]): NoteGroup[] {
  const groups = new Map<string, NoteGroup>();
  const types = new Map<string, Set<string>>();
  const names = new Map<string, Set<string>>();
  for (const { cluster, hour, notes } of rows) {
    const at = Date.parse(hour);
    const seen = new Set<string>();
    for (const note of notes) {
      const [, type, source] = PRICED.exec(note) ?? [];
      const key = `${cluster}\n${source ?? note.replace(NAMES, "…").replace(NUMBERS, "#")}`;
      const group = groups.get(key) ?? { cluster, note, names: [], hours: 0, first: at, last: at };
      names.set(key, (names.get(key) ?? new Set<string>()).add((note.match(NAMES) ?? []).join(", ")));
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
  for (const [key, group] of groups) {
    const differing = names.get(key) ?? new Set();
    if (differing.size < 2 || types.has(key)) continue;
    group.note = group.note.replace(NAMES, "…");
    group.names = [...differing].sort();
  }
  return [...groups.values()].sort((left, right) => right.hours - left.hours || right.last - left.last);
}

/** Hours by status. */
export function countsOf(rows: readonly HourState[], restated: Restated): Record<HourStatus, number> {
  const counts: Record<HourStatus, number> = {
    complete: 0,
    provisional: 0,
    restated: 0,
    incomplete: 0,
    pending: 0,
    missing: 0,
    closed: 0,
  };
  for (const row of rows) counts[statusOf(row, restated)]++;
  return counts;
}

export interface Finding {
  cluster: string;
  /** The doctor's check. */
  check: string;
  finding: string;
  /** The hour to look at. */
  hour?: string;
  /** A cause that the pods of an hour show, as the hour's view names it. */
  cause?: Cause;
}

interface Figures {
  unmeasured_gpu_hours: number;
  unpriced_gpu_hours: number;
}

/** The hours whose pods show why GPU-hours are unmeasured: per cluster, the one with the most of them and the newest. */
export function hoursToCheck(
  rows: readonly { start: string; group: Record<string, string>; unmeasured_gpu_hours: number }[],
): { cluster: string; start: string }[] {
  const clusters = new Map<string, { worst: (typeof rows)[number]; newest: (typeof rows)[number] }>();
  for (const row of rows) {
    if (row.unmeasured_gpu_hours <= 1e-6) continue;
    const cluster = row.group["cluster"] ?? "";
    const { worst, newest } = clusters.get(cluster) ?? { worst: row, newest: row };
    clusters.set(cluster, {
      worst: row.unmeasured_gpu_hours > worst.unmeasured_gpu_hours ? row : worst,
      newest: row.start > newest.start ? row : newest,
    });
  }
  return [...clusters].flatMap(([cluster, { worst, newest }]) =>
    [...new Set([worst.start, newest.start])].map((start) => ({ cluster, start })),
  );
}

/** Which of the doctor's checks explain what the hours lack.
 *
 * `pods` are those of the hours to look at. Where they show a cause, it is the answer, as in the view of the hour. */
export function findingsOf(
  rows: readonly HourRow[],
  figures: ReadonlyMap<string, Figures>,
  pods: readonly Line[] = [],
): Finding[] {
  const findings: Finding[] = [];
  for (const cluster of new Set(rows.map((row) => row.cluster))) {
    const hours = rows.filter((row) => row.cluster === cluster);
    const add = (check: string, finding: string, hour?: string) =>
      findings.push({ cluster, check, finding, ...(hour === undefined ? {} : { hour }) });
    const closed = hours.filter((row) => lackingStatus(row) === "closed");
    if (closed.length > 0) {
      const months = [...new Set(closed.map((row) => row.hour.slice(0, 7)))].sort();
      const count = `${counted(closed.length, "hour")} ${closed.length === 1 ? "has" : "have"} no figures`;
      const remedy = "To complete it, run gpucost months reopen, then gpucost backfill.";
      add("Prometheus", `${count} in a closed month (${months.join(", ")}). ${remedy}`, closed.at(-1)?.hour);
    }
    const missing = hours.filter((row) => lackingStatus(row) === "missing");
    if (missing.length > 0) {
      const reason =
        "Prometheus did not answer, or the cluster was not attributed yet. gpucost backfill computes past hours.";
      const count = `${counted(missing.length, "hour")} ${missing.length === 1 ? "has" : "have"} no result`;
      add("Prometheus", `${count}. ${reason}`, missing.at(-1)?.hour);
    }
    const lacking = (check: string, exporter: string, source: "allocation" | "utilization") => {
      const share = (row: HourRow) => row.coverage?.[source] ?? 1;
      const some = hours.filter((row) => 1 - share(row) >= NEGLIGIBLE);
      const [first, ...others] = some;
      if (first === undefined) return;
      const worst = others.reduce((least, row) => (share(row) < share(least) ? row : least), first);
      const lost = 1 - share(worst);
      const samples = lost > 0.9995 ? "All samples" : `${percent(lost)} of the samples`;
      add(
        check,
        others.length === 0
          ? `${samples} of ${exporter} are missing.`
          : `In ${some.length} hours, samples of ${exporter} are missing; ${lost > 0.9995 ? "all" : `${percent(lost)} of them`} in the worst.`,
        worst.hour,
      );
    };
    lacking("kube-state-metrics now, scrape interval", "kube-state-metrics", "allocation");
    const { unmeasured_gpu_hours: unmeasured, unpriced_gpu_hours: unpriced } = figures.get(cluster) ?? {
      unmeasured_gpu_hours: 0,
      unpriced_gpu_hours: 0,
    };
    const causes = causesOf(
      pods.filter((line) => line.cluster === cluster),
      hours,
    );
    // Missing samples are the cause of what is unmeasured: one answer for both.
    if (causes.length === 0) lacking("GPU exporter now, exporter on every node", "the GPU exporter", "utilization");
    for (const cause of causes)
      findings.push({ cluster, check: cause.check, finding: `${cause.cause}.`, hour: cause.hour, cause });
    if (unmeasured > 1e-6 && causes.length === 0)
      add("pods of devices", "Pods held GPUs without a utilization measurement.");
    if (unpriced > 1e-6)
      add("kube_node_labels", "Nodes have no price. Does each node have its instance type, zone and capacity type?");
  }
  return findings;
}

/** End of the last hour of a group, in milliseconds. */
export function endOfGroup({ last }: NoteGroup): number {
  return last + HOUR;
}
