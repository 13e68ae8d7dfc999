// A model: what a million tokens cost over time, its load, what waiting adds, and who and what serves it.

import { fetchAll, fetchHours, fetchJson, type HoursResponse, type InferenceResponse, type ModelRow } from "../api";
import { PART_COLORS, colored } from "../charts/colors";
import { type Series, StackedChart } from "../charts/stacked";
import { clusterColumns, figureColumn, linkToPods, nameColumn } from "../columns";
import { filtersIn } from "../explore";
import { axisMoney, axisPrice, type Figure, HOUR, instant, money, tokenCount, tokenRate, unitPrice } from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { PARTS, partsOf } from "../identity";
import {
  addedByWaiting,
  type Bars,
  barsOf,
  costBar,
  costsByBucket,
  loadBar,
  MODEL_DIMENSIONS,
  modelFiltersOf,
  type UnitCost,
  unitCostBar,
  unitCostsOf,
  unknownRowsOf,
} from "../models";
import { type Column, DownloadButton, Empty, Name, Section, Table, View } from "../parts";
import { exactly, linkTo, periodOf, type Route } from "../route";
import { align, type Buckets, bucketsOf, completeShare, type Grain, grainOf, isWhole, pricedShare } from "../series";
import { Filters } from "./filters";
import { Gaps } from "./gaps";
import { fetchNames, modelColumns, ModelStats } from "./models";
import { openAt } from "./over-time";

/** What a model's costs can be divided by, with the API's dimensions. */
const BREAKDOWNS: Readonly<Record<string, { title: string; groupBy: string }>> = {
  workload: { title: "Workload", groupBy: "cluster,namespace,workload_kind,workload" },
  business_unit: { title: "Business unit", groupBy: "business_unit" },
  server: { title: "Inference server", groupBy: "server" },
  gpu_model: { title: "GPU model", groupBy: "gpu_model" },
  cluster: { title: "Cluster", groupBy: "cluster" },
};
type Breakdown = keyof typeof BREAKDOWNS;

interface ViewData {
  grain: Grain;
  by: Breakdown;
  whole: InferenceResponse;
  byTime: InferenceResponse;
  groups: InferenceResponse;
  /** Pods whose tokens are unknown, of the workloads that served the model, by time. */
  unknown: ModelRow[];
  hours: HoursResponse | null;
}

const breakdownOf = ({ query: { by = "" } }: Route): Breakdown => (Object.hasOwn(BREAKDOWNS, by) ? by : "workload");

/** The model's own name comes last: no filter replaces it. */
const filtersOf = (route: Route) => ({
  cluster: route.query["cluster"],
  ...modelFiltersOf(filtersIn(route)),
  model: exactly(route.name),
});

async function fetchModel(route: Route): Promise<ViewData> {
  const filters = filtersOf(route);
  const by = breakdownOf(route);
  const whole = await fetchJson("v1/inference", { ...periodOf(route), ...filters, granularity: "total" });
  const { start, end } = whole;
  const period = { start, end };
  const grain = grainOf((Date.parse(end) - Date.parse(start)) / HOUR, route.query["grain"]);
  const groupsBy = (breakdown: Breakdown) =>
    fetchAll("v1/inference", {
      ...period,
      ...filters,
      granularity: "total",
      group_by: BREAKDOWNS[breakdown]?.groupBy ?? "",
    });
  const byWorkload = groupsBy("workload");
  const [byTime, workloads, groups, unknown, hours] = await Promise.all([
    fetchAll("v1/inference", { ...period, ...filters, granularity: grain }),
    byWorkload,
    by === "workload" ? byWorkload : groupsBy(by),
    fetchAll("v1/inference", {
      ...period,
      ...filters,
      model: exactly(""),
      granularity: grain,
      group_by: "cluster,namespace,workload",
    }),
    fetchHours({ ...period, cluster: filters.cluster }, whole.coverage),
  ]);
  return { grain, by, whole, byTime, groups, unknown: unknownRowsOf(unknown.rows, workloads.rows), hours };
}

export function Model() {
  const route = useRoute();
  const filters = filtersIn(route);
  const { cluster, grain } = route.query;
  const key = JSON.stringify([route.name, periodOf(route), cluster, grain, breakdownOf(route), filters]);
  const request = useFetch(key, () => fetchModel(route));
  const dimensions = Object.fromEntries(Object.entries(MODEL_DIMENSIONS).filter(([name]) => name !== "model"));
  const title = (
    <>
      Model <Name>{route.name}</Name>
    </>
  );
  const controls = (
    <Filters filters={filters} dimensions={dimensions} namesOf={(dimension) => fetchNames(route, dimension)} />
  );
  return (
    <View title={title} controls={controls} request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const { whole } = props;
  const [total] = whole.rows;
  if (total === undefined) {
    return (
      <Empty>
        No server of this model was seen in this period
        {filtersIn(route).length > 0 && " with these filters"}. Select another period, or see{" "}
        <a href={linkTo(route, "models")}>all models</a>.
      </Empty>
    );
  }
  return (
    <>
      <ModelStats row={total} currency={whole.currency} />
      <UnknownNote {...props} />
      <OverTime {...props} total={total} />
      <Section title="Unit costs">
        <UnitCosts total={total} currency={whole.currency} />
      </Section>
      <Groups {...props} />
    </>
  );
}

/** Pods that may have served the model, of which no figure has a part. */
function UnknownNote({ unknown, whole }: ViewData) {
  const cost = unknown.reduce((sum, row) => sum + (row.allocated_usd ?? 0), 0);
  if (unknown.length === 0) return null;
  return (
    <p class="note unpriced" data-testid="unknown-pods">
      Pods of this model's workloads that cost {money(cost, whole.currency)} have unknown tokens. Which part of it was
      for this model is unknown, so no figure includes it.
    </p>
  );
}

/** The parts of the cost of a million tokens. */
const UNIT_PARTS: readonly Series[] = [
  { key: "full_use", name: "at full use", meaning: "if the GPUs always worked", color: PART_COLORS.effective_usd },
  { key: "waiting", name: "added by waiting", meaning: "held and not used", color: PART_COLORS.waste_usd },
  {
    key: "unmeasured",
    name: "not measured",
    meaning: "utilization was not measured, so that what waiting adds is unknown",
    color: PART_COLORS.unmeasured_usd,
  },
];
const LOAD: readonly Series[] = [
  { key: "load", name: "tokens per GPU-second", meaning: "", color: PART_COLORS.host_usd },
];
const NAMES: Readonly<Record<string, string>> = { effective_usd: "serving", waste_usd: "waiting" };

function OverTime({ total, whole, byTime, grain, hours, unknown }: ViewData & { total: ModelRow }) {
  const { currency } = whole;
  const buckets = bucketsOf(whole.start, whole.end, grain);
  const aligned = align(buckets, byTime.rows);
  const coverage = completeShare(buckets, hours?.rows ?? null, aligned, isWhole(whole.coverage));
  const unknownUsd = costsByBucket(buckets, unknown);
  const barsBy = (barOf: typeof loadBar) => barsOf(buckets, byTime.rows, coverage, unknownUsd, currency, barOf);
  const [unitCosts, spent, loads] = [barsBy(unitCostBar), barsBy(costBar), barsBy(loadBar)];
  const priced = aligned.map((row) => (row === undefined ? 1 : pricedShare(row)));
  const hasUnmeasured = unitCosts.rows.some((row) => row?.["unmeasured"] !== undefined);
  const { usd_per_million_tokens: asItWas, usd_per_million_tokens_at_full_use: atFullUse } = total;
  const shared = { buckets, coverage, hours };
  return (
    <>
      <Section title="Cost per million tokens over time">
        <Chart
          {...shared}
          label="Cost per million tokens over time: at full use, and what waiting adds"
          bars={unitCosts}
          priced={priced}
          parts={hasUnmeasured ? UNIT_PARTS : UNIT_PARTS.slice(0, 2)}
          totals={
            atFullUse === null
              ? { unmeasured: asItWas }
              : { full_use: atFullUse, waiting: addedByWaiting({ asItWas, atFullUse }) }
          }
          whole={asItWas}
          wholeName="as it was"
          show={(figure) => unitPrice(figure, currency)}
          axis={(figure) => axisPrice(figure, currency)}
        />
      </Section>
      <Section title="Serving and waiting over time">
        <Chart
          {...shared}
          label="Cost of this model over time: serving, waiting, unmeasured"
          bars={spent}
          priced={priced}
          parts={colored(partsOf(byTime.rows, PARTS.slice(0, 3))).map((part) => ({
            ...part,
            name: NAMES[part.key] ?? part.name,
          }))}
          totals={total}
          whole={total.allocated_usd}
          show={(figure) => money(figure, currency)}
          axis={(figure) => axisMoney(figure, currency)}
        />
        <Gaps hours={hours} />
      </Section>
      <Section title="Load over time">
        <Chart
          {...shared}
          label="Tokens per GPU-second over time"
          bars={loads}
          parts={LOAD}
          totals={{ load: total.tokens_per_gpu_second }}
          whole={null}
          wholeName={null}
          show={tokenRate}
          axis={tokenCount}
        />
      </Section>
    </>
  );
}

function Chart(props: {
  label: string;
  buckets: Buckets;
  coverage: readonly number[];
  hours: HoursResponse | null;
  bars: Bars;
  priced?: readonly number[];
  parts: readonly Series[];
  totals: object;
  whole: Figure;
  wholeName?: string | null;
  show: (figure: Figure) => string;
  axis?: (figure: Figure) => string;
}) {
  const route = useRoute();
  const zone = useZone();
  const { hours, ...chart } = props;
  const select = (start: number, end: number) =>
    go(changed(route, { start: instant(start), end: instant(end), window: "" }));
  return (
    <StackedChart
      {...chart}
      {...props.bars}
      hours={hours?.rows}
      zone={zone}
      onOpen={(start, end) => go(openAt(route, props.buckets, start, end))}
      onSelect={select}
    />
  );
}

function UnitCosts({ total, currency }: { total: ModelRow; currency: string }) {
  const price = (figure: Figure) => unitPrice(figure, currency);
  return (
    <>
      <Table<UnitCost>
        name="unit-costs"
        caption="What tokens and requests cost, as it was and at full use"
        sort=""
        rows={unitCostsOf(total)}
        rowKey={(row) => row.name}
        columns={[
          nameColumn("name", "Cost of", (row) => row.name),
          figureColumn<UnitCost>("as-it-was", "As it was", (row) => row.asItWas, price),
          figureColumn<UnitCost>("at-full-use", "At full use", (row) => row.atFullUse, price),
          figureColumn<UnitCost>("waiting", "Added by waiting", addedByWaiting, price),
          figureColumn<UnitCost>("count", "Count", (row) => row.count, tokenCount),
        ]}
      />
      <p class="note">
        Costs of prompt and generated tokens follow from the weights of the settings. A dash is unknown, or there were
        no such tokens.
      </p>
    </>
  );
}

function Groups({ by, whole, groups }: ViewData) {
  const route = useRoute();
  const { currency, start, end } = whole;
  const { title = "", groupBy = "" } = BREAKDOWNS[by] ?? {};
  return (
    <Section
      title="By workload, business unit, server and hardware"
      aside={
        <DownloadButton
          path="v1/inference"
          parameters={{
            start,
            end,
            ...filtersOf(route),
            granularity: "total",
            group_by: groupBy,
            sort: route.query["groups-sort"] ?? "-allocated_usd",
          }}
          name={`${route.name}-by-${by}`}
        />
      }
    >
      <nav class="filters" aria-label="Dimensions">
        {Object.entries(BREAKDOWNS).map(([key, entry]) => (
          <a
            key={key}
            class="filter"
            href={changed(route, { by: key === "workload" ? "" : key, "groups-sort": "" })}
            aria-current={by === key ? "page" : undefined}
          >
            {entry.title}
          </a>
        ))}
      </nav>
      <Table<ModelRow>
        name="groups"
        caption={`Costs of the model by ${title.slice(0, 3) === "GPU" ? title : title.toLowerCase()}`}
        sort="-allocated_usd"
        rows={groups.rows}
        rowKey={(row) => Object.values(row.group).join("\n")}
        columns={[...nameColumns(route, by, whole, groups.rows), ...modelColumns(currency)]}
      />
    </Section>
  );
}

/** The columns that name a row of a breakdown. */
function nameColumns(
  route: Route,
  by: Breakdown,
  period: InferenceResponse,
  rows: readonly ModelRow[],
): Column<ModelRow>[] {
  const nameOf = (row: ModelRow) => row.group[by] ?? "";
  const linkOf = (row: ModelRow): string | undefined => {
    const { cluster, namespace } = row.group;
    if (by === "business_unit") return linkTo(route, "unit", nameOf(row));
    if (by === "cluster") return changed(route, { cluster: nameOf(row) });
    if (by !== "workload") return undefined;
    return linkToPods(route, period, {
      namespace: namespace ?? "",
      workload: nameOf(row),
      cluster: cluster ?? "",
    });
  };
  const column: Column<ModelRow> = {
    key: by,
    title: BREAKDOWNS[by]?.title ?? by,
    cell: (row) => {
      const link = linkOf(row);
      const { namespace, workload_kind: kind } = row.group;
      return (
        <>
          {link === undefined ? (
            <Name>{nameOf(row)}</Name>
          ) : (
            <a href={link}>
              <Name>{nameOf(row)}</Name>
            </a>
          )}
          {by === "workload" && (
            <span class="note below">
              {kind} in <Name>{namespace ?? ""}</Name>
            </span>
          )}
        </>
      );
    },
    by: nameOf,
  };
  return [column, ...(by === "workload" ? clusterColumns(rows, (row) => row.group["cluster"] ?? "") : [])];
}
