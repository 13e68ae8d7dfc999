// What happened in a period that can explain a step of its costs: unusual spending, and prices that began.

import {
  type AlertEvent,
  fetchAll,
  fetchJson,
  ifAllowed,
  type Mark,
  type PriceRow,
  type ResponseBody,
  settle,
} from "./api";
import { type Figure, HOUR, money, signed } from "./format";
import { linkTo, type Route } from "./route";

/** Longest period of the price book. */
const MAX_PRICES = 35 * 24 * HOUR;
/** Sources whose prices change rarely. Spot prices change all the time. */
const SOURCES = ["override", "on-demand"] as const;

const UNITS = { "node-hour": "a node-hour", "gpu-hour": "a GPU-hour" } as const;

interface Period {
  start: string;
  end: string;
  cluster: string | undefined;
}

/** Marks of a period, in order of time. What the caller may not see has none. */
export async function fetchMarks(route: Route, { start, end, cluster }: Period, hasNodes: boolean): Promise<Mark[]> {
  const hasPrices = hasNodes && Date.parse(end) - Date.parse(start) <= MAX_PRICES; // those of nodes, for admins
  const of = async <Body>(request: Promise<Body>): Promise<Body | null> => {
    const settled = await settle(ifAllowed(request));
    return "response" in settled ? settled.response : null;
  };
  const [alerts, ...prices] = await Promise.all([
    of(fetchJson("v1/alerts", { start, end })),
    ...(hasPrices ? SOURCES.map((source) => of(fetchAll("v1/prices", { start, end, source }))) : []),
  ]);
  const rows = prices.flatMap((response: ResponseBody<"v1/prices"> | null) => response?.rows ?? []);
  return [...marksOfAlerts(route, alerts?.history ?? []), ...marksOfPrices(rows, start, cluster)].sort(
    (left, right) => left.at - right.at,
  );
}

/** When a business unit began to spend more or less than usual. */
export function marksOfAlerts(route: Route, history: readonly AlertEvent[]): Mark[] {
  return history
    .filter(({ event, kind }) => event === "firing" && kind === "spend-change")
    .map(({ hour, subject, figures, currency, id }) => {
      const unit = subject.business_unit ?? "";
      const usd = (figure: Figure) => money(figure, currency);
      const change = signed(figures["change_percent"], (percent) => `${Math.round(percent ?? 0)}%`);
      return {
        at: Date.parse(hour),
        kind: "alert",
        text: `${unit} spent ${usd(figures["today_usd"])} that day instead of the usual ${usd(figures["usual_usd"])} (${change})`,
        href: linkTo(route, "unit", unit, { alert: id }),
      };
    });
}

/** Prices that begin or end within the period. */
export function marksOfPrices(prices: readonly PriceRow[], start: string, cluster: string | undefined): Mark[] {
  const isOf = ({ applies_to: node }: PriceRow) =>
    cluster === undefined || node["cluster"] === undefined || node["cluster"] === cluster;
  return prices.filter(isOf).flatMap((price) => {
    const { from, to, applies_to: node, amount, currency, unit, reason } = price;
    const names = Object.values(node).join(", ");
    const what = `price of ${names === "" ? "all nodes" : names}: ${unit === "of-on-demand" ? `${amount} × on-demand` : `${money(amount, currency)} ${UNITS[unit]}`}`;
    const why = reason === "" ? "" : `, ${reason}`;
    const marks: Mark[] = [];
    if (from !== null && from > start) marks.push({ at: Date.parse(from), kind: "price", text: what + why });
    return to === null || from === null
      ? marks
      : marks.map((mark) => ({ ...mark, text: `${mark.text}, until ${to.slice(0, 16).replace("T", " ")} UTC` }));
  });
}
