// Entry point: signs in if the deployment requires it, then renders the view in the URL fragment.

import { type ComponentChildren, render } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { fetchJson } from "./api";
import { begin, currentUser } from "./auth";
import { fetchConfig } from "./config";
import { moment } from "./format";
import { changed, go, RouteContext, useUrlRoute, useFetch } from "./hooks";
import { ErrorMessage } from "./parts";
import { DEFAULT_WINDOW, linkTo, type Route } from "./route";
import "./style.css";
import { Figure } from "./views/figure";
import { Explore } from "./views/explore";
import { Glossary } from "./views/glossary";
import { Health } from "./views/health";
import { Hour } from "./views/hour";
import { Nodes } from "./views/nodes";
import { Overview } from "./views/overview";
import { Savings } from "./views/savings";
import { Unit } from "./views/unit";

const VIEWS = {
  overview: Overview,
  unit: Unit,
  nodes: Nodes,
  hour: Hour,
  savings: Savings,
  health: Health,
  explore: Explore,
  glossary: Glossary,
};
const VIEW_NAMES = {
  overview: "Overview",
  explore: "Explore",
  savings: "Savings",
  nodes: "Nodes",
  hour: "Hour",
  health: "Data health",
  glossary: "Glossary",
};
const WINDOWS: Record<string, string> = {
  "24h": "Last 24 hours",
  "48h": "Last 48 hours",
  "7d": "Last 7 days",
  "35d": "Last 35 days",
  "90d": "Last 90 days",
  today: "Today (UTC)",
  yesterday: "Yesterday (UTC)",
  week: "This week (UTC)",
  lastweek: "Last week (UTC)",
  month: "This month (UTC)",
  lastmonth: "Last month (UTC)",
};

const GRAINS: Record<string, string> = { "": "Auto", hour: "Hour", day: "UTC day" };
const LONG_GRAINS = { week: "UTC week", month: "UTC month" };

function App({ notice }: { notice: string | undefined }) {
  const route = useUrlRoute();
  const View = VIEWS[route.view];
  useEffect(() => {
    const name = route.name === "" ? "" : ` ${route.name}`;
    document.title = `GPU cost: ${route.view}${name}`;
  }, [route.view, route.name]);
  return (
    <RouteContext.Provider value={route}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <nav aria-label="Views">
          <strong>GPU cost</strong>
          {(["overview", "explore", "savings", "nodes", "hour", "health", "glossary"] as const).map((view) => (
            <a key={view} href={linkTo(route, view)} aria-current={route.view === view ? "page" : undefined}>
              {VIEW_NAMES[view]}
            </a>
          ))}
          <a href="docs">API</a>
        </nav>
        <Choices route={route} />
        <Account />
      </header>
      <main id="main" tabIndex={-1}>
        <Notice first={notice} />
        <Guarded key={`${route.view} ${route.name}`}>
          <View />
          <Figure />
        </Guarded>
      </main>
    </RouteContext.Provider>
  );
}

const NOTICE_SECONDS = 10;

/** The deployment's notice, until it has none. */
function Notice({ first }: { first: string | undefined }) {
  const [notice, setNotice] = useState(first);
  useEffect(() => {
    if (notice === undefined) return;
    const update = () =>
      void fetchConfig().then(
        (config) => setNotice(config.notice),
        () => undefined,
      );
    const timer = setInterval(update, NOTICE_SECONDS * 1000);
    return () => clearInterval(timer);
  }, [notice === undefined]);
  if (notice === undefined) return null;
  return (
    <p class="note unpriced" role="status" data-testid="notice">
      {notice}
    </p>
  );
}

/** Shows an unexpected error in place of the view. */
function Guarded({ children }: { children: ComponentChildren }) {
  const [error, again] = useErrorBoundary() as [Error | undefined, () => void];
  return error === undefined ? <>{children}</> : <ErrorMessage error={error} again={again} />;
}

function skip(event: MouseEvent) {
  event.preventDefault(); // the fragment contains the view
  document.getElementById("main")?.focus();
}

function Choices({ route }: { route: Route }) {
  const { window: chosen, start, end, cluster, zone, grain = "" } = route.query;
  const grains = route.view === "explore" ? { ...GRAINS, ...LONG_GRAINS } : GRAINS;
  const isFixed = start !== undefined && end !== undefined;
  const set = (query: Record<string, string>) => go(changed(route, query));
  const value = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  const hasPeriod = !["hour", "savings", "glossary"].includes(route.view);
  return (
    <div class="choices">
      {hasPeriod && (
        <label>
          Period
          <select
            value={isFixed ? "fixed" : (chosen ?? DEFAULT_WINDOW)}
            onChange={(event) => value(event) !== "fixed" && set({ window: value(event), start: "", end: "" })}
          >
            {isFixed && <option value="fixed">{`${shown(start, zone)} to ${shown(end, zone)}`}</option>}
            {Object.entries(WINDOWS).map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        </label>
      )}
      {hasPeriod && route.view !== "nodes" && route.view !== "health" && (
        <label>
          Granularity
          <select value={grain in grains ? grain : ""} onChange={(event) => set({ grain: value(event) })}>
            {Object.entries(grains).map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        </label>
      )}
      <Clusters chosen={cluster ?? ""} choose={(name) => set({ cluster: name })} />
      <label>
        Time zone
        <select value={zone ?? "local"} onChange={(event) => set({ zone: value(event) })}>
          <option value="local">Local</option>
          <option value="utc">UTC</option>
        </select>
      </label>
    </div>
  );
}

/** Formats a time from the URL, which may be invalid. */
function shown(instant: string, zone: string | undefined): string {
  return Number.isNaN(Date.parse(instant)) ? instant : moment(instant, zone === "utc" ? "utc" : "local");
}

function Clusters({ chosen, choose }: { chosen: string; choose: (name: string) => void }) {
  const request = useFetch("clusters", () =>
    fetchJson("v1/costs", { window: "7d", granularity: "total", group_by: "cluster" }),
  );
  const clusters = request.response?.rows.map((row) => row.group["cluster"] ?? "") ?? [];
  const names = chosen === "" || clusters.includes(chosen) ? clusters : [chosen, ...clusters];
  return (
    <label>
      Cluster
      <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">All</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Account() {
  const [user, setUser] = useState<Awaited<ReturnType<typeof currentUser>>>(null);
  useEffect(() => {
    void currentUser().then(setUser);
  }, []);
  if (user === null) return null;
  return (
    <div class="account">
      <bdi>{user.name}</bdi>{" "}
      <button type="button" onClick={() => void user.signOut()}>
        Sign out
      </button>
    </div>
  );
}

async function start(): Promise<void> {
  const page = document.getElementById("page");
  if (page === null) return;
  try {
    const config = await fetchConfig();
    if (await begin(config.sign_in)) render(<App notice={config.notice} />, page);
  } catch (reason) {
    const error = reason instanceof Error ? reason : new Error(String(reason));
    // An error from the issuer contains the fragment from before the sign-in.
    const left = (reason as { state?: unknown } | null)?.state;
    const again = () => {
      const { pathname, hash } = window.location;
      window.history.replaceState(null, "", pathname + (typeof left === "string" ? left : hash));
      window.location.reload();
    };
    render(
      <main>
        <h1>Sign-in failed</h1>
        <ErrorMessage error={error} again={again} />
      </main>,
      page,
    );
  }
}

// Print in light colors. Registered before the charts' listeners, so that these redraw with print colors.
for (const event of ["beforeprint", "afterprint"]) {
  window.addEventListener(event, () => document.documentElement.classList.toggle("paper", event === "beforeprint"));
}
void start();
