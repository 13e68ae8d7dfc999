// Asks the API. Answers are shown rounded, so that doubles do; what is exact to the last digit is the CSV.

import { accessToken, mustSignIn } from "./auth";
import { HOUR, instant } from "./format";

export interface Costs {
  allocated_gpu_hours: number | null;
  effective_gpu_hours: number | null;
  allocated_usd: number | null;
  effective_usd: number | null;
  waste_usd: number | null;
  unmeasured_usd: number | null;
  unmeasured_gpu_hours: number | null;
  /** Held, and no price is known: amounts leave them out. */
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

export interface CostsAnswer extends Period {
  currency: string;
  rows: CostRow[];
  totals: Totals;
  coverage: Coverage;
  cursor: string | null;
}

export interface FleetAnswer extends Period {
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

export interface HoursAnswer extends Period {
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
  about: Record<string, string | null>;
  since: string;
  acknowledged_by: string | null;
  silenced_by: string[];
}

export interface Rows<Row> {
  rows: Row[];
  cursor: string | null;
}

export type Parameters = Record<string, string | undefined>;

/** What the API, or API Gateway before it, refused or could not do. */
export class Problem extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

export async function ask<Answer>(path: string, parameters: Parameters = {}): Promise<Answer> {
  return (await (await get(path, parameters)).json()) as Answer;
}

/** All pages of an answer, up to a number of them. */
export async function askAll<Row, Answer extends Rows<Row>>(
  path: string,
  parameters: Parameters,
  pages = 20,
): Promise<Answer> {
  const first = await ask<Answer>(path, parameters);
  const rows = [...first.rows];
  let cursor = first.cursor;
  for (let page = 1; cursor !== null && page < pages; page++) {
    const next: Answer = await ask<Answer>(path, { ...parameters, cursor });
    for (const row of next.rows) rows.push(row);
    cursor = next.cursor;
  }
  return { ...first, rows, cursor };
}

/** As `ask`, but null where the caller may not, or there is no such route. */
export async function askIfAllowed<Answer>(path: string, parameters: Parameters = {}): Promise<Answer | null> {
  try {
    return await ask<Answer>(path, parameters);
  } catch (error) {
    if (error instanceof Problem && (error.status === 403 || error.status === 404)) return null;
    throw error;
  }
}

/** What a view can do without: where it fails, that is said in its own place. */
export type Side<Answer> = { answer: Answer } | { error: Error };

export async function aside<Answer>(asked: Promise<Answer>): Promise<Side<Answer>> {
  try {
    return { answer: await asked };
  } catch (reason) {
    return { error: reason instanceof Error ? reason : new Error(String(reason)) };
  }
}

/** Hours of which one answer tells, at most. */
const MOST_HOURS = 10_000;

/** Where each hour of a period stands; null where the caller may not know, or there are too many to tell. */
export async function askHours(period: Parameters, { hours_expected: count }: Coverage): Promise<HoursAnswer | null> {
  return count > MOST_HOURS ? null : askIfAllowed<HoursAnswer>("v1/hours", period);
}

/** Alerts that are pending or firing now. */
export async function askAlerts(end: string): Promise<Alert[]> {
  const start = instant(Date.parse(end) - 24 * HOUR); // of the history, which is not shown
  return (await ask<{ active: Alert[] }>("v1/alerts", { start, end })).active;
}

/** An answer as a file: fetched, since a link could not carry the token. */
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
    const answer = await fetched(query === "" ? path : `${path}?${query}`, token);
    if (answer.ok) return answer;
    if (answer.status === 401 && token !== null) await mustSignIn();
    const pause = PAUSES[tried];
    if (pause === undefined || !BUSY.includes(answer.status)) throw new Problem(answer.status, await detailOf(answer));
    await new Promise((resume) => setTimeout(resume, pause));
  }
}

/** What API Gateway answers where it is throttled, or the function is. */
const BUSY = [429, 503];
/** Milliseconds to wait before asking again. */
const PAUSES = [500, 2000];
/** Milliseconds after which no answer comes any more: API Gateway waits 30 seconds. */
const PATIENCE = 60_000;

async function fetched(address: string, token: string | null): Promise<Response> {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), PATIENCE);
  try {
    const headers: Record<string, string> = token === null ? {} : { Authorization: `Bearer ${token}` };
    return await fetch(address, { headers, signal: patience.signal });
  } catch {
    const isLate = patience.signal.aborted;
    throw new Problem(0, isLate ? "The API did not answer within a minute." : "The API could not be reached.");
  } finally {
    clearTimeout(timer);
  }
}

async function detailOf(answer: Response): Promise<string> {
  try {
    const told = (await answer.json()) as { detail?: string; message?: string };
    if (told.detail !== undefined) return told.detail;
    if (told.message === "Forbidden" || told.message === "Missing Authentication Token") {
      return "This deployment takes requests signed by IAM alone. Open the page through: gpucost dashboard --stack NAME";
    }
    return told.message ?? answer.statusText;
  } catch {
    return answer.statusText;
  }
}
