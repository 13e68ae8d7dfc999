// The URL fragment contains the whole state of the page, so that views can be shared and names are not logged.

const VIEWS = [
  "overview",
  "unit",
  "nodes",
  "hour",
  "savings",
  "health",
  "explore",
  "models",
  "model",
  "consumer",
  "splits",
  "doctor",
  "glossary",
] as const;
/** "missing" is an address that no view has. */
export type View = (typeof VIEWS)[number] | "missing";

export interface Route {
  view: View;
  /** Name of the business unit, model or consumer, or start of the hour, or the address that no view has; "" in other views. */
  name: string;
  /** Period, cluster, filters and open details. */
  query: Readonly<Record<string, string>>;
}

const DEFAULT_WINDOW = "24h";

/** The window of a view without a period: of nodes, a week, because they are used differently at weekends. */
export function windowOf({ view, query }: Route): string {
  return query["window"] ?? (view === "nodes" ? "7d" : DEFAULT_WINDOW);
}

export function readRoute(fragment: string): Route {
  const [path, query] = splitOnce(fragment.replace(/^#?\/?/, ""), "?");
  const [view, name] = splitOnce(path, "/");
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (view === "") return { view: "overview", name: "", query: parameters };
  const match = VIEWS.find((candidate) => candidate === view);
  return match === undefined
    ? { view: "missing", name: decode(path), query: parameters }
    : { view: match, name: decode(name), query: parameters };
}

export function writeRoute(route: Route): string {
  const query = new URLSearchParams(Object.entries(route.query).filter(([, value]) => value !== "")).toString();
  const name = route.name === "" ? "" : `/${encodeURIComponent(route.name)}`;
  return `#/${route.view}${name}${query === "" ? "" : `?${query}`}`;
}

/** Parameters that are kept between views. */
const KEPT = ["window", "start", "end", "cluster", "zone", "grain", "vs"];

/** Views that show one cluster after a drill-down, without selecting it for the other views. */
const DETAILS: readonly View[] = ["nodes", "hour"];

export function linkTo(from: Route, view: View, name = "", query: Record<string, string> = {}): string {
  const kept = Object.fromEntries(Object.entries(from.query).filter(([key]) => KEPT.includes(key)));
  const { cluster, ...others } = query;
  if (cluster === undefined) return writeRoute({ view, name, query: { ...kept, ...query } });
  const isLocal = DETAILS.includes(view);
  if (isLocal && cluster === kept["cluster"]) return writeRoute({ view, name, query: { ...kept, ...others } });
  return writeRoute({ view, name, query: { ...kept, ...others, [isLocal ? "in" : "cluster"]: cluster } });
}

/** The cluster of a view: that of the drill-down, or the one that is selected for all views. */
export function clusterOf({ query }: Route): string | undefined {
  return query["in"] ?? query["cluster"];
}

/** A link to nodes with the figures of this view: by itself, that view shows a week. */
export function linkToNodes(from: Route, query: Record<string, string> = {}): string {
  const window = from.query["start"] === undefined ? { window: windowOf(from) } : {};
  return linkTo(from, "nodes", "", { ...window, ...query });
}

/** The API's period parameters. */
export function periodOf(route: Route): Record<string, string> {
  const { start, end } = route.query;
  return start !== undefined && end !== undefined ? { start, end } : { window: windowOf(route) };
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
