// The report of `gpucost doctor`, as `gpucost serve` answers it: what `gpucost doctor --format json` prints.

export interface DoctorCheck {
  name: string;
  metric: string;
  status: string;
  severity: string;
  series: number | null;
  scrape_interval_seconds: number | null;
}

export interface DoctorFinding {
  /** Of the most important problem; "note" if there is nothing to change. */
  severity: string;
  finding: string;
  /** Further findings that the same change fixes. */
  same_change: string[];
  /** Findings that follow from it. */
  consequences: string[];
  /** What to change or to paste. */
  change: string | null;
}

export interface ClusterReport {
  cluster: string;
  attribution: "possible" | "wrong" | "impossible";
  conclusion: string;
  /** Null if Prometheus does not answer. */
  summary: { holding: string; use: string; price: string } | null;
  findings: DoctorFinding[];
  setup: { server: string | null; collectors: string[]; pages: string[] } | null;
  checks: DoctorCheck[];
  utilization: { signal: string | null; source: string; gpus: number }[];
}

export interface DoctorResponse {
  examined_at: string;
  /** The command that prints the same. */
  command: string;
  clusters: ClusterReport[];
}

/** The reports of a view's cluster; of all, if it has selected none. */
export function reportsOf({ clusters }: DoctorResponse, selected = ""): ClusterReport[] {
  return clusters.filter(({ cluster }) => selected === "" || cluster === selected);
}

/** How the metrics are collected, as the command prints it; null if Prometheus does not answer. */
export function setupText({ setup }: ClusterReport): string | null {
  if (setup === null) return null;
  const collectors = setup.collectors.join(", ") || "unknown";
  return `collector: ${collectors}; server: ${setup.server ?? "unknown"} (${setup.pages.join(", ")})`;
}

/** Whether a finding asks for a change that figures need. */
export const isAlarming = ({ severity }: DoctorFinding) => severity === "required";

/** A check with its metric, if that has another name. */
export function checkTitle({ name, metric }: DoctorCheck): string {
  return metric === "" || metric === name ? name : `${name} (${metric})`;
}
