// A business unit's month: what it spent day by day, where that leads, and the budget that an alert rule names.

import { ask, type CostsAnswer } from "../api";
import { BurnChart } from "../charts/burn";
import { gpuHours, money, percent, ratio } from "../format";
import { Empty, Section, Stat } from "../parts";
import { exactly } from "../route";

interface Forecast {
  start: string;
  end: string;
  spent_usd: number;
  hours_known: number;
  hours_unknown: number;
  projected_usd: number | null;
  low_usd: number | null;
  high_usd: number | null;
  interval_percent: number;
  budget_usd: number | null;
  currency: string;
}

export interface Month {
  costs: CostsAnswer;
  forecast: Forecast;
}

export async function askMonth(unit: string): Promise<Month> {
  const [costs, forecast] = await Promise.all([
    ask<CostsAnswer>("v1/costs", { window: "month", business_unit: exactly(unit), granularity: "day" }),
    ask<Forecast>("v1/forecasts", { business_unit: unit }),
  ]);
  return { costs, forecast };
}

export function Budget({ month }: { month: Month }) {
  const { costs, forecast } = month;
  const { currency, budget_usd: budget, projected_usd: projected } = forecast;
  let spent = 0;
  const points = costs.rows.map((row) => ({
    from: Date.parse(row.start),
    at: Date.parse(row.end),
    spent: (spent += row.allocated_usd ?? 0),
  }));
  const known = forecast.hours_known;
  const passed = known + forecast.hours_unknown;
  const range = `${forecast.interval_percent}% of the time between ${money(forecast.low_usd, currency)} and ${money(forecast.high_usd, currency)}`;
  return (
    <Section title="This month, all clusters">
      {points.length === 0 ? (
        <Empty>Nothing was held this month, or nothing is known of it yet.</Empty>
      ) : (
        <>
          <dl class="stats">
            <Stat name="Spent" value={money(forecast.spent_usd, currency)} testId="month-spent" />
            <Stat
              name="Projected"
              value={money(projected, currency)}
              note={projected === null ? "less than two weeks are known" : range}
              testId="month-projected"
            />
            <Stat
              name="Budget"
              value={money(budget, currency)}
              note={budget === null ? "no alert rule names one" : `${percent(ratio(forecast.spent_usd, budget))} spent`}
              testId="month-budget"
            />
            <Stat
              name="Known"
              value={percent(ratio(known, passed))}
              note={`${gpuHours(known, 0)} of ${gpuHours(passed, 0)} hours`}
            />
          </dl>
          <BurnChart
            start={Date.parse(forecast.start)}
            end={Date.parse(forecast.end)}
            points={points}
            now={Date.parse(costs.end)}
            projected={projected}
            budget={budget}
            currency={currency}
          />
        </>
      )}
    </Section>
  );
}
