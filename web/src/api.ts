// API client. The page rounds all figures, so doubles are sufficient. The CSV download has exact figures.

import type { components, paths } from "./api-types";
import { accessToken, redirectToSignIn } from "./auth";
import { HOUR, instant } from "./format";

type Schemas = components["schemas"];
export type Alert = Schemas["ActiveAlert"];
export type AlertEvent = Schemas["AlertEvent"];
export type AlertsResponse = Schemas["AlertsResponse"];
export type BudgetsResponse = Schemas["BudgetsResponse"];
export type CostRow = Schemas["CostRow"];
export type CostsResponse = Schemas["CostsResponse"];
export type Coverage = Schemas["PeriodCoverageModel"];
export type FleetResponse = Schemas["FleetResponse"];
export type FleetTotals = Schemas["FleetTotals"];
export type Forecast = Schemas["ForecastResponse"];
export type Holder = Schemas["HolderModel"];
export type HourRow = Schemas["HourRowModel"];
export type HoursResponse = Schemas["HoursResponse"];
export type InferenceResponse = Schemas["InferenceResponse"];
export type Line = Schemas["LineRowModel"];
export type LinesResponse = Schemas["LinesResponse"];
export type ModelRow = Schemas["ModelRowModel"];
export type NodeRow = Schemas["NodeRowModel"];
export type NodesResponse = Schemas["NodesResponse"];
export type PriceRow = Schemas["PriceRow"];
export type Recommendation = Schemas["RecommendationRow"];
export type RestatementsResponse = Schemas["RestatementsResponse"];
export type SplitPolicyRow = Schemas["SplitPolicyRow"];
export type SplitPoliciesResponse = Schemas["SplitPoliciesResponse"];
export type RecommendationsResponse = Schemas["RecommendationsResponse"];

/** What happened at a time, on a chart. */
export interface Mark {
  /** Milliseconds. */
  at: number;
  kind: "alert" | "price";
  text: string;
  /** A view that explains it. */
  href?: string;
}

/** The routes that the page reads. */
export type Path =
  PagedPath | "v1/alerts" | "v1/budgets" | "v1/business-units" | "v1/fleet" | "v1/forecasts" | "v1/recommendations";
type PagedPath =
  TablePath | "v1/hours" | "v1/lines" | "v1/nodes" | "v1/prices" | "v1/restatements" | "v1/split-policies";
/** The routes whose rows are downloaded. */
export type TablePath = "v1/costs" | "v1/inference";

type Operation<Route extends Path> = paths[`/${Route}`]["get"];
type Query<Route extends Path> = NonNullable<Operation<Route>["parameters"]["query"]>;
/** A route's query parameters, as text. */
export type Parameters<Route extends Path> = {
  [Name in keyof Query<Route>]?: Text<NonNullable<Query<Route>[Name]>> | undefined;
};
type Text<Value> = Value extends string | number ? `${Value}` : never;
export type ResponseBody<Route extends Path> = Operation<Route>["responses"][200]["content"]["application/json"];

/** An error response of the API or of API Gateway. */
export class Problem extends Error {
  readonly status: number;

  constructor(status: number, detail: string) {
    super(detail);
    this.status = status;
  }
}

export async function fetchJson<Route extends Path>(
  path: Route,
  parameters: Parameters<Route>,
): Promise<ResponseBody<Route>> {
  return (await (await get(path, parameters)).json()) as ResponseBody<Route>;
}

/** Fetches all pages of a response, up to a maximum. Of a report that the API reads in parts, all parts, added up. */
export async function fetchAll<Route extends PagedPath>(
  path: Route,
  parameters: Parameters<Route>,
  pages = 20,
): Promise<ResponseBody<Route>> {
  const first = await fetchJson(path, parameters);
  if ("row_count" in first && first.row_count === null)
    return (await import("./parts-of-report")).fetchParts(path, parameters, first, pages);
  const rows: unknown[] = [...first.rows];
  let { cursor } = first;
  for (let page = 1; cursor !== null && page < pages; page++) {
    const next: ResponseBody<Route> = await fetchJson(path, { ...parameters, cursor });
    for (const row of next.rows) rows.push(row);
    cursor = next.cursor;
  }
  return { ...first, rows, cursor };
}

/** The roles of routes that not every caller may read. */
const REQUIRED_ROLES: Partial<Record<string, "viewer" | "admin">> = {
  "v1/hours": "viewer",
  "v1/nodes": "viewer",
  "v1/prices": "admin",
  "v1/restatements": "viewer",
  "v1/split-policies": "viewer",
};

/** The widest role of the caller, as the last response said it; null before. */
let role: string | null = null;

/** Why the API would deny a route to a role; undefined if it would not, or if the role is not known. */
export function denialOf(
  path: string,
  role: string | null,
  parameters: Readonly<Record<string, string | undefined>> = {},
): string | undefined {
  const isOfFleet = path === "v1/forecasts" && !parameters["business_unit"];
  const required = isOfFleet ? "viewer" : REQUIRED_ROLES[path];
  if (role === null || required === undefined || role === required || role === "admin") return undefined;
  return `/${path} needs the role ${required === "admin" ? "admin" : "viewer or admin"}`;
}

/** As `fetchJson`, but null if access is denied or the route does not exist. */
export async function fetchIfAllowed<Route extends Path>(
  path: Route,
  parameters: Parameters<Route>,
): Promise<ResponseBody<Route> | null> {
  return ifAllowed(fetchJson(path, parameters));
}

/** Null if access is denied or the route does not exist. */
export async function ifAllowed<Body>(request: Promise<Body>): Promise<Body | null> {
  try {
    return await request;
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

/** Longest period, in hours, of pods, of nodes, and of most dimensions by hour. */
export const MAX_DETAIL_HOURS = 48;
/** Longest period of rows by hour. */
export const MAX_BY_HOUR = 35 * 24 * HOUR;
/** Longest period of statuses of hours. */
const MAX_STATUSES = 100 * 24 * HOUR;

/** Status of each hour of a period; null if access is denied or the period is longer than any that the page offers. */
export async function fetchHours(
  period: Parameters<"v1/hours"> & { start: string; end: string },
): Promise<HoursResponse | null> {
  if (Date.parse(period.end) - Date.parse(period.start) > MAX_STATUSES) return null;
  return ifAllowed(fetchAll("v1/hours", period));
}

export type AlertsOfDay = AlertsResponse & {
  /** The first hour in which rules of a cluster are known to have been evaluated, as alerts and their events show. */
  evaluated: ReadonlyMap<string | null, string>;
};

/** Fetches pending and firing alerts, and the events of the last day. */
export async function fetchAlerts(end: string): Promise<AlertsOfDay> {
  const response = await fetchJson("v1/alerts", { start: instant(Date.parse(end) - WEEK), end });
  const history = response.history.filter(({ hour }) => Date.parse(hour) >= Date.parse(end) - 24 * HOUR);
  return { ...response, history, evaluated: firstEvaluated(response) };
}

/** Events of this time show that rules were evaluated. */
const WEEK = 7 * 24 * HOUR;

/** The first hour of a breach by cluster. Digests have periods instead, and external alerts are evaluated elsewhere. */
export function firstEvaluated({ active, history }: Pick<AlertsResponse, "active" | "history">) {
  const first = new Map<string | null, string>();
  for (const { subject, since } of [
    ...active.filter(({ notification }) => notification?.kind !== "external"),
    ...history.filter(({ event, kind }) => event !== "digest" && kind !== "external"),
  ])
    if (since < (first.get(subject.cluster) ?? "z")) first.set(subject.cluster, since);
  return first;
}

/** Downloads a response as a file. A plain link could not send the token. */
export async function download<Route extends TablePath>(
  path: Route,
  parameters: Parameters<Route>,
  name: string,
): Promise<void> {
  const pages: string[] = [];
  let cursor: string | undefined;
  do {
    const response = await get(path, { ...parameters, cursor });
    const text = await response.text();
    pages.push(pages.length === 0 ? text : text.slice(text.indexOf("\n") + 1));
    cursor = response.headers.get("X-Next-Cursor") ?? undefined;
  } while (cursor !== undefined);
  const parts = pages.length === 1 ? pages : [(await import("./parts-of-report")).addedUp(pages.join(""))];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** What only `gpucost serve` answers; the OpenAPI document is that of a deployment. */
export async function fetchServed<Body>(path: "so-far" | "doctor"): Promise<Body> {
  return (await (await get(`serve/${path}`, {})).json()) as Body;
}

async function get(path: string, parameters: Record<string, string | undefined>): Promise<Response> {
  const present = Object.entries(parameters).filter((entry): entry is [string, string] => Boolean(entry[1]));
  const query = new URLSearchParams(present).toString();
  const denial = denialOf(path, role, parameters); // a refused request would be an error on the browser's console
  if (denial !== undefined) throw new Problem(403, denial);
  for (let attempt = 0; ; attempt++) {
    const token = await accessToken();
    const response = await fetchWithTimeout(query === "" ? path : `${path}?${query}`, token);
    role = response.headers.get("X-Role") ?? role;
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

/** What an error response says. */
export async function detailOf(response: Response): Promise<string> {
  try {
    // The API sends a problem; API Gateway sends a message.
    const { detail, message } = (await response.json()) as Partial<Schemas["Problem"]> & { message?: string };
    if (detail !== undefined) return detail;
    if (message === "Forbidden" || message === "Missing Authentication Token") {
      return "This deployment accepts only requests signed with IAM credentials. Open the page with: gpucost dashboard --stack NAME";
    }
    return message ?? response.statusText;
  } catch {
    return response.statusText;
  }
}
