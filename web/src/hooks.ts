// What components share: the address as state, and answers on their way.

import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import type { Zone } from "./format";
import { type Route, readRoute, writeRoute } from "./route";

export const RouteContext = createContext<Route>(readRoute(""));

export function useRoute(): Route {
  return useContext(RouteContext);
}

export function useZone(): Zone {
  return useRoute().query["zone"] === "utc" ? "utc" : "local";
}

export function useAddress(): Route {
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

/** The same view with some of its parameters changed; "" takes one away. */
export function changed(route: Route, query: Record<string, string>): string {
  return writeRoute({ ...route, query: { ...route.query, ...query } });
}

export interface Asked<Answer> {
  /** The last answer, also while the next one is on its way. */
  answer: Answer | undefined;
  error: Error | undefined;
  isLoading: boolean;
}

/** Asks again whenever the question changes; answers to questions of before are dropped. */
export function useAnswer<Answer>(question: string, ask: () => Promise<Answer>): Asked<Answer> & { again: () => void } {
  const first = { answer: undefined, error: undefined, isLoading: true, question };
  const [state, setState] = useState<Asked<Answer> & { question: string }>(first);
  const [round, setRound] = useState(0);
  const newest = useRef(0);
  useEffect(() => {
    const own = ++newest.current;
    setState((before) => ({ ...before, error: undefined, isLoading: true, question }));
    ask().then(
      (answer) => {
        if (own === newest.current) setState({ answer, error: undefined, isLoading: false, question });
      },
      (reason: unknown) => {
        const error = reason instanceof Error ? reason : new Error(String(reason));
        if (own === newest.current) setState({ answer: undefined, error, isLoading: false, question });
      },
    );
  }, [question, round]);
  // What is there answers the question before until the effect has run.
  const isLoading = state.isLoading || state.question !== question;
  return { ...state, isLoading, again: () => setRound(round + 1) };
}

/** Changes whenever colours or sizes do, so that canvases are drawn again. */
export function useLook(): string {
  const query = "(prefers-color-scheme: dark)";
  const read = () => `${window.matchMedia(query).matches ? "dark" : "light"} ${window.devicePixelRatio}`;
  const [look, setLook] = useState(read);
  useEffect(() => {
    const list = window.matchMedia(query);
    const listen = () => setLook(read());
    list.addEventListener("change", listen);
    return () => list.removeEventListener("change", listen);
  }, []);
  return look;
}

/** Draws again for paper, before the browser lays its pages out, and for the screen afterwards. */
export function usePaper(redraw: () => void): void {
  const newest = useRef(redraw);
  newest.current = redraw;
  useEffect(() => {
    const again = () => newest.current();
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
