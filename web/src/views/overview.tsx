// For a period and cluster: what it costs and what becomes of it, who wastes most, when GPUs were used, what alerts.

import {
  type Alert,
  aside,
  ask,
  askAll,
  askAlerts,
  askHours,
  askIfAllowed,
  type CostRow,
  type CostsAnswer,
  type FleetAnswer,
  type HoursAnswer,
  type Side,
  type Totals,
} from "../api";
import { instant, money, moment, percent, ratio, utilization } from "../format";
import { useAnswer, useRoute, useZone } from "../hooks";
import { Aside, DownloadButton, Empty, OfCluster, Section, Stat, Unpriced, Waiting } from "../parts";
import { MOST_FIGURES } from "../pages";
import { periodOf, type Route } from "../route";
import { type Grain, grainOf } from "../series";
import { Alerts } from "./alerts";
import { Heat } from "./heat";
import { CostOverTime } from "./over-time";
import { type Recommendation, Recommendations } from "./recommendations";
import { Units } from "./units";

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
  alerts: Side<Alert[]>;
  recommendations: Side<{ rows: Recommendation[] } | null>;
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
  const timeGrain = grain === "hour" && hours * whole.rows.length <= MOST_FIGURES ? "hour" : "day";
  const [fleet, before, byTime, known, lastHour, month, alerts, recommendations] = await Promise.all([
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
    aside(askAlerts(end)),
    aside(askIfAllowed<{ rows: Recommendation[] }>("v1/recommendations", { cluster })),
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
    recommendations,
  };
}

export function Overview() {
  const route = useRoute();
  const { query } = route;
  const question = JSON.stringify([periodOf(route), query["cluster"], query["grain"]]);
  const asked = useAnswer(question, () => askOverview(route));
  return (
    <>
      <h1>
        Overview
        <OfCluster />
      </h1>
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
  const isFleet = totals.capacity_gpu_hours !== null;
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
      <Unpriced totals={totals} />
      <CostOverTime {...props} />
      <Section
        title="Business units by waste"
        aside={
          <DownloadButton
            path="v1/costs"
            parameters={{ ...scope, granularity: "total", group_by: "business_unit", sort: "-waste_usd" }}
            name="business-units"
          />
        }
      >
        <Units {...props} />
      </Section>
      <Section title="Utilization over time">
        <Heat {...props} />
      </Section>
      <Section title="Active alerts">
        <Aside side={props.alerts}>{(alerts) => <Alerts alerts={alerts} />}</Aside>
      </Section>
      <Section title="Recommendations">
        <Aside side={props.recommendations}>{(found) => <Recommendations rows={found?.rows ?? []} />}</Aside>
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
