// The page: signs in where that is wanted, then shows the view that the address names.

import { type ComponentChildren, render } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { ask, type CostsAnswer } from "./api";
import { begin, signedIn } from "./auth";
import { moment } from "./format";
import { changed, go, RouteContext, useAddress, useAnswer } from "./hooks";
import { Failed } from "./parts";
import { DEFAULT_WINDOW, linkTo, type Route } from "./route";
import "./style.css";
import { Hour } from "./views/hour";
import { Nodes } from "./views/nodes";
import { Overview } from "./views/overview";
import { Unit } from "./views/unit";

const VIEWS = { overview: Overview, unit: Unit, nodes: Nodes, hour: Hour };
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

function App() {
  const route = useAddress();
  const View = VIEWS[route.view];
  useEffect(() => {
    const name = route.name === "" ? "" : ` ${route.name}`;
    document.title = `GPU cost: ${route.view}${name}`;
  }, [route.view, route.name]);
  return (
    <RouteContext.Provider value={route}>
      <a class="skip" href="#main" onClick={skip}>
        To the figures
      </a>
      <header class="top">
        <nav aria-label="Views">
          <strong>GPU cost</strong>
          {(["overview", "nodes", "hour"] as const).map((view) => (
            <a key={view} href={linkTo(route, view)} aria-current={route.view === view ? "page" : undefined}>
              {{ overview: "Overview", nodes: "Nodes", hour: "Hour" }[view]}
            </a>
          ))}
          <a href="docs">API</a>
        </nav>
        <Choices route={route} />
        <Account />
      </header>
      <main id="main" tabIndex={-1}>
        <Guarded key={`${route.view} ${route.name}`}>
          <View />
        </Guarded>
      </main>
    </RouteContext.Provider>
  );
}

/** What a view did not foresee is said in its place. */
function Guarded({ children }: { children: ComponentChildren }) {
  const [error, again] = useErrorBoundary() as [Error | undefined, () => void];
  return error === undefined ? <>{children}</> : <Failed error={error} again={again} />;
}

function skip(event: MouseEvent) {
  event.preventDefault(); // the fragment is the view's address
  document.getElementById("main")?.focus();
}

function Choices({ route }: { route: Route }) {
  const { window: chosen, start, end, cluster, zone, grain } = route.query;
  const isFixed = start !== undefined && end !== undefined;
  const set = (query: Record<string, string>) => go(changed(route, query));
  const value = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  const hasPeriod = route.view !== "hour";
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
      {hasPeriod && route.view !== "nodes" && (
        <label>
          By
          <select value={grain ?? ""} onChange={(event) => set({ grain: value(event) })}>
            <option value="">as fits</option>
            <option value="hour">hour</option>
            <option value="day">UTC day</option>
          </select>
        </label>
      )}
      <Clusters chosen={cluster ?? ""} choose={(name) => set({ cluster: name })} />
      <label>
        Times
        <select value={zone ?? "local"} onChange={(event) => set({ zone: value(event) })}>
          <option value="local">here</option>
          <option value="utc">UTC</option>
        </select>
      </label>
    </div>
  );
}

/** An instant of the address, which anybody may have written. */
function shown(instant: string, zone: string | undefined): string {
  return Number.isNaN(Date.parse(instant)) ? instant : moment(instant, zone === "utc" ? "utc" : "local");
}

function Clusters({ chosen, choose }: { chosen: string; choose: (name: string) => void }) {
  const asked = useAnswer("clusters", () =>
    ask<CostsAnswer>("v1/costs", { window: "7d", granularity: "total", group_by: "cluster" }),
  );
  const known = asked.answer?.rows.map((row) => row.group["cluster"] ?? "") ?? [];
  const names = chosen === "" || known.includes(chosen) ? known : [chosen, ...known];
  return (
    <label>
      Cluster
      <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">all</option>
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
  const [who, setWho] = useState<Awaited<ReturnType<typeof signedIn>>>(null);
  useEffect(() => {
    void signedIn().then(setWho);
  }, []);
  if (who === null) return null;
  return (
    <div class="account">
      <bdi>{who.name}</bdi>{" "}
      <button type="button" onClick={() => void who.leave()}>
        Sign out
      </button>
    </div>
  );
}

async function start(): Promise<void> {
  const page = document.getElementById("page");
  if (page === null) return;
  try {
    if (await begin()) render(<App />, page);
  } catch (reason) {
    const error = reason instanceof Error ? reason : new Error(String(reason));
    // What the issuer refused carries the address that was left; anything else failed where it stands.
    const left = (reason as { state?: unknown } | null)?.state;
    const again = () => {
      const { pathname, hash } = window.location;
      window.history.replaceState(null, "", pathname + (typeof left === "string" ? left : hash));
      window.location.reload();
    };
    render(
      <main>
        <h1>Signing in did not work</h1>
        <Failed error={error} again={again} />
      </main>,
      page,
    );
  }
}

// Paper is light, whatever the screen is. First of all listeners, so that charts draw themselves in its colours.
for (const event of ["beforeprint", "afterprint"]) {
  window.addEventListener(event, () => document.documentElement.classList.toggle("paper", event === "beforeprint"));
}
void start();
