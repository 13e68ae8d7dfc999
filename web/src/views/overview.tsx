// Overview of a period: costs, waste by business unit, utilization over time, alerts and recommendations.

import { useContext, useRef, useState } from "preact/hooks";
import {
  type AlertsOfDay,
  settle,
  fetchJson,
  fetchAll,
  fetchAlerts,
  fetchHours,
  fetchIfAllowed,
  type CostRow,
  type CostsResponse,
  type Settled,
} from "../api";
import { fetchEarlier } from "../compare";
import { HOUR, roundMoney, stepName, utilizationText, wasteText } from "../format";
import { ServeContext, useFetch, useResponse, useRoute } from "../hooks";
import {
  Columns,
  Optional,
  DownloadButton,
  Empty,
  ExcelButton,
  Loaded,
  Name,
  Section,
  UnpricedNote,
  View,
} from "../parts";
import { fetchNodeHours } from "../node-hours";
import { MAX_FIGURES } from "../pages";
import { exactly, linkTo, periodOf, type Route, windowOf } from "../route";
import { type Grain, grainOf, isWhole } from "../series";
import { Alerts } from "./alerts";
import { Answers, type AnswersData } from "./answers";
import { Heat } from "./heat";
import { CostOverTime } from "./over-time";
import { type UnitClusters, Units, unitOf } from "./units";

interface ViewData {
  answers: Omit<AnswersData, "hours">;
  /** What the sections need. It is requested after the answers, which are shown before it arrives. */
  sections: Promise<Settled<SectionsData>>;
  requestKey: string;
}

interface SectionsData extends AnswersData {
  requestKey: string;
  grain: Grain;
  byTime: CostsResponse;
  timeGrain: Grain;
  alerts: Settled<AlertsOfDay>;
  /** The clusters that each unit uses; null if no hour is missing, or if they are unknown. */
  clusters: UnitClusters | null;
}

/** What the headline needs. It is requested first, and shown before the other figures arrive. */
export interface Headline {
  units: CostsResponse;
  /** The workload with the most waste of the unit with the most waste; null without units. */
  worst: Settled<CostsResponse | null>;
}

export async function fetchOverview(
  route: Route,
  requestKey: string,
  show: (headline: Headline) => void,
): Promise<ViewData> {
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
  const timeGrain: Grain = grain === "hour" && hours * whole.rows.length <= MAX_FIGURES ? "hour" : "day";
  const fetchBefore = async (earlier: { start: string; end: string }) => {
    const [fleet, units] = await Promise.all([
      fetchJson("v1/fleet", { ...earlier, cluster, granularity: "total" }),
      fetchJson("v1/costs", { ...earlier, cluster, granularity: "total", group_by: "business_unit" }),
    ]);
    return { fleet, units, coverage: units.coverage };
  };
  const recommended = settle(fetchIfAllowed("v1/recommendations", { cluster }));
  // Recommendations need a week of hours. Until then, the nodes without pods are what can be done.
  const fetchNodesWithout = async () => {
    const settled = await recommended;
    const isNone = "response" in settled && settled.response?.rows.length === 0;
    return settle(isNone ? fetchNodeHours(period) : Promise.resolve(null));
  };
  const nodeHours = fetchNodesWithout();
  const fleetOfPeriod = fetchJson("v1/fleet", { ...period, granularity: grain });
  const isThisMonth = windowOf(route) === "month" && route.query["start"] === undefined;
  const answers = Promise.all([
    fleetOfPeriod,
    fetchEarlier(whole, fetchBefore, route.query["vs"]),
    fetchJson("v1/fleet", { window: "6h", cluster }),
    isThisMonth ? fleetOfPeriod : fetchJson("v1/fleet", { window: "month", cluster, granularity: "total" }),
    settle(fetchIfAllowed("v1/forecasts", cluster === undefined ? {} : { group_by: "cluster" })),
    settle(fetchIfAllowed("v1/budgets", {})),
    recommended,
  ]);
  const first = whole.rows[0];
  const worst = first === undefined ? { response: null } : settle(fetchWorst(period, unitOf(first)));
  void Promise.resolve(worst).then((settled) => show({ units: whole, worst: settled }));
  // Browsers send six requests at a time: those of the sections would delay the answers.
  const fetchDetails = () =>
    Promise.all([
      fetchAll("v1/costs", { ...period, granularity: timeGrain, group_by: "business_unit" }),
      fetchHours(period),
      settle(fetchAlerts(end)),
      isWhole(whole.coverage) || cluster !== undefined ? null : fetchClusters(period),
    ]);
  const shownFirst = answers.then(
    ([fleet, before, lastHour, month, forecast, budgets, recommendations]) =>
      ({ fleet, units: whole, before, lastHour, month, forecast, budgets, recommendations, nodeHours }) as const,
  );
  const sections = shownFirst.then(async (known) => {
    const [byTime, statuses, alerts, clusters] = await fetchDetails();
    return { ...known, requestKey, grain, timeGrain, byTime, hours: statuses, alerts, clusters };
  });
  return { sections: settle(sections), answers: await shownFirst, requestKey };
}

async function fetchClusters(period: { start: string; end: string }): Promise<UnitClusters | null> {
  const request = { ...period, granularity: "total", group_by: "business_unit,cluster" } as const;
  const costs = await settle(fetchAll("v1/costs", request));
  if ("error" in costs || costs.response.cursor !== null) return null;
  const clusters = new Map<string, Set<string>>();
  for (const row of costs.response.rows) {
    const unitClusters = clusters.get(unitOf(row)) ?? new Set();
    clusters.set(unitOf(row), unitClusters.add(row.group["cluster"] ?? ""));
  }
  return clusters;
}

function fetchWorst(period: { start: string; end: string; cluster: string | undefined }, unit: string) {
  return fetchJson("v1/costs", {
    ...period,
    business_unit: exactly(unit),
    granularity: "total",
    group_by: "namespace,workload_kind,workload",
    sort: "-waste_usd",
    limit: "1",
  });
}

export function Overview() {
  const route = useRoute();
  const { query } = route;
  const requestKey = JSON.stringify([periodOf(route), query["cluster"], query["grain"], query["vs"]]);
  const [headline, setHeadline] = useState<Headline & { requestKey: string }>();
  const latestRef = useRef(requestKey);
  latestRef.current = requestKey;
  const request = useFetch(requestKey, () =>
    fetchOverview(route, requestKey, (shown) => {
      if (requestKey === latestRef.current) setHeadline({ ...shown, requestKey });
    }),
  );
  const isCurrent = headline?.requestKey === requestKey;
  return (
    <View
      title="Overview"
      controls={
        <>
          {request.error === undefined &&
            (isCurrent ? <Worst {...headline} /> : <p class="bone line" aria-hidden="true" />)}
          <SoFar />
        </>
      }
      request={request}
    >
      {(viewData) => <Shown {...viewData} again={request.again} />}
    </View>
  );
}

/** The time so far of clusters without a whole hour, which only `gpucost serve` has. */
function SoFar() {
  const isServed = useContext(ServeContext);
  const { response: Loaded } = useFetch(`${isServed}`, async () =>
    isServed ? (await import("./so-far")).SoFar : null,
  );
  return Loaded ? <Loaded /> : null;
}

function Shown({ answers, sections, requestKey, again }: ViewData & { again: () => void }) {
  const route = useRoute();
  const { response: loaded, error } = useResponse(sections);
  const isCurrent = loaded?.requestKey === requestKey;
  const { fleet, units } = answers;
  const { coverage } = units;
  if (coverage.hours_complete === 0) {
    return (
      <Empty>
        No data for this period yet: {coverage.hours_expected} cluster-hours expected, none with figures. Select another
        period, or see <a href={linkTo(route, "health")}>Data health</a> for the reason.
      </Empty>
    );
  }
  return (
    <>
      <Answers {...answers} hours={isCurrent ? loaded.hours : null} />
      <UnpricedNote totals={fleet.totals} />
      <Loaded request={{ response: loaded, error, isLoading: !isCurrent, again }}>
        {(response) => <Sections {...response} />}
      </Loaded>
    </>
  );
}

function Sections(props: SectionsData) {
  const route = useRoute();
  const { fleet, units } = props;
  const inOrder = useRef<readonly CostRow[]>([]);
  const scope = { start: fleet.start, end: fleet.end, cluster: route.query["cluster"] };
  return (
    <Columns
      left={
        <>
          <Section
            title="Business units by waste"
            aside={
              <span class="filters-of">
                <ExcelButton
                  save={({ costCells, groupCell, saveWorkbook }) =>
                    saveWorkbook(
                      "business-units",
                      units,
                      costCells([groupCell("business_unit", "Business unit")], units),
                      inOrder.current,
                    )
                  }
                />
                <DownloadButton
                  path="v1/costs"
                  parameters={{ ...scope, granularity: "total", group_by: "business_unit", sort: "-waste_usd" }}
                  name="business-units"
                />
              </span>
            }
          >
            <Units {...props} inOrder={inOrder} />
          </Section>
          <CostOverTime {...props} />
        </>
      }
      right={
        <>
          <Section title={`Utilization over time, by ${stepName(props.grain)}`}>
            <Heat {...props} />
          </Section>
          <Section title="Active alerts">
            <Optional side={props.alerts}>{(alerts) => <Alerts {...alerts} />}</Optional>
          </Section>
        </>
      }
    />
  );
}

/** The unit that wastes most, and the workload that explains it. */
function Worst({ units, worst }: Headline) {
  const route = useRoute();
  const row = units.rows[0];
  if (row === undefined || !row.waste_usd) return null;
  const workload = "response" in worst ? worst.response?.rows[0] : undefined;
  const usd = (amount: number | null) => roundMoney(amount, units.currency);
  return (
    <p data-testid="worst">
      <a href={linkTo(route, "unit", unitOf(row))}>
        <Name>{unitOf(row)}</Name>
      </a>{" "}
      wastes most: {usd(row.waste_usd)}, {wasteText(row)} of its allocated cost.
      {workload !== undefined && (
        <>
          {" "}
          Most of it is {workload.group["workload_kind"]}{" "}
          <strong>
            <Name>{workload.group["workload"] ?? ""}</Name>
          </strong>{" "}
          in <Name>{workload.group["namespace"] ?? ""}</Name>: {usd(workload.waste_usd)}, at {utilizationText(workload)}{" "}
          utilization.
        </>
      )}
    </p>
  );
}
