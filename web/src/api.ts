// API client. The page rounds all figures, so doubles are sufficient. The CSV download has exact figures.

import { accessToken, redirectToSignIn } from "./auth";
import { HOUR, instant } from "./format";

export interface Costs {
  allocated_gpu_hours: number | null;
  effective_gpu_hours: number | null;
  allocated_usd: number | null;
  effective_usd: number | null;
  waste_usd: number | null;
  unmeasured_usd: number | null;
  unmeasured_gpu_hours: number | null;
  /** Allocated GPU-hours without a price. Amounts exclude them. */
  unpriced_gpu_hours?: number | null;
}

export interface Capacity {
  capacity_gpu_hours: number | null;
  unpriced_capacity_gpu_hours?: number | null;
  unallocated_gpu_hours: number | null;
  stranded_gpu_hours: number | null;
  unobserved_gpu_hours: number | null;
  node_cost_usd: number | null;
  unallocated_usd: number | null;
  stranded_usd: number | null;
  unobserved_usd: number | null;
  host_usd: number | null;
  residual_usd: number | null;
}

export type Totals = Costs & Capacity;

export interface Coverage {
  hours_expected: number;
  hours_complete: number;
}

export interface Period {
  start: string;
  end: string;
}

export interface CostRow extends Costs, Period {
  group: Record<string, string>;
}

export interface CostsResponse extends Period {
  currency: string;
  rows: CostRow[];
  totals: Totals;
  coverage: Coverage;
  cursor: string | null;
}

export interface FleetResponse extends Period {
  granularity: string;
  currency: string;
  rows: (Totals & Period)[];
  totals: Totals;
  coverage: Coverage;
}

export interface HourRow {
  cluster: string;
  hour: string;
  status: "complete" | "provisional" | "incomplete" | "missing";
  notes: string[];
}

export interface HoursResponse extends Period {
  rows: HourRow[];
}

export interface Holder extends Costs {
  business_unit: string;
  namespace: string;
  workload: string;
  pod: string;
  uid: string;
  resource: string;
  units: number;
  gpu_share: number;
  utilization: number | null;
  utilization_source: string;
}

export interface NodeRow extends Capacity {
  cluster: string;
  hour: string;
  currency: string;
  kind: string;
  node: string;
  node_pool: string;
  instance_type: string;
  capacity_type: string;
  zone: string;
  gpu_model: string;
  price_source: string;
  allocated_usd: number | null;
  effective_usd: number | null;
  waste_usd: number | null;
  unmeasured_usd: number | null;
  holders: Holder[] | null;
}

export interface Line extends Holder {
  cluster: string;
  hour: string;
  currency: string;
  workload_kind: string;
  node: string;
  node_pool: string;
  instance_type: string;
  capacity_type: string;
  gpu_model: string;
  gpu_share_source: string;
  split_policy: string;
  gpu_hourly_usd: number | null;
  price_source: string;
  shared_from: string;
}

export interface Alert {
  id: string;
  rule: string;
  phase: "pending" | "firing";
  subject: Record<string, string | null>;
  since: string;
  acknowledged_by: string | null;
  silenced_by: string[];
}

export interface Rows<Row> {
  rows: Row[];
  cursor: string | null;
}

export type Parameters = Record<string, string | undefined>;

/** An error response of the API or of API Gateway. */
export class Problem extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

export async function fetchJson<Answer>(path: string, parameters: Parameters = {}): Promise<Answer> {
  return (await (await get(path, parameters)).json()) as Answer;
}

/** Fetches all pages of a response, up to a maximum. */
export async function fetchAll<Row, Answer extends Rows<Row>>(
  path: string,
  parameters: Parameters,
  pages = 20,
): Promise<Answer> {
  const first = await fetchJson<Answer>(path, parameters);
  const rows = [...first.rows];
  let cursor = first.cursor;
  for (let page = 1; cursor !== null && page < pages; page++) {
    const next: Answer = await fetchJson<Answer>(path, { ...parameters, cursor });
    for (const row of next.rows) rows.push(row);
    cursor = next.cursor;
  }
  return { ...first, rows, cursor };
}

/** As `ask`, but null if access is denied or the route does not exist. */
export async function fetchIfAllowed<Answer>(path: string, parameters: Parameters = {}): Promise<Answer | null> {
  try {
    return await fetchJson<Answer>(path, parameters);
  } catch (error) {
    if (error instanceof Problem && (error.status === 403 || error.status === 404)) return null;
    throw error;
  }
}

/** The result of an optional request. The view shows its error in place. */
export type Settled<Answer> = { answer: Answer } | { error: Error };

export async function settle<Answer>(asked: Promise<Answer>): Promise<Settled<Answer>> {
  try {
    return { answer: await asked };
  } catch (reason) {
    return { error: reason instanceof Error ? reason : new Error(String(reason)) };
  }
}

/** Most hours in one response. */
const MAX_HOURS = 10_000;

/** Status of each hour of a period; null if access is denied or there are too many hours. */
export async function fetchHours(period: Parameters, { hours_expected: count }: Coverage): Promise<HoursResponse | null> {
  return count > MAX_HOURS ? null : fetchIfAllowed<HoursResponse>("v1/hours", period);
}

/** Fetches pending and firing alerts. */
export async function fetchAlerts(end: string): Promise<Alert[]> {
  const start = instant(Date.parse(end) - 24 * HOUR); // period of the history, which is not shown
  return (await fetchJson<{ active: Alert[] }>("v1/alerts", { start, end })).active;
}

/** Downloads a response as a file. A plain link could not send the token. */
export async function download(path: string, parameters: Parameters, name: string): Promise<void> {
  const parts: string[] = [];
  let cursor: string | undefined;
  do {
    const answer = await get(path, { ...parameters, cursor });
    const text = await answer.text();
    parts.push(parts.length === 0 ? text : text.slice(text.indexOf("\n") + 1));
    cursor = answer.headers.get("X-Next-Cursor") ?? undefined;
  } while (cursor !== undefined);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function get(path: string, parameters: Parameters): Promise<Response> {
  const given = Object.entries(parameters).filter((one): one is [string, string] => Boolean(one[1]));
  const query = new URLSearchParams(given).toString();
  for (let tried = 0; ; tried++) {
    const token = await accessToken();
    const answer = await fetchWithTimeout(query === "" ? path : `${path}?${query}`, token);
    if (answer.ok) return answer;
    if (answer.status === 401 && token !== null) await redirectToSignIn();
    const pause = PAUSES[tried];
    if (pause === undefined || !BUSY.includes(answer.status)) throw new Problem(answer.status, await detailOf(answer));
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

/** Status codes of throttling by API Gateway or Lambda. */
const BUSY = [429, 503];
/** Milliseconds to wait before each retry. */
const PAUSES = [500, 2000];
/** Request timeout in milliseconds. API Gateway's timeout is 30 seconds. */
const TIMEOUT = 60_000;

async function fetchWithTimeout(address: string, token: string | null): Promise<Response> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), TIMEOUT);
  try {
    const headers: Record<string, string> = token === null ? {} : { Authorization: `Bearer ${token}` };
    return await fetch(address, { headers, signal: abort.signal });
  } catch {
    const isLate = abort.signal.aborted;
    throw new Problem(0, isLate ? "The API did not respond within one minute." : "The API is not reachable.");
  } finally {
    clearTimeout(timer);
  }
}

async function detailOf(answer: Response): Promise<string> {
  try {
    const tableRows = (await answer.json()) as { detail?: string; message?: string };
    if (tableRows.detail !== undefined) return tableRows.detail;
    if (tableRows.message === "Forbidden" || tableRows.message === "Missing Authentication Token") {
      return "This deployment accepts only requests signed with IAM credentials. Open the page with: gpucost dashboard --stack NAME";
    }
    return tableRows.message ?? answer.statusText;
  } catch {
    return answer.statusText;
  }
}
