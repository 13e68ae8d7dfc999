// Views of Explore that a browser keeps by name. What another page or person wrote there is checked before it is used.

export interface SavedView {
  name: string;
  /** Parameters of the address. */
  query: Readonly<Record<string, string>>;
}

const KEY = "gpucost.explore.views";
const MOST = 50;
const LONGEST_NAME = 80;
const LONGEST_TEXT = 2000;
const KEPT = /^(by|then|measure|compare|idle|trail|explore-sort|window|start|end|cluster|zone|grain|vs|f\..{1,200})$/s;

export const UNREADABLE = "The views that this browser saved cannot be read, so they are ignored.";

/** What the parameters of an address contribute to a saved view: all but its name, and what no view of Explore has. */
export function queryOf(query: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(query).filter(([key, text]) => KEPT.test(key) && text !== ""));
}

/** The saved views, and whether some of what is stored is no view. */
export function parse(text: string | null): { views: SavedView[]; isDamaged: boolean } {
  if (text === null) return { views: [], isDamaged: false };
  let stored: unknown;
  try {
    stored = JSON.parse(text);
  } catch {
    return { views: [], isDamaged: true };
  }
  if (!Array.isArray(stored)) return { views: [], isDamaged: true };
  const views = stored.slice(0, MOST).filter(isView);
  return { views, isDamaged: views.length < stored.length };
}

function isView(view: unknown): view is SavedView {
  if (typeof view !== "object" || view === null) return false;
  const { name, query } = view as Record<string, unknown>;
  if (typeof name !== "string" || name.trim() === "" || name.length > LONGEST_NAME) return false;
  if (typeof query !== "object" || query === null || Array.isArray(query)) return false;
  return Object.entries(query).every(
    ([key, text]) => KEPT.test(key) && typeof text === "string" && text.length <= LONGEST_TEXT,
  );
}

/** The views with another one, which replaces one of the same name. */
export function withView(views: readonly SavedView[], view: SavedView): SavedView[] {
  const name = view.name.trim().slice(0, LONGEST_NAME);
  const others = views.filter((other) => other.name !== name);
  return [...others, { name, query: queryOf(view.query) }].slice(-MOST);
}

export function isSame(view: SavedView, query: Readonly<Record<string, string>>): boolean {
  const text = (parameters: Readonly<Record<string, string>>) => JSON.stringify(Object.entries(parameters).sort());
  return text(view.query) === text(queryOf(query));
}

/** Reads the browser's storage, which may be switched off. */
export function load(): { views: SavedView[]; isDamaged: boolean } {
  try {
    return parse(localStorage.getItem(KEY));
  } catch {
    return { views: [], isDamaged: true };
  }
}

/** Whether the browser keeps the views. */
export function store(views: readonly SavedView[]): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify(views));
    return true;
  } catch {
    return false;
  }
}
