// Entry point: signs in if the deployment requires it, then renders the view in the URL fragment.

import { type ComponentChildren, render } from "preact";
import { useContext, useEffect, useErrorBoundary, useRef, useState } from "preact/hooks";
import { fetchJson } from "./api";
import { type Ignored, understood } from "./address";
import { begin, currentUser } from "./auth";
import { COMPARISONS } from "./compare";
import { type Config, fetchConfig } from "./config";
import { HOUR, instant, moment, readClock, writeClock } from "./format";
import {
  changed,
  type Decisions,
  DecisionsContext,
  go,
  NoticeContext,
  RouteContext,
  ServeContext,
  useFetch,
  useHasModels,
  useIsNarrow,
  useLatestNotice,
  useUrlRoute,
} from "./hooks";
import { ErrorMessage, Loaded, Name, NotFound } from "./parts";
import { linkTo, type Route, type View, windowOf } from "./route";
import { lengthOf, PERIODS, shownPeriod, windowName } from "./periods";
import "./style.css";
import { Figure } from "./views/figure";
import { Nodes } from "./views/nodes";
import { Overview } from "./views/overview";
import { Savings } from "./views/savings";
import { Unit } from "./views/unit";

const VIEWS = {
  overview: Overview,
  unit: Unit,
  nodes: Nodes,
  hour: loadedLater(async () => (await import("./views/hour")).Hour),
  savings: Savings,
  health: loadedLater(async () => (await import("./views/health")).Health),
  explore: loadedLater(async () => (await import("./views/explore")).Explore),
  models: loadedLater(async () => (await import("./views/models")).Models),
  model: loadedLater(async () => (await import("./views/model")).Model),
  consumer: loadedLater(async () => (await import("./views/model")).Model),
  splits: loadedLater(async () => (await import("./views/split-policies")).SplitPolicies),
  doctor: loadedLater(async () => (await import("./views/doctor")).Doctor),
  glossary: loadedLater(async () => (await import("./views/glossary")).Glossary),
  missing: Missing,
};
const VIEW_NAMES = {
  overview: "Overview",
  explore: "Explore",
  models: "Models",
  savings: "Savings",
  nodes: "Nodes",
  hour: "Hour",
  health: "Data health",
  splits: "Split policies",
  doctor: "Doctor",
  glossary: "Glossary",
};
const GRAINS: Record<string, string> = { "": "Auto", hour: "Hour", day: "UTC day" };
const LONG_GRAINS = { week: "UTC week", month: "UTC month" };

/** A view whose code is loaded when it is opened, so that the first load stays small. */
function loadedLater(load: () => Promise<() => ComponentChildren>) {
  return function LoadedLater() {
    const request = useFetch("", () =>
      load().catch(() => {
        throw new Error("This view could not be loaded. Reload the page.");
      }),
    );
    return <Loaded request={request}>{(LoadedView) => <LoadedView />}</Loaded>;
  };
}

function App({ config, Button }: { config: Config; Button: Decisions["Button"] | null }) {
  const notice = useLatestNotice(config.notice);
  const { route, ignored } = understood(useUrlRoute());
  const View = VIEWS[route.view];
  const [decisions, setDecisions] = useState(0);
  const add = () => setDecisions((count) => count + 1);
  useEffect(() => {
    const name = route.name === "" ? "" : ` ${route.name}`;
    document.title = route.view === "missing" ? "GPU cost: not found" : `GPU cost: ${route.view}${name}`;
  }, [route.view, route.name]);
  return (
    <RouteContext.Provider value={route}>
      <NoticeContext.Provider value={notice}>
        <ServeContext.Provider value={config.serve === true}>
          <a class="skip" href="#main" onClick={skip}>
            Skip to content
          </a>
          <header class="top">
            <nav aria-label="Views">
              <strong>GPU cost</strong>
              <ListedViews route={route} />
            </nav>
            <Account />
            <Choices route={route} />
          </header>
          <main id="main" tabIndex={-1}>
            {notice !== undefined && (
              <p class="note unpriced" role="status" data-testid="notice">
                {notice}
              </p>
            )}
            <IgnoredNote route={route} ignored={ignored} />
            <Breadcrumb route={route} />
            <DecisionsContext.Provider value={Button && { count: decisions, add, Button }}>
              <Guarded key={`${route.view} ${route.name}`}>
                <View />
                <Figure />
              </Guarded>
            </DecisionsContext.Provider>
          </main>
        </ServeContext.Provider>
      </NoticeContext.Provider>
    </RouteContext.Provider>
  );
}

/** What of the address the page does not understand. */
function IgnoredNote({ route, ignored }: { route: Route; ignored: readonly Ignored[] }) {
  if (ignored.length === 0) return null;
  return (
    <p class="note unpriced" role="status" data-testid="ignored">
      Ignored in the address:{" "}
      {ignored.map(({ key, text, why }, at) => (
        <span key={key}>
          {at > 0 && "; "}
          {key}=<Name>{text}</Name> ({why})
        </span>
      ))}
      .
      {ignored.some(({ key, text }) => key === "by" && text === "model") && (
        <>
          {" "}
          Costs by model: <a href={linkTo(route, "models")}>Models</a>.
        </>
      )}
    </p>
  );
}

type Listed = keyof typeof VIEW_NAMES;

/** The views of the navigation: models only if there are inference servers, and the doctor only in `gpucost serve`. What
 * is opened from other views, and on phones what is looked at rarely, is in a menu, so that all are in one row. */
function ListedViews({ route }: { route: Route }) {
  const hasModels = useHasModels() || route.view === "models" || isOfModels(route.view);
  const hasDoctor = useContext(ServeContext);
  const isNarrow = useIsNarrow();
  const checks: Listed[] = ["health", ...(hasDoctor ? (["doctor"] as const) : [])];
  const views: Listed[] = ["overview", "explore", ...(hasModels ? (["models"] as const) : []), "savings", "nodes"];
  const link = (view: Listed) => (
    <a key={view} href={linkTo(route, view)} aria-current={currentOf(route, view)}>
      {VIEW_NAMES[view]}
    </a>
  );
  const rest: Listed[] = [...(isNarrow ? checks : []), "hour", "splits", "glossary"];
  return (
    <>
      {[...views, ...(isNarrow ? [] : checks)].map(link)}
      <Menu isCurrent={rest.some((view) => currentOf(route, view) !== undefined)}>
        {rest.map(link)}
        <a href="docs" target="_blank" rel="noreferrer" title="Opens in a new tab">
          API ↗
        </a>
      </Menu>
    </>
  );
}

function Menu({ isCurrent, children }: { isCurrent: boolean; children: ComponentChildren }) {
  const opener = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const place = () => {
    const [from, to] = [opener.current?.getBoundingClientRect(), box.current];
    if (from === undefined || to === null) return;
    to.style.top = `${from.bottom}px`;
    to.style.left = `${Math.max(0, Math.min(from.left, document.documentElement.clientWidth - to.offsetWidth))}px`;
  };
  return (
    <>
      <button type="button" ref={opener} popoverTarget="menu" aria-current={isCurrent ? "true" : undefined}>
        More ▾
      </button>
      <div
        id="menu"
        ref={box}
        popover="auto"
        class="menu"
        onToggle={(event) => event.newState === "open" && place()}
        onClick={() => box.current?.hidePopover()}
      >
        {children}
      </div>
    </>
  );
}

const isOfModels = (view: View) => view === "model" || view === "consumer";

/** The view itself, or the one that a business unit, a model or a consumer belongs to. */
function currentOf(route: Route, view: View): "page" | "true" | undefined {
  if (route.view === view) return "page";
  const parent = route.view === "unit" ? "overview" : isOfModels(route.view) ? "models" : undefined;
  return view === parent ? "true" : undefined;
}

/** The way back from a business unit, a model, a consumer, a node pool or a node. */
function Breadcrumb({ route }: { route: Route }) {
  const { pool, node } = route.query;
  const isNode = route.view === "nodes" && (pool ?? node) !== undefined;
  if (route.view !== "unit" && !isOfModels(route.view) && !isNode) return null;
  return (
    <nav class="crumbs" aria-label="Breadcrumb">
      {isNode ? (
        <a href={linkTo(route, "nodes")}>All nodes</a>
      ) : route.view === "model" ? (
        <a href={linkTo(route, "models")}>All models</a>
      ) : route.view === "consumer" ? (
        <a href={linkTo(route, "models")}>All consumers</a>
      ) : (
        <a href={linkTo(route, "overview")}>All business units</a>
      )}{" "}
      › <Name>{isNode ? (node ?? pool ?? "") : route.name}</Name>
    </nav>
  );
}

/** An address that no view has. */
function Missing() {
  const route = useUrlRoute();
  return (
    <>
      <h1>Not found</h1>
      <NotFound>
        The page has no view <Name>{route.name}</Name>.
      </NotFound>
    </>
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
  const { start, end, cluster, zone, grain = "", vs: versus = "" } = route.query;
  const [isOpen, setOpen] = useState(false);
  const [isCustom, setCustom] = useState(false);
  const grains = route.view === "explore" ? { ...GRAINS, ...LONG_GRAINS } : GRAINS;
  const isFixed = start !== undefined && end !== undefined;
  const set = (query: Record<string, string>) => go(changed(route, query));
  const value = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  const hasPeriod = !["hour", "savings", "doctor", "glossary", "missing"].includes(route.view);
  const isCompared =
    ["overview", "unit"].includes(route.view) || (route.view === "explore" && route.query["compare"] === "1");
  const fixed = isFixed
    ? shownPeriod(route.view, `${shown(start, zone)} to ${shown(end, zone)}`, Date.parse(end) - Date.parse(start))
    : "";
  const chosen = windowOf(route);
  const names = Object.hasOwn(PERIODS, chosen) ? PERIODS : { [chosen]: windowName(chosen), ...PERIODS };
  const windows = Object.fromEntries(
    Object.entries(names).map(([key, name]) => [key, shownPeriod(route.view, name, lengthOf(key, Date.now()))]),
  );
  const period = isFixed ? fixed : (windows[chosen] ?? "");
  const choose = (name: string) => {
    setCustom(name === "custom");
    if (name !== "custom" && name !== "fixed") set({ window: name, start: "", end: "" });
  };
  return (
    <>
      <button
        type="button"
        class="more"
        aria-expanded={isOpen}
        aria-controls="choices"
        onClick={() => setOpen(!isOpen)}
      >
        {hasPeriod && `${period}, `}
        {cluster ?? "all clusters"} {isOpen ? "▴" : "▾"}
      </button>
      <div class={isOpen ? "choices" : "choices closed"} id="choices">
        <Clusters chosen={cluster ?? ""} choose={(name) => set({ cluster: name, in: "" })} />
        <label>
          Time zone
          <select value={zone ?? "local"} onChange={(event) => set({ zone: value(event) })}>
            <option value="local">Local</option>
            <option value="utc">UTC</option>
          </select>
        </label>
        {hasPeriod && (
          <label>
            Period
            <select value={isCustom ? "custom" : isFixed ? "fixed" : chosen} onChange={(event) => choose(value(event))}>
              {isFixed && <option value="fixed">{fixed}</option>}
              {Object.entries(windows).map(([key, text]) => (
                <option key={key} value={key}>
                  {text}
                </option>
              ))}
              <option value="custom">Custom…</option>
            </select>
          </label>
        )}
        {hasPeriod && !["nodes", "health", "models"].includes(route.view) && (
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
        {isCompared && (
          <label>
            Compare with
            <select
              value={Object.hasOwn(COMPARISONS, versus) ? versus : ""}
              onChange={(event) => set({ vs: value(event) })}
            >
              {Object.entries(COMPARISONS).map(([key, text]) => (
                <option key={key} value={key}>
                  {text}
                </option>
              ))}
            </select>
          </label>
        )}
        {hasPeriod && isCustom && (
          <CustomPeriod
            route={route}
            choose={(first, last) => {
              setCustom(false);
              set({ window: "", start: instant(first), end: instant(last) });
            }}
          />
        )}
      </div>
    </>
  );
}

/** Two fields for any period of full hours, in the page's time zone. */
function CustomPeriod({ route, choose }: { route: Route; choose: (start: number, end: number) => void }) {
  const zone = route.query["zone"] === "utc" ? "utc" : "local";
  const { start, end } = route.query;
  const now = Math.floor(Date.now() / HOUR) * HOUR;
  const field = (time: string | undefined, fallback: number) =>
    writeClock(time !== undefined && !Number.isNaN(Date.parse(time)) ? time : instant(fallback), zone);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const read = (name: string) => readClock(new FormData(form).get(name) as string, zone);
    const [first, last] = [read("start"), read("end")];
    const until = form.elements.namedItem("end") as HTMLInputElement;
    until.setCustomValidity(first !== null && last !== null && last > first ? "" : "The end must be after the start.");
    if (form.reportValidity() && first !== null && last !== null) choose(first, last);
  };
  return (
    <form onSubmit={submit} noValidate class="custom">
      <label>
        From <input type="datetime-local" name="start" required defaultValue={field(start, now - 24 * HOUR)} />
      </label>
      <label>
        to{" "}
        <input
          type="datetime-local"
          name="end"
          required
          defaultValue={field(end, now)}
          onInput={(event) => event.currentTarget.setCustomValidity("")}
        />
      </label>
      <button type="submit">Show</button>
    </form>
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
    const Button = config.decisions === true ? (await import("./views/decision")).DecisionButton : null;
    if (await begin(config.sign_in)) render(<App {...{ config, Button }} />, page);
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
