// For a period and cluster: what it costs and what becomes of it, who wastes most, when GPUs were used, what alerts.

import type { ComponentChildren } from "preact";
import {
  type Alert,
  ask,
  askAll,
  askAlerts,
  askHours,
  type CostRow,
  type CostsAnswer,
  type FleetAnswer,
  type HoursAnswer,
  type Totals,
} from "../api";
import { useColour } from "../charts/colours";
import { Grid } from "../charts/grid";
import { StackedChart } from "../charts/stacked";
import { gpuHoursColumn, moneyColumn } from "../columns";
import {
  change,
  type Figure,
  gpuHours,
  instant,
  money,
  moment,
  percent,
  ratio,
  tick,
  utcDay,
  utilization,
} from "../format";
import { changed, go, useAnswer, useRoute, useZone } from "../hooks";
import { partsOf } from "../identity";
import { Alerts } from "./alerts";
import { DownloadButton, Empty, Name, Section, Spark, Stat, Table, Waiting } from "../parts";
import { linkTo, periodOf, type Route } from "../route";
import { align, type Buckets, bucketsOf, type Grain, grainOf, isWhole, knownShare, ticksOf } from "../series";

/** Rows that one answer of the API holds at most. */
const PAGE = 10_000;

interface Answers {
  grain: Grain;
  fleet: FleetAnswer;
  units: CostsAnswer;
  before: CostsAnswer;
  byTime: CostsAnswer;
  timeGrain: Grain;
  hours: HoursAnswer | null;
  lastHour: FleetAnswer;
  month: FleetAnswer;
  alerts: Alert[];
}

export async function askOverview(route: Route): Promise<Answers> {
  const cluster = route.query["cluster"];
  const asked = { ...periodOf(route), cluster };
  const whole = await ask<CostsAnswer>("v1/costs", {
    ...asked,
    granularity: "total",
    group_by: "business_unit",
    sort: "-waste_usd",
  });
  // From here on the period is fixed: an hour that ends meanwhile must not tear the answers apart.
  const { start, end } = whole;
  const period = { start, end, cluster };
  const length = Date.parse(end) - Date.parse(start);
  const hours = length / 3_600_000;
  const grain = grainOf(hours, route.query["grain"]);
  const timeGrain = grain === "hour" && hours * whole.rows.length <= 2 * PAGE ? "hour" : "day";
  const [fleet, before, byTime, known, lastHour, month, alerts] = await Promise.all([
    ask<FleetAnswer>("v1/fleet", { ...period, granularity: grain }),
    ask<CostsAnswer>("v1/costs", {
      start: instant(Date.parse(start) - length),
      end: start,
      cluster,
      granularity: "total",
      group_by: "business_unit",
    }),
    askAll<CostRow, CostsAnswer>("v1/costs", { ...period, granularity: timeGrain, group_by: "business_unit" }),
    askHours(period, whole.coverage),
    ask<FleetAnswer>("v1/fleet", { window: "6h", cluster }),
    ask<FleetAnswer>("v1/fleet", { window: "month", cluster, granularity: "total" }),
    askAlerts(end),
  ]);
  return {
    grain,
    fleet,
    units: whole,
    before,
    byTime,
    timeGrain,
    hours: known,
    lastHour,
    month,
    alerts,
  };
}

export function Overview() {
  const route = useRoute();
  const { query } = route;
  const question = JSON.stringify([periodOf(route), query["cluster"], query["grain"]]);
  const asked = useAnswer(question, () => askOverview(route));
  return (
    <>
      <h1>Overview</h1>
      <Waiting asked={asked}>{(answers) => <Shown {...answers} />}</Waiting>
    </>
  );
}

function Shown(props: Answers) {
  const route = useRoute();
  const zone = useZone();
  const { fleet, units } = props;
  const { totals } = fleet;
  const { coverage } = units;
  if (coverage.hours_complete === 0) {
    return (
      <Empty>
        Nothing is known of this period yet: {coverage.hours_expected} cluster-hours are expected, none has figures.
      </Empty>
    );
  }
  const scope = { start: fleet.start, end: fleet.end, cluster: route.query["cluster"] };
  const isFleet = totals.node_cost_usd !== null;
  const now = props.lastHour.rows.at(-1); // the newest that is known: the hour just over may still be on its way
  const month = props.month.totals;
  const cost = (one: Totals) => one.node_cost_usd ?? one.allocated_usd;
  return (
    <>
      <dl class="stats">
        <Stat
          name={isFleet ? "Cost per hour now" : "Your cost per hour now"}
          value={money(now && cost(now), fleet.currency)}
          note={now && <>in the hour from {moment(now.start, zone)}</>}
          testId="cost-now"
        />
        <Stat name="This month" value={money(cost(month), fleet.currency)} testId="cost-month" />
        <Stat
          name="This period"
          value={money(cost(totals), fleet.currency)}
          note={<Period start={fleet.start} end={fleet.end} />}
          testId="cost-period"
        />
        <Stat
          name="Waste"
          value={money(totals.waste_usd, fleet.currency)}
          note={`${percent(ratio(totals.waste_usd, totals.allocated_usd))} of what was held`}
          testId="waste"
        />
        <Stat
          name="Utilization"
          value={percent(utilization(totals))}
          note="of what was held and observed"
          testId="utilization"
        />
        <Stat
          name="Coverage"
          value={percent(ratio(coverage.hours_complete, coverage.hours_expected))}
          note={`${coverage.hours_complete} of ${coverage.hours_expected} cluster-hours known`}
          testId="coverage"
        />
      </dl>
      <Cost {...props} />
      <Section
        title="Business units by waste"
        aside={
          <DownloadButton
            path="v1/costs"
            parameters={{ ...scope, granularity: "total", group_by: "business_unit", sort: "-waste_usd" }}
            file="business-units.csv"
          />
        }
      >
        <Units {...props} />
      </Section>
      <Section title="Utilization over time">
        <Heat {...props} />
      </Section>
      <Section title="Active alerts">
        <Alerts alerts={props.alerts} />
      </Section>
    </>
  );
}

function Period({ start, end }: { start: string; end: string }) {
  const zone = useZone();
  return (
    <span>
      {moment(start, zone)} to {moment(end, zone)}
    </span>
  );
}

function Cost({ fleet, grain, hours }: Answers) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(fleet.start, fleet.end, grain);
  const rows = align(buckets, fleet.rows);
  const parts = partsOf([fleet.totals]);
  const open = (start: number, end: number) => go(openAt(route, buckets, start, end));
  return (
    <Section title="Cost over time">
      <StackedChart
        label="Cost over time, stacked into what became of it"
        buckets={buckets}
        rows={rows}
        known={knownShare(buckets, hours?.rows ?? null, rows)}
        parts={parts}
        currency={fleet.currency}
        zone={zone}
        onOpen={open}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
      <details>
        <summary>As a table</summary>
        <Table
          name="cost-over-time"
          caption="Cost over time, by what became of it"
          sort="start"
          rows={fleet.rows}
          rowKey={(row) => row.start}
          columns={[
            {
              key: "start",
              title: "From",
              cell: (row) => (
                <a href={openAt(route, buckets, Date.parse(row.start), Date.parse(row.end))}>
                  {grain === "day" ? utcDay(row.start) : moment(row.start, zone)}
                </a>
              ),
              by: (row) => row.start,
            },
            ...parts.map((part) => ({
              key: part.key,
              title: part.name,
              isFigure: true,
              cell: (row: Totals) => money(row[part.key], fleet.currency),
              by: (row: Totals) => row[part.key],
            })),
            {
              key: "node_cost_usd",
              title: "node cost",
              isFigure: true,
              cell: (row) => money(row.node_cost_usd, fleet.currency),
              by: (row) => row.node_cost_usd,
            },
          ]}
        />
      </details>
    </Section>
  );
}

/** An hour opens as it is; a day becomes the period. */
export function openAt(
  route: Route,
  buckets: Buckets,
  start: number,
  end: number,
  query: Record<string, string> = {},
): string {
  if (buckets.step <= 3_600_000) return linkTo(route, "hour", instant(start), query);
  return changed(route, { start: instant(start), end: instant(end), window: "", grain: "hour" });
}

function Units({ units, before, byTime, timeGrain }: Answers) {
  const route = useRoute();
  const wasted = new Map(before.rows.map((row) => [unitOf(row), row.waste_usd]));
  const buckets = bucketsOf(units.start, units.end, timeGrain);
  const series = byUnit(byTime.rows);
  const { currency } = units;
  const areWhole = isWhole(units.coverage) && isWhole(before.coverage);
  const against = (row: CostRow): Figure => {
    if (!areWhole) return null;
    const old = wasted.get(unitOf(row));
    return ratio(row.waste_usd === null || old == null ? null : row.waste_usd - old, old);
  };
  const share = (row: CostRow) => ratio(row.waste_usd, row.allocated_usd);
  if (units.rows.length === 0) return <Empty>Nobody held a GPU in this period.</Empty>;
  return (
    <Table
      name="units"
      caption="Business units and what they cost"
      sort="-waste_usd"
      rows={units.rows}
      rowKey={unitOf}
      columns={[
        {
          key: "business_unit",
          title: "Business unit",
          cell: (row) => (
            <a href={linkTo(route, "unit", unitOf(row))}>
              <Name>{unitOf(row)}</Name>
            </a>
          ),
          by: unitOf,
        },
        moneyColumn("waste_usd", "Waste", currency),
        { key: "share", title: "of its cost", isFigure: true, cell: (row) => percent(share(row)), by: share },
        { key: "change", title: "since before", isFigure: true, cell: (row) => change(against(row)), by: against },
        {
          key: "trend",
          title: "Trend of waste",
          cell: (row) => (
            <Spark
              label={`Waste of ${unitOf(row)} over time`}
              values={align(buckets, series.get(unitOf(row)) ?? []).map((one) => one?.waste_usd ?? null)}
            />
          ),
        },
        moneyColumn("allocated_usd", "Allocated", currency),
        moneyColumn("effective_usd", "Effective", currency),
        moneyColumn("unmeasured_usd", "Unmeasured", currency),
        gpuHoursColumn(),
      ]}
    />
  );
}

function Heat({ units, byTime, fleet, grain, timeGrain, hours }: Answers) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(units.start, units.end, timeGrain);
  const series = byUnit(byTime.rows);
  const names = units.rows.map(unitOf);
  const rows = names.map((name) => align(buckets, series.get(name) ?? []));
  const known = knownShare(
    buckets,
    hours?.rows ?? null,
    grain === timeGrain ? align(buckets, fleet.rows) : buckets.starts.map(() => ({})),
  );
  if (names.length === 0) return <Empty>Nobody held a GPU in this period.</Empty>;
  return (
    <>
      <Scale />
      <Grid
        label={`Utilization of business units by ${timeGrain}`}
        rows={names.length}
        columns={buckets.starts.length}
        rowHeight={names.length > 40 ? 16 : 22}
        drawnFrom={byTime}
        hint="Point at a cell, or focus the picture and use the arrow keys."
        labels={names.map((name) => (
          <a key={name} href={linkTo(route, "unit", name)}>
            <Name>{name}</Name>
          </a>
        ))}
        ticks={(most) => ticksOf(buckets, (start) => tick(start, buckets.step, zone), most)}
        paint={(row, column) => {
          const one = rows[row]?.[column];
          if (one === undefined) return { fill: (known[column] ?? 1) < 1 ? "missing" : null };
          const use = utilization(one);
          return { fill: use === null ? "missing" : useColour(use), isHatched: (known[column] ?? 1) < 1 };
        }}
        describe={(row, column) => {
          const one = rows[row]?.[column];
          const start = buckets.starts[column] ?? 0;
          const when = timeGrain === "day" ? utcDay(start) : moment(start, zone);
          return (
            <>
              <strong>
                <Name>{names[row] ?? ""}</Name>
              </strong>{" "}
              {when}:{" "}
              {one === undefined
                ? (known[column] ?? 1) < 1
                  ? "missing or incomplete"
                  : "held nothing"
                : `${percent(utilization(one))} used of ${gpuHours(one.allocated_gpu_hours)} GPU-hours, ${money(one.waste_usd, units.currency)} wasted`}
            </>
          );
        }}
        onOpen={(row, column) => {
          const start = buckets.starts[column] ?? 0;
          go(openAt(route, buckets, start, Math.min(buckets.end, start + buckets.step), { unit: names[row] ?? "" }));
        }}
      />
    </>
  );
}

export function Scale({ children }: { children?: ComponentChildren }) {
  const steps = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
  return (
    <p class="scale">
      0%
      <svg viewBox={`0 0 ${steps.length} 1`} preserveAspectRatio="none" aria-hidden="true">
        {steps.map((step, place) => (
          <rect key={step} x={place} width="1.02" height="1" fill={useColour(step)} />
        ))}
      </svg>
      100% used; <span class="swatch missing" /> missing or unmeasured {children}
    </p>
  );
}

function unitOf(row: CostRow): string {
  return row.group["business_unit"] ?? "";
}

function byUnit(rows: readonly CostRow[]): Map<string, CostRow[]> {
  const found = new Map<string, CostRow[]>();
  for (const row of rows) {
    const known = found.get(unitOf(row));
    if (known === undefined) found.set(unitOf(row), [row]);
    else known.push(row);
  }
  return found;
}
