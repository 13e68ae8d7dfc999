// What of an address the page understands. A parameter that it does not is left out, so that the view falls back, and is
// named.

import { COMPARISONS } from "./compare";
import { isDimension, MEASURES } from "./explore";
import { isWindow, windowName } from "./periods";
import { KINDS } from "./recommendation-kinds";
import { type Route, windowOf } from "./route";
import { STATES } from "./savings";

export interface Ignored {
  key: string;
  text: string;
  /** What is wrong, and what is shown in its place. */
  why: string;
}

const TIMES = ["start", "end"] as const;
const GRAINS = ["hour", "day", "week", "month"];

/** The route without the parameters that the page does not understand, and these. */
export function understood(route: Route): { route: Route; ignored: Ignored[] } {
  let query = route.query;
  const ignored: Ignored[] = [];
  const ignore = (key: string, why: string) => {
    const text = query[key];
    query = Object.fromEntries(Object.entries(query).filter(([name]) => name !== key));
    if (text !== undefined) ignored.push({ key, text, why });
  };
  const check = (key: string, isAllowed: (text: string) => boolean, why: string) => {
    const text = query[key];
    if (text !== undefined && text !== "" && !isAllowed(text)) ignore(key, why);
  };
  check("window", isWindow, "not a period");
  const times = TIMES.filter((key) => query[key] !== undefined && query[key] !== "");
  const [start = NaN, end = NaN] = TIMES.map((key) => Date.parse(query[key] ?? ""));
  if (times.length > 0 && !(start < end)) {
    const isTime = (key: string) => !Number.isNaN(Date.parse(query[key] ?? ""));
    const why = times.length === 2 ? "the end is not after the start" : "needs both start and end";
    const wrong = times.filter((key) => !isTime(key));
    for (const key of wrong) ignore(key, "not a time");
    for (const key of times) if (!wrong.includes(key)) ignore(key, wrong.length > 0 ? "needs both start and end" : why);
  }
  const shown = query["start"] === undefined ? windowName(windowOf({ ...route, query })) : "that of start and end";
  for (const bad of ignored) bad.why += `, so the period is: ${shown}`;
  check("zone", (text) => ["local", "utc"].includes(text), "not a time zone of the page, so times are local");
  check("grain", (text) => GRAINS.includes(text), "not a granularity, so it is chosen by the period");
  check("vs", (text) => Object.hasOwn(COMPARISONS, text), "nothing to compare with, so that is chosen by the period");
  if (route.view === "explore") {
    check("by", isDimension, "not a dimension of costs, so they are grouped by business unit");
    check("then", isDimension, "not a dimension of costs, so they are grouped by one");
    check("measure", (text) => Object.hasOwn(MEASURES, text), "not a measure, so allocated cost is shown");
  }
  if (route.view === "savings") {
    const isState = (text: string) => text === "all" || STATES.some(({ state }) => state === text);
    check("state", isState, "not a state of recommendations, so open ones are shown");
    check("kind", (text) => Object.hasOwn(KINDS, text), "not a kind of recommendations, so all kinds are shown");
  }
  return { route: ignored.length === 0 ? route : { ...route, query }, ignored };
}
