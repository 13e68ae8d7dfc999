// The URL fragment contains the whole state of the page, so that views can be shared and names are not logged.

export type View = "overview" | "unit" | "nodes" | "hour" | "savings" | "health" | "explore" | "glossary";

export interface Route {
  view: View;
  /** Name of the business unit, or start of the hour; "" in other views. */
  name: string;
  /** Period, cluster, filters and open details. */
  query: Readonly<Record<string, string>>;
}

const VIEWS: readonly View[] = ["overview", "unit", "nodes", "hour", "savings", "health", "explore", "glossary"];
export const DEFAULT_WINDOW = "24h";

export function readRoute(fragment: string): Route {
  const [path, query] = splitOnce(fragment.replace(/^#?\/?/, ""), "?");
  const [view, name] = splitOnce(path, "/");
  const viewName = VIEWS.find((candidate) => candidate === view) ?? "overview";
  return { view: viewName, name: decode(name), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function writeRoute(route: Route): string {
  const query = new URLSearchParams(Object.entries(route.query).filter(([, value]) => value !== "")).toString();
  const name = route.name === "" ? "" : `/${encodeURIComponent(route.name)}`;
  return `#/${route.view}${name}${query === "" ? "" : `?${query}`}`;
}

/** Parameters that are kept between views. */
const KEPT = ["window", "start", "end", "cluster", "zone", "grain"];

export function linkTo(from: Route, view: View, name = "", query: Record<string, string> = {}): string {
  const kept = Object.fromEntries(Object.entries(from.query).filter(([key]) => KEPT.includes(key)));
  return writeRoute({ view, name, query: { ...kept, ...query } });
}

/** The API's period parameters. */
export function periodOf(route: Route): Record<string, string> {
  const { start, end, window } = route.query;
  return start !== undefined && end !== undefined ? { start, end } : { window: window ?? DEFAULT_WINDOW };
}

/** A filter that matches exactly this name, with special characters escaped. */
export function exactly(name: string): string {
  return name === "" ? "!*" : name.replace(/[\\,!*]/g, "\\$&");
}

function splitOnce(text: string, at: string): [string, string] {
  const index = text.indexOf(at);
  return index < 0 ? [text, ""] : [text.slice(0, index), text.slice(index + 1)];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
