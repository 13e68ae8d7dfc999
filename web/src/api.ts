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

export async function fetchJson<Body>(path: string, parameters: Parameters = {}): Promise<Body> {
  return (await (await get(path, parameters)).json()) as Body;
}

/** Fetches all pages of a response, up to a maximum. */
export async function fetchAll<Row, Body extends Rows<Row>>(
  path: string,
  parameters: Parameters,
  pages = 20,
): Promise<Body> {
  const first = await fetchJson<Body>(path, parameters);
  const rows = [...first.rows];
  let cursor = first.cursor;
  for (let page = 1; cursor !== null && page < pages; page++) {
    const next: Body = await fetchJson<Body>(path, { ...parameters, cursor });
    for (const row of next.rows) rows.push(row);
    cursor = next.cursor;
  }
  return { ...first, rows, cursor };
}

/** As `fetchJson`, but null if access is denied or the route does not exist. */
export async function fetchIfAllowed<Body>(path: string, parameters: Parameters = {}): Promise<Body | null> {
  try {
    return await fetchJson<Body>(path, parameters);
  } catch (error) {
    if (error instanceof Problem && (error.status === 403 || error.status === 404)) return null;
    throw error;
  }
}

/** The result of an optional request. The view shows its error in place. */
export type Settled<Body> = { response: Body } | { error: Error };

export async function settle<Body>(request: Promise<Body>): Promise<Settled<Body>> {
  try {
    return { response: await request };
  } catch (reason) {
    return { error: reason instanceof Error ? reason : new Error(String(reason)) };
  }
}

/** Most hours in one response. */
const MAX_HOURS = 10_000;

/** Status of each hour of a period; null if access is denied or there are too many hours. */
export async function fetchHours(
  period: Parameters,
  { hours_expected: count }: Coverage,
): Promise<HoursResponse | null> {
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
    const response = await get(path, { ...parameters, cursor });
    const text = await response.text();
    parts.push(parts.length === 0 ? text : text.slice(text.indexOf("\n") + 1));
    cursor = response.headers.get("X-Next-Cursor") ?? undefined;
  } while (cursor !== undefined);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function get(path: string, parameters: Parameters): Promise<Response> {
  const present = Object.entries(parameters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const query = new URLSearchParams(present).toString();
  for (let attempt = 0; ; attempt++) {
    const token = await accessToken();
    const response = await fetchWithTimeout(query === "" ? path : `${path}?${query}`, token);
    if (response.ok) return response;
    if (response.status === 401 && token !== null) await redirectToSignIn();
    const pause = PAUSES[attempt];
    if (pause === undefined || !BUSY.includes(response.status))
      throw new Problem(response.status, await detailOf(response));
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

async function detailOf(response: Response): Promise<string> {
  try {
    const tableRows = (await response.json()) as { detail?: string; message?: string };
    if (tableRows.detail !== undefined) return tableRows.detail;
    if (tableRows.message === "Forbidden" || tableRows.message === "Missing Authentication Token") {
      return "This deployment accepts only requests signed with IAM credentials. Open the page with: gpucost dashboard --stack NAME";
    }
    return tableRows.message ?? response.statusText;
  } catch {
    return response.statusText;
  }
}
