// The page's address: everything it shows is in the fragment, so that any view can be shared, and no server logs names.

export type View = "overview" | "unit" | "nodes" | "hour";

export interface Route {
  view: View;
  /** Of the business unit, or the hour's start as an instant; "" elsewhere. */
  name: string;
  /** Period, cluster, filters, what is open. */
  query: Readonly<Record<string, string>>;
}

const VIEWS: readonly View[] = ["overview", "unit", "nodes", "hour"];
export const DEFAULT_WINDOW = "24h";

export function readRoute(fragment: string): Route {
  const [path, query] = splitOnce(fragment.replace(/^#?\/?/, ""), "?");
  const [view, name] = splitOnce(path, "/");
  const known = VIEWS.find((one) => one === view) ?? "overview";
  return { view: known, name: decode(name), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function writeRoute(route: Route): string {
  const query = new URLSearchParams(Object.entries(route.query).filter(([, value]) => value !== "")).toString();
  const name = route.name === "" ? "" : `/${encodeURIComponent(route.name)}`;
  return `#/${route.view}${name}${query === "" ? "" : `?${query}`}`;
}

/** What goes along from view to view. */
const KEPT = ["window", "start", "end", "cluster", "zone", "grain"];

export function linkTo(from: Route, view: View, name = "", query: Record<string, string> = {}): string {
  const kept = Object.fromEntries(Object.entries(from.query).filter(([key]) => KEPT.includes(key)));
  return writeRoute({ view, name, query: { ...kept, ...query } });
}

/** Period parameters as the API takes them. */
export function periodOf(route: Route): Record<string, string> {
  const { start, end, window } = route.query;
  return start !== undefined && end !== undefined ? { start, end } : { window: window ?? DEFAULT_WINDOW };
}

/** A name as a filter's value: commas and the like mean themselves. */
export function exactly(name: string): string {
  return name === "" ? "!*" : name.replace(/[\\,!*]/g, "\\$&");
}

function splitOnce(text: string, at: string): [string, string] {
  const place = text.indexOf(at);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
