// A business unit's month: what it spent day by day, where that leads, and the budget that an alert rule names.

import { ask, askIfAllowed, type CostsAnswer } from "../api";
import { BurnChart } from "../charts/burn";
import { gpuHours, money, percent, ratio, utcDay } from "../format";
import { Empty, Section, Stat } from "../parts";
import { exactly } from "../route";

interface BudgetRow {
  budget_usd: number;
  spent_usd: number | null;
  projected_usd: number | null;
  currency: string;
}

export interface Month {
  costs: CostsAnswer;
  /** What the settings' budget rules say; null where none is about this unit. */
  budget: BudgetRow | null;
}

export async function askBudget(unit: string, cluster: string | undefined): Promise<Month> {
  const [costs, budgets] = await Promise.all([
    ask<CostsAnswer>("v1/costs", { window: "month", cluster, business_unit: exactly(unit), granularity: "day" }),
    askIfAllowed<{ rows: (BudgetRow & { business_unit: string })[] }>("v1/budgets"),
  ]);
  return { costs, budget: budgets?.rows.find((row) => row.business_unit === unit) ?? null };
}

export function Budget({ month }: { month: Month }) {
  const { costs, budget } = month;
  const start = Date.parse(costs.start);
  const first = new Date(start);
  const end = Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 1);
  let spent = 0;
  const points = costs.rows.map((row) => ({
    from: Date.parse(row.start),
    at: Date.parse(row.end),
    spent: (spent += row.allocated_usd ?? 0),
  }));
  const { hours_expected: expected, hours_complete: known } = costs.coverage;
  // As `domain/alerting/budget.py`: unknown before a day is known, or where fewer than half of the hours are.
  const isEnough = known >= 24 && 2 * known >= expected;
  const whole = ((end - start) / 3_600_000) * Math.max(1, Math.round(expected / Math.max(1, passed(costs))));
  const projected = budget?.projected_usd ?? (isEnough ? (spent * whole) / known : null);
  return (
    <Section title="This month">
      {points.length === 0 ? (
        <Empty>Nothing was held this month, or nothing is known of it yet.</Empty>
      ) : (
        <>
          <dl class="stats">
            <Stat
              name="Spent"
              value={money(spent, costs.currency)}
              note={`${utcDay(costs.start)} on`}
              testId="month-spent"
            />
            <Stat
              name="Projected"
              value={money(projected, costs.currency)}
              note="at the pace of the hours known"
              testId="month-projected"
            />
            <Stat
              name="Budget"
              value={money(budget?.budget_usd, costs.currency)}
              note={budget === null ? "no alert rule names one" : `${percent(ratio(spent, budget.budget_usd))} spent`}
              testId="month-budget"
            />
            <Stat
              name="Known"
              value={percent(ratio(known, expected))}
              note={`${gpuHours(known, 0)} of ${gpuHours(expected, 0)} cluster-hours`}
            />
          </dl>
          <BurnChart
            start={start}
            end={end}
            points={points}
            now={Date.parse(costs.end)}
            projected={projected}
            budget={budget?.budget_usd ?? null}
            currency={costs.currency}
          />
        </>
      )}
    </Section>
  );
}

/** Hours of the month that have passed. */
function passed(costs: CostsAnswer): number {
  return (Date.parse(costs.end) - Date.parse(costs.start)) / 3_600_000;
}
