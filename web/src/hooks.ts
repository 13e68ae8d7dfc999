// Hooks: the URL as state, and requests to the API.

import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { fetchJson, type Settled } from "./api";
import { fetchConfig } from "./config";
import type { Zone } from "./format";
import { type Route, readRoute, writeRoute } from "./route";

export const RouteContext = createContext<Route>(readRoute(""));

/** The notice of the deployment. When it changes, views fetch their figures again. */
export const NoticeContext = createContext<string | undefined>(undefined);

/** Whether `gpucost serve` answers. */
export const ServeContext = createContext(false);

/** Decisions on this page; null where the API only reads. */
export interface Decisions {
  /** How many were taken: views fetch their figures again after each. */
  count: number;
  add: () => void;
  Button: (props: DecisionProps) => ComponentChildren;
}
export interface DecisionProps {
  title: string;
  /** Below `serve/`. */
  path: string;
  /** The label of a reason, if the decision needs one. */
  reason?: string;
}
export const DecisionsContext = createContext<Decisions | null>(null);

const NOTICE_SECONDS = 10;

/** The deployment's notice, until it has none. */
export function useLatestNotice(first: string | undefined): string | undefined {
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
  return notice;
}

export function useRoute(): Route {
  return useContext(RouteContext);
}

export function useZone(): Zone {
  return useRoute().query["zone"] === "utc" ? "utc" : "local";
}

export function useUrlRoute(): Route {
  const [fragment, setFragment] = useState(window.location.hash);
  useEffect(() => {
    const changed = () => setFragment(window.location.hash);
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return readRoute(fragment);
}

export function go(address: string): void {
  window.location.hash = address;
}

/** The URL of the same view with changed parameters; "" removes a parameter. */
export function changed(route: Route, query: Record<string, string>): string {
  return writeRoute({ ...route, query: { ...route.query, ...query } });
}

export interface FetchState<Body> {
  /** The last response, also while the next one is loading. */
  response: Body | undefined;
  error: Error | undefined;
  isLoading: boolean;
}

/** Continues in a new task, so that parsing a large response and rendering it are no single long task. */
function nextTask<Body>(body: Body): Promise<Body> {
  return new Promise((resume) => setTimeout(() => resume(body)));
}

/** Sends a request whenever the key or the notice changes. Responses to earlier requests are ignored. */
export function useFetch<Body>(
  requestKey: string,
  load: () => Promise<Body>,
): FetchState<Body> & { again: () => void } {
  const first = { response: undefined, error: undefined, isLoading: true, requestKey };
  const [state, setState] = useState<FetchState<Body> & { requestKey: string }>(first);
  const [round, setRound] = useState(0);
  const notice = useContext(NoticeContext);
  const decisions = useContext(DecisionsContext)?.count;
  const latestRef = useRef(0);
  useEffect(() => {
    const request = ++latestRef.current;
    // The same figures are fetched again without a sign of it.
    setState((before) => {
      const isLoading = before.requestKey !== requestKey || before.response === undefined;
      return { ...before, error: undefined, isLoading, requestKey };
    });
    load()
      .then(nextTask)
      .then(
        (response) => {
          if (request === latestRef.current) setState({ response, error: undefined, isLoading: false, requestKey });
        },
        (reason: unknown) => {
          const error = reason instanceof Error ? reason : new Error(String(reason));
          if (request === latestRef.current) setState({ response: undefined, error, isLoading: false, requestKey });
        },
      );
  }, [requestKey, round, notice, decisions]);
  // Until the effect has run, the state belongs to the previous key.
  const isLoading = state.isLoading || state.requestKey !== requestKey;
  return { ...state, isLoading, again: () => setRound(round + 1) };
}

/** The last response of requests that others sent, which stays until the next arrives, or why they failed. */
export function useResponse<Body>(promise: Promise<Settled<Body>>): Pick<FetchState<Body>, "response" | "error"> {
  const [latest, setLatest] = useState<{ settled: Settled<Body>; of: typeof promise }>();
  const latestRef = useRef(promise);
  latestRef.current = promise;
  useEffect(() => {
    void promise.then(nextTask).then((settled) => promise === latestRef.current && setLatest({ settled, of: promise }));
  }, [promise]);
  if (latest === undefined) return { response: undefined, error: undefined };
  if ("response" in latest.settled) return { response: latest.settled.response, error: undefined };
  return { response: undefined, error: latest.of === promise ? latest.settled.error : undefined };
}

/** Whether inference servers were seen in the last hours, the caller's own or some that its business units used. Asked
 * once for each notice, because it changes rarely. */
export function useHasModels(): boolean {
  const [hasModels, setHasModels] = useState(false);
  const notice = useContext(NoticeContext);
  useEffect(() => {
    if (latestServers === undefined || latestServers.notice !== notice)
      latestServers = { notice, hasModels: fetchHasModels().catch(() => false) };
    void latestServers.hasModels.then(setHasModels);
  }, [notice]);
  return hasModels;
}

async function fetchHasModels(): Promise<boolean> {
  const latest = { window: "6h", granularity: "total", limit: "1" } as const;
  const { hours_with_servers: hours } = await fetchJson("v1/inference", latest);
  return hours > 0 || (await fetchJson("v1/inference", { ...latest, consumer: "*" })).hours_with_servers > 0;
}

let latestServers: { notice: string | undefined; hasModels: Promise<boolean> } | undefined;

/** Changes with the color scheme and the pixel ratio, so that canvases are redrawn. */
export function useAppearance(): string {
  return `${useMedia("(prefers-color-scheme: dark)") ? "dark" : "light"} ${window.devicePixelRatio}`;
}

/** Whether the screen is that of a phone; as in style.css. */
export function useIsNarrow(): boolean {
  return useMedia("(max-width: 40rem)");
}

function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => window.matchMedia(query).matches);
  useEffect(() => {
    const list = window.matchMedia(query);
    const listen = () => setMatches(list.matches);
    list.addEventListener("change", listen);
    return () => list.removeEventListener("change", listen);
  }, []);
  return matches;
}

/** Redraws before and after printing. */
export function useRedrawForPrint(redraw: () => void): void {
  const latestRef = useRef(redraw);
  latestRef.current = redraw;
  useEffect(() => {
    const again = () => latestRef.current();
    window.addEventListener("beforeprint", again);
    window.addEventListener("afterprint", again);
    return () => {
      window.removeEventListener("beforeprint", again);
      window.removeEventListener("afterprint", again);
    };
  }, []);
}

/** An element's width in CSS pixels, as it changes. */
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const ref = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}
