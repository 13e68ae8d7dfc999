// A business unit's month: daily spending, its run rate, and the budget of an alert rule.

import { useMemo } from "preact/hooks";
import {
  fetchAll,
  fetchJson,
  fetchHours,
  type CostRow,
  type CostsResponse,
  type Forecast,
  type HoursResponse,
} from "../api";
import { BurnChart } from "../charts/burn";
import { gpuHours, HOUR, moment, percent, ratio, roundMoney } from "../format";
import { useZone } from "../hooks";
import { amountTitle } from "../identity";
import { Empty, Help, Section, Stat } from "../parts";
import { exactly } from "../route";
import { align, bucketsOf, endOf, completeShare, hoursIn, pricedShare } from "../series";

export interface Month {
  /** Daily costs by cluster, until the end of the forecast's data; null if the month has none. */
  costs: CostsResponse | null;
  forecast: Forecast;
  hours: HoursResponse | null;
}

export async function fetchMonth(unit: string): Promise<Month> {
  const forecast = await fetchJson("v1/forecasts", { business_unit: unit });
  const { start, known_until: end } = forecast;
  if (start === end) return { costs: null, forecast, hours: null };
  const costs = await fetchAll("v1/costs", {
    start,
    end,
    business_unit: exactly(unit),
    granularity: "day",
    group_by: "cluster",
  });
  // If all hours are known, days without a row are zeros.
  const hours = forecast.hours_unknown === 0 ? null : await fetchHours({ start, end });
  return { costs, forecast, hours };
}

interface Burn {
  points: { from: number; at: number; spent: number }[];
  gaps: { from: number; to: number; coverage: number }[];
  /** Hours so far of which the unit's cost is known, in the clusters that it uses; of several clusters, their mean. */
  hoursKnown: number;
}

/** Cumulative spending and gaps of the clusters that the unit uses. A day without data is a gap, not a slope. */
export function burnOf({ costs, forecast, hours }: Month): Burn {
  const burn: Burn = { points: [], gaps: [], hoursKnown: 0 };
  if (costs === null) return burn;
  const buckets = bucketsOf(costs.start, costs.end, "day");
  const clusters = new Map<string, CostRow[]>();
  for (const row of costs.rows) {
    const cluster = row.group["cluster"] ?? "";
    clusters.set(cluster, [...(clusters.get(cluster) ?? []), row]);
  }
  const rows = sumOfDays(
    buckets.starts.length,
    [...clusters.values()].map((clusterRows) => align(buckets, clusterRows)),
  );
  const used = hoursIn(hours, clusters.size === 0 ? null : new Set(clusters.keys()));
  const coverage = completeShare(buckets, used?.rows ?? null, rows, forecast.hours_unknown === 0);
  let spent = 0;
  rows.forEach((row, index) => {
    const [from, at] = [buckets.starts[index] ?? 0, endOf(buckets, index)];
    const share = (coverage[index] ?? 0) * (row === undefined ? 1 : pricedShare(row));
    burn.hoursKnown += (share * (at - from)) / HOUR;
    if (share < 1) burn.gaps.push({ from, to: at, coverage: share });
    if (share > 0) burn.points.push({ from, at, spent: (spent += row?.allocated_usd ?? 0) });
  });
  return burn;
}

/** The line of the projection, at the mean rate. It begins with the run rate's estimate for the hours so far without
 * figures, so that its slope is that of the days to come. */
export function projectionOf(
  forecast: Forecast,
  points: Burn["points"],
): { projection: { at: number; amount: number }[]; estimate: number } {
  const { run_rate_usd: projected } = forecast;
  const estimate = forecast.estimated_usd ?? 0;
  const last = points.at(-1);
  if (projected === null || last === undefined) return { projection: [], estimate: 0 };
  const [now, end] = [Date.parse(forecast.known_until), Date.parse(forecast.end)];
  // A millisecond later than the spend, because a line has one amount at a time.
  const from = { at: Math.max(now, last.at + 1), amount: last.spent + estimate };
  return { projection: [{ at: last.at, amount: last.spent }, from, { at: end, amount: projected }], estimate };
}

/** The clusters' sums by day; undefined if no cluster has a row. */
function sumOfDays(days: number, clusters: readonly (readonly (CostRow | undefined)[])[]) {
  return Array.from({ length: days }, (_, day) => {
    const present = clusters.flatMap((rows) => rows[day] ?? []);
    if (present.length === 0) return undefined;
    const sum = (key: "allocated_usd" | "allocated_gpu_hours" | "unpriced_gpu_hours") =>
      present.reduce((total, row) => total + (row[key] ?? 0), 0);
    return {
      allocated_usd: sum("allocated_usd"),
      allocated_gpu_hours: sum("allocated_gpu_hours"),
      unpriced_gpu_hours: sum("unpriced_gpu_hours"),
    };
  });
}

/** The used share, and what the run rate exceeds or leaves. Without a run rate, the hours that the cost is known for. */
export function budgetNote(forecast: Forecast): string {
  const { spent_usd: spent, budget_usd: budget, run_rate_usd: projected, currency } = forecast;
  const { hours_known: known, hours_unknown: unknown } = forecast;
  const share = `${percent(ratio(spent, budget))} of it used`;
  if (projected === null || budget === null)
    return unknown === 0
      ? share
      : `${share} in the ${gpuHours(known, 0)} of ${gpuHours(known + unknown, 0)} hours known of all clusters`;
  const over = projected - budget;
  return `${share}; the run rate is ${roundMoney(Math.abs(over), currency)} ${over > 0 ? "over" : "under"}`;
}

/** The interval of the month's forecast, and how often past intervals were right. Null with too little history. */
export function intervalOf(forecast: Forecast): { range: string; note: string } | null {
  const { low_usd: low, high_usd: high, run_rate_usd: usd, interval_percent: level, backtest, currency } = forecast;
  if (low === null || high === null) return null;
  const [from, to] = [low, high].map((usd) => roundMoney(usd, currency, [low, high]));
  const right =
    backtest === null
      ? "not tested yet: the history is short"
      : `${backtest.covered} of ${backtest.evaluated} past ones were right`;
  const isWithin = usd === null || (usd >= low && usd <= high);
  const outside = `; the run rate, which does not know weekdays, is ${(usd ?? 0) > high ? "above" : "below"} it`;
  return {
    range: from === to ? `${from}` : `${from} to ${to}`,
    note: `${level}% interval by the pattern of past weeks; ${right}${isWithin ? "" : outside}`,
  };
}

export function Budget({ month }: { month: Month }) {
  const zone = useZone();
  const { forecast } = month;
  const { currency, budget_usd: budget, run_rate_usd: projected } = forecast;
  const burn = useMemo(() => {
    const spending = burnOf(month);
    return { ...spending, ...projectionOf(month.forecast, spending.points) };
  }, [month]);
  const interval = intervalOf(forecast);
  const endedHours = forecast.hours_known + forecast.hours_unknown;
  return (
    <Section title="This month (UTC), all clusters">
      <dl class="stats">
        <Stat
          name={amountTitle("allocated_usd")}
          value={roundMoney(forecast.spent_usd, currency)}
          note={`so far, until ${moment(forecast.known_until, zone)}`}
          testId="month-spent"
        />
        <Stat
          name="Run rate"
          value={roundMoney(projected, currency)}
          note={
            projected === null ? (
              "of the month; too few hours for it"
            ) : (
              <>
                of the month, at the mean rate so far, as in budget alerts <Help term="run rate" />
              </>
            )
          }
          testId="month-projected"
        />
        {interval !== null && (
          <Stat
            name="Forecast"
            value={interval.range}
            note={
              <>
                {interval.note} <Help term="forecast" />
              </>
            }
            testId="month-interval"
          />
        )}
        <Stat
          name="Budget"
          value={roundMoney(budget, currency)}
          note={budget === null ? "no alert rule sets a budget" : budgetNote(forecast)}
          testId="month-budget"
        />
        <Stat
          name="Coverage"
          value={percent(ratio(burn.hoursKnown, endedHours))}
          note={`${gpuHours(burn.hoursKnown, 0)} of ${gpuHours(endedHours, 0)} hours known, in the clusters that it uses`}
          testId="month-coverage"
        />
      </dl>
      {budget === null && (
        <p class="note">
          To set a budget, add <code>{"- {rule: budget, monthly_usd: 5000}"}</code> to <code>alerts.rules</code> in the
          settings, and run <code>gpucost settings push</code>.
        </p>
      )}
      {burn.points.length === 0 ? (
        <Empty>No GPU costs this month yet.</Empty>
      ) : (
        <BurnChart
          start={Date.parse(forecast.start)}
          end={Date.parse(forecast.end)}
          points={burn.points}
          gaps={burn.gaps}
          projection={burn.projection}
          estimate={burn.estimate}
          budget={budget}
          currency={currency}
        />
      )}
    </Section>
  );
}
