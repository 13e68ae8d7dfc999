// A business unit: costs over time, workloads, hardware, budget, recommendations and alerts.

import { useRef } from "preact/hooks";
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
  type HoursResponse,
  Problem,
  type RecommendationsResponse,
  type Settled,
} from "../api";
import { colored } from "../charts/colors";
import { StackedChart } from "../charts/stacked";
import { type Compared, comparisonNote, comparisonOf, earlierText, fetchEarlier, relativeChange } from "../compare";
import type { FigureKey } from "../explain";
import { type ExploreRow, filterQuery } from "../explore";
import {
  axisMoney,
  change,
  HOUR,
  instant,
  isMeasured,
  isRepresentative,
  knownFigure,
  knownParts,
  measuredShare,
  moment,
  money,
  NOT_MEASURED,
  percent,
  ratio,
  roundHours,
  roundMoney,
  stepName,
  utilization,
} from "../format";
import { changed, go, useFetch, useHasModels, useRoute, useZone } from "../hooks";
import { AMOUNTS, amountTitle, PARTS, partsOf } from "../identity";
import {
  Columns,
  Optional,
  DownloadButton,
  Empty,
  ErrorMessage,
  ExcelButton,
  Name,
  NotFound,
  Section,
  Stat,
  UnpricedNote,
  View,
} from "../parts";
import { exactly, linkTo, periodOf, type Route } from "../route";
import { align, bucketsOf, type Grain, grainOf, hoursIn, isWhole, completeShare } from "../series";
import { Alerts } from "./alerts";
import { fetchMonth, Budget, type Month } from "./budget";
import { WhyLink } from "./figure";
import { Hardware } from "./hardware";
import { Gaps } from "./gaps";
import { openAt } from "./over-time";
import { Recommendations } from "./recommendations";
import { Workloads } from "./workloads";

interface ViewData {
  grain: Grain;
  total: CostRow | undefined;
  whole: CostsResponse;
  before: Compared<CostsResponse>;
  byTime: CostsResponse;
  workloads: CostsResponse;
  hardware: CostsResponse;
  /** Of the clusters that the unit uses. */
  hours: HoursResponse | null;
  month: Settled<Month>;
  alerts: Settled<AlertsOfDay>;
  recommendations: Settled<RecommendationsResponse | null>;
}

async function fetchUnit(route: Route): Promise<ViewData> {
  const cluster = route.query["cluster"];
  const unitFilter = { cluster, business_unit: exactly(route.name) };
  const whole = await fetchJson("v1/costs", {
    ...periodOf(route),
    ...unitFilter,
    granularity: "total",
    group_by: "business_unit",
  });
  const { start, end } = whole;
  const period = { start, end };
  const length = Date.parse(end) - Date.parse(start);
  const grain = grainOf(length / HOUR, route.query["grain"]);
  const [before, byTime, workloads, hardware, hours, month, alerts, recommendations] = await Promise.all([
    fetchEarlier(
      whole,
      (earlier) => fetchJson("v1/costs", { ...unitFilter, ...earlier, granularity: "total" }),
      route.query["vs"],
    ),
    fetchJson("v1/costs", { ...unitFilter, ...period, granularity: grain }),
    fetchAll(
      "v1/costs",
      {
        ...unitFilter,
        ...period,
        granularity: "total",
        group_by: "cluster,namespace,workload_kind,workload",
        sort: "-allocated_usd",
        limit: "1000",
      },
      1,
    ),
    fetchJson("v1/costs", {
      ...unitFilter,
      ...period,
      granularity: "total",
      group_by: "gpu_model,node_pool,capacity_type",
      sort: "-allocated_usd",
    }),
    fetchHours({ ...period, cluster }),
    settle(fetchMonth(route.name)),
    settle(fetchAlerts(end)),
    settle(fetchIfAllowed("v1/recommendations", { business_unit: exactly(route.name), cluster, state: "all" })),
  ]);
  const isListed = workloads.cursor === null; // otherwise, the others may be in further clusters
  const clusters = isListed ? new Set(workloads.rows.map(({ group }) => group["cluster"] ?? "")) : null;
  return {
    grain,
    whole,
    total: whole.rows[0],
    before,
    byTime,
    workloads,
    hardware,
    hours: hoursIn(hours, clusters),
    month,
    recommendations,
    alerts,
  };
}

export function Unit() {
  const route = useRoute();
  const { query } = route;
  const requestKey = JSON.stringify([route.name, periodOf(route), query["cluster"], query["grain"], query["vs"]]);
  const request = useFetch(requestKey, () => fetchUnit(route));
  const title = (
    <>
      Business unit <Name>{route.name}</Name>
    </>
  );
  return (
    <View title={title} request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const { total, before, whole, month } = props;
  const { currency } = whole;
  const zone = useZone();
  const hasModels = useHasModels();
  const inOrder = useRef<readonly ExploreRow[]>([]);
  const unit = { dimension: "business_unit", name: route.name, isExcluded: false };
  const comparison = comparisonOf(whole.coverage, before.body.coverage);
  const since = relativeChange(total?.allocated_usd, before.body.rows[0]?.allocated_usd, comparison);
  if (whole.coverage.hours_complete === 0)
    return (
      <Empty>
        No data for this period yet. Select another period, or see <a href={linkTo(route, "health")}>Data health</a>.
      </Empty>
    );
  if (total === undefined) {
    if ("error" in month && month.error instanceof Problem && month.error.status === 404)
      return (
        <NotFound>
          There is no business unit <Name>{route.name}</Name>.
        </NotFound>
      );
    return (
      <>
        <Empty>
          This business unit held no GPUs in this period. Select another period
          {hasModels && (
            <>
              , or see the <a href={linkTo(route, "consumer", route.name)}>models of others that it used</a>
            </>
          )}
          .
        </Empty>
        <ThisMonth month={month} />
      </>
    );
  }
  const recommended = "response" in props.recommendations ? props.recommendations.response : null;
  const why = (figure: keyof typeof total & FigureKey) => (
    <WhyLink figure={figure} amount={roundMoney(total[figure], currency)} scope={{ unit: route.name }} />
  );
  return (
    <Columns
      left={
        <>
          <ThisMonth month={month} />
          <h2 data-testid="unit-period">
            {moment(whole.start, zone)} to {moment(whole.end, zone)}
          </h2>
          <dl class="stats">
            <Stat
              name={amountTitle("allocated_usd")}
              value={roundMoney(total.allocated_usd, currency)}
              note={
                <>
                  {comparison?.isExact === false && "about "}
                  {comparison === null
                    ? comparisonNote(whole.coverage, before.body.coverage, before.period.name)
                    : `${change(since)} vs ${earlierText(before, zone)}`}{" "}
                  {why("allocated_usd")}
                </>
              }
              testId="allocated"
            />
            <Stat
              name={amountTitle("effective_usd")}
              value={roundMoney(knownFigure(total, "effective_usd"), currency)}
              note={
                isMeasured(total) ? (
                  <>
                    {!isRepresentative(total) && "of the measured part only "}
                    {why("effective_usd")}
                  </>
                ) : (
                  `unknown: ${NOT_MEASURED}`
                )
              }
              testId="effective"
            />
            <Stat
              name={amountTitle("waste_usd")}
              value={roundMoney(knownFigure(total, "waste_usd"), currency)}
              note={
                isRepresentative(total) ? (
                  <>
                    {percent(ratio(total.waste_usd, total.allocated_usd))} of allocated cost {why("waste_usd")}
                  </>
                ) : isMeasured(total) ? (
                  <>of the measured part only {why("waste_usd")}</>
                ) : (
                  `unknown: ${NOT_MEASURED}`
                )
              }
              testId="waste"
            />
            <Stat
              name={amountTitle("unmeasured_usd")}
              value={roundMoney(total.unmeasured_usd, currency)}
              note={why("unmeasured_usd")}
            />
            <Stat name="GPU-hours" value={roundHours(total.allocated_gpu_hours)} testId="gpu-hours" />
            <Stat
              name="Utilization"
              value={percent(utilization(total))}
              note={isRepresentative(total) ? "of measured GPU-hours" : `${percent(measuredShare(total))} measured`}
              testId="utilization"
            />
            {total.energy_kwh !== null && (
              <Stat
                name="Energy (kWh)"
                value={roundHours(total.energy_kwh)}
                note={`${roundHours(total.co2e_kg)} kg CO2e`}
                testId="energy"
              />
            )}
          </dl>
          <UnpricedNote totals={total} />
          <Section
            title="Workloads"
            aside={
              <span class="filters-of">
                {hasModels && <a href={linkTo(route, "models", "", filterQuery([unit], []))}>Models of this unit</a>}
                {hasModels && <a href={linkTo(route, "consumer", route.name)}>Models that it used</a>}
                <ExcelButton
                  save={({ costCells, groupCell, saveWorkbook }) =>
                    saveWorkbook(
                      route.name,
                      whole,
                      costCells(
                        [
                          groupCell("workload", "Workload"),
                          groupCell("workload_kind", "Workload kind"),
                          groupCell("namespace", "Namespace"),
                          groupCell("cluster", "Cluster"),
                        ],
                        whole,
                      ),
                      inOrder.current.flatMap((row): readonly CostRow[] => row.jobs ?? [row]),
                    )
                  }
                />
                <DownloadButton
                  path="v1/costs"
                  parameters={{
                    start: whole.start,
                    end: whole.end,
                    cluster: route.query["cluster"],
                    business_unit: exactly(route.name),
                    granularity: "total",
                    group_by: "cluster,namespace,workload_kind,workload",
                    sort: "-allocated_usd",
                  }}
                  name={route.name}
                />
              </span>
            }
          >
            <Workloads
              whole={whole}
              rows={props.workloads.rows}
              hours={props.hours}
              recommendations={recommended}
              inOrder={inOrder}
            />
          </Section>
        </>
      }
      right={
        <>
          <Section
            title="Recommendations"
            aside={<a href={linkTo(route, "savings", "", { unit: route.name })}>All states, evidence and commands</a>}
          >
            <Optional side={props.recommendations}>{(list) => <Recommendations response={list} />}</Optional>
          </Section>
          <Section title="Active alerts">
            <Optional side={props.alerts}>
              {({ active, history, evaluated }) => (
                <Alerts
                  evaluated={evaluated}
                  active={active.filter(({ subject }) => subject.business_unit === route.name)}
                  history={history.filter(({ subject }) => subject.business_unit === route.name)}
                />
              )}
            </Optional>
          </Section>
          <OverTime {...props} />
          <Section title="GPU models and node pools">
            <Hardware rows={props.hardware.rows} currency={currency} />
          </Section>
        </>
      }
    />
  );
}

function ThisMonth({ month }: { month: Settled<Month> }) {
  if ("response" in month) return <Budget month={month.response} />;
  return (
    <Section title="This month (UTC)">
      <ErrorMessage error={month.error} />
    </Section>
  );
}

function OverTime({ total, whole, byTime, grain, hours }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(whole.start, whole.end, grain);
  const list = align(buckets, byTime.rows.map(knownParts));
  const coverage = completeShare(buckets, hours?.rows ?? null, list, isWhole(whole.coverage));
  // In hours with data, a missing row means that the unit held nothing: a zero, not a gap.
  const nothing = { effective_usd: 0, waste_usd: 0, unmeasured_usd: 0 };
  const rows = list.map((row, index) => row ?? ((coverage[index] ?? 0) > 0 ? nothing : undefined));
  return (
    <Section title={`${amountTitle("allocated_usd")} over time, by ${stepName(grain)}`}>
      <StackedChart
        label="Allocated cost of this business unit over time, by part"
        buckets={buckets}
        rows={rows}
        coverage={coverage}
        parts={colored(partsOf(byTime.rows, PARTS.slice(0, 3)))}
        totals={total === undefined ? nothing : knownParts(total)}
        whole={total === undefined ? 0 : total.allocated_usd}
        wholeName={AMOUNTS.allocated_usd}
        show={(figure) => money(figure, whole.currency)}
        axis={(figure) => axisMoney(figure, whole.currency)}
        hours={hours?.rows}
        zone={zone}
        onOpen={(start, end) => go(openAt(route, buckets, start, end, { unit: route.name }))}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
      <Gaps hours={hours} />
    </Section>
  );
}
