// Overview of a period: costs, waste by business unit, utilization over time, alerts and recommendations.

import {
  type Alert,
  settle,
  fetchJson,
  fetchAll,
  fetchAlerts,
  fetchHours,
  fetchIfAllowed,
  type CostsResponse,
  type FleetResponse,
  type FleetTotals,
  type HoursResponse,
  type Settled,
  type RecommendationsResponse,
} from "../api";
import { HOUR, instant, money, moment, percent, ratio, utilization } from "../format";
import { useFetch, useRoute, useZone } from "../hooks";
import { Optional, DownloadButton, Empty, Section, Stat, UnpricedNote, View } from "../parts";
import { MAX_FIGURES } from "../pages";
import { periodOf, type Route } from "../route";
import { type Grain, grainOf } from "../series";
import { Alerts } from "./alerts";
import { WhyLink } from "./figure";
import { Heat } from "./heat";
import { CostOverTime } from "./over-time";
import { Recommendations } from "./recommendations";
import { Units } from "./units";

interface ViewData {
  grain: Grain;
  fleet: FleetResponse;
  units: CostsResponse;
  before: CostsResponse;
  byTime: CostsResponse;
  timeGrain: Grain;
  hours: HoursResponse | null;
  lastHour: FleetResponse;
  month: FleetResponse;
  alerts: Settled<Alert[]>;
  recommendations: Settled<RecommendationsResponse | null>;
}

export async function fetchOverview(route: Route): Promise<ViewData> {
  const cluster = route.query["cluster"];
  const request = { ...periodOf(route), cluster };
  const whole = await fetchJson("v1/costs", {
    ...request,
    granularity: "total",
    group_by: "business_unit",
    sort: "-waste_usd",
  });
  // The other requests use this fixed period, so that all responses match even if an hour ends meanwhile.
  const { start, end } = whole;
  const period = { start, end, cluster };
  const length = Date.parse(end) - Date.parse(start);
  const hours = length / HOUR;
  const grain = grainOf(hours, route.query["grain"]);
  const timeGrain = grain === "hour" && hours * whole.rows.length <= MAX_FIGURES ? "hour" : "day";
  const [fleet, before, byTime, hourStatuses, lastHour, month, alerts, recommendations] = await Promise.all([
    fetchJson("v1/fleet", { ...period, granularity: grain }),
    fetchJson("v1/costs", {
      start: instant(Date.parse(start) - length),
      end: start,
      cluster,
      granularity: "total",
      group_by: "business_unit",
    }),
    fetchAll("v1/costs", { ...period, granularity: timeGrain, group_by: "business_unit" }),
    fetchHours(period, whole.coverage),
    fetchJson("v1/fleet", { window: "6h", cluster }),
    fetchJson("v1/fleet", { window: "month", cluster, granularity: "total" }),
    settle(fetchAlerts(end)),
    settle(fetchIfAllowed("v1/recommendations", { cluster })),
  ]);
  return {
    grain,
    fleet,
    units: whole,
    before,
    byTime,
    timeGrain,
    hours: hourStatuses,
    lastHour,
    month,
    alerts,
    recommendations,
  };
}

export function Overview() {
  const route = useRoute();
  const { query } = route;
  const requestKey = JSON.stringify([periodOf(route), query["cluster"], query["grain"]]);
  const request = useFetch(requestKey, () => fetchOverview(route));
  return (
    <View title="Overview" request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { fleet, units } = props;
  const { totals } = fleet;
  const { coverage } = units;
  if (coverage.hours_complete === 0) {
    return (
      <Empty>No data for this period yet: {coverage.hours_expected} cluster-hours expected, none with figures.</Empty>
    );
  }
  const scope = { start: fleet.start, end: fleet.end, cluster: route.query["cluster"] };
  const isFleet = totals.capacity_gpu_hours !== null;
  const now = props.lastHour.rows.at(-1); // the newest hour with figures, because the last hour may not be published yet
  const month = props.month.totals;
  const cost = (totals: FleetTotals) => totals.node_cost_usd ?? totals.allocated_usd;
  return (
    <>
      <dl class="stats">
        <Stat
          name={isFleet ? "Current hourly cost" : "Your current hourly cost"}
          value={money(now && cost(now), fleet.currency)}
          note={now && <>hour starting {moment(now.start, zone)}</>}
          testId="cost-now"
        />
        <Stat name="This month" value={money(cost(month), fleet.currency)} testId="cost-month" />
        <Stat
          name="This period"
          value={money(cost(totals), fleet.currency)}
          note={
            <>
              <Period start={fleet.start} end={fleet.end} />{" "}
              <WhyLink
                figure={isFleet ? "node_cost_usd" : "allocated_usd"}
                amount={money(cost(totals), fleet.currency)}
              />
            </>
          }
          testId="cost-period"
        />
        <Stat
          name="Waste"
          value={money(totals.waste_usd, fleet.currency)}
          note={
            <>
              {percent(ratio(totals.waste_usd, totals.allocated_usd))} of allocated cost{" "}
              <WhyLink figure="waste_usd" amount={money(totals.waste_usd, fleet.currency)} />
            </>
          }
          testId="waste"
        />
        <Stat
          name="Utilization"
          value={percent(utilization(totals))}
          note="of measured GPU-hours"
          testId="utilization"
        />
        <Stat
          name="Coverage"
          value={percent(ratio(coverage.hours_complete, coverage.hours_expected))}
          note={`${coverage.hours_complete} of ${coverage.hours_expected} cluster-hours complete`}
          testId="coverage"
        />
      </dl>
      <UnpricedNote totals={totals} />
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
        <Optional side={props.alerts}>{(alerts) => <Alerts alerts={alerts} />}</Optional>
      </Section>
      <Section title="Recommendations">
        <Optional side={props.recommendations}>{(list) => <Recommendations rows={list?.rows ?? []} />}</Optional>
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
