// A model: what a million tokens cost over time, its load, what waiting adds, and who uses and what serves it. Or a
// consumer: the same of what it used.

import { fetchAll, fetchHours, fetchJson, type HoursResponse, type InferenceResponse, type ModelRow } from "../api";
import { PART_COLORS, colored } from "../charts/colors";
import { type Series, StackedChart } from "../charts/stacked";
import { clusterColumns, figureColumn, linkToPods, nameColumn } from "../columns";
import { filtersIn } from "../explore";
import {
  axisMoney,
  axisPrice,
  type Figure,
  HOUR,
  instant,
  money,
  stepName,
  tokenCount,
  tokenRate,
  unitPrice,
} from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { AMOUNTS, amountTitle, PARTS, partsOf, UNIT_COSTS } from "../identity";
import {
  addedByWaiting,
  type Bars,
  barsOf,
  costBar,
  costsByBucket,
  loadBar,
  MODEL_DIMENSIONS,
  modelFiltersOf,
  tokensBar,
  tokensOf,
  UNATTRIBUTED,
  type Subject,
  type UnitCost,
  unitCostBar,
  unitCostsOf,
  unknownRowsOf,
  unnamedRowsOf,
} from "../models";
import { type Column, Columns, DownloadButton, Empty, Name, Section, Table, View } from "../parts";
import { exactly, linkTo, periodOf, type Route } from "../route";
import { align, type Buckets, bucketsOf, completeShare, type Grain, grainOf, isWhole, pricedShare } from "../series";
import { Filters } from "./filters";
import { Gaps } from "./gaps";
import { fetchNames, groupColumn, modelColumns, ModelStats, NoConsumers } from "./models";
import { openAt } from "./over-time";

/** What the costs can be divided by, with the API's dimensions. */
const ALL_BREAKDOWNS: Readonly<Record<string, { title: string; groupBy: string }>> = {
  model: { title: "Model", groupBy: "model" },
  workload: { title: "Workload", groupBy: "cluster,namespace,workload_kind,workload" },
  consumer: { title: "Consumer", groupBy: "consumer" },
  business_unit: { title: "Business unit", groupBy: "business_unit" },
  server: { title: "Inference server", groupBy: "server" },
  gpu_model: { title: "GPU model", groupBy: "gpu_model" },
  cluster: { title: "Cluster", groupBy: "cluster" },
};
type Breakdown = keyof typeof ALL_BREAKDOWNS;
/** Those of each subject, the default first. */
const BREAKDOWNS = {
  model: omit(ALL_BREAKDOWNS, "model"),
  consumer: omit(ALL_BREAKDOWNS, "consumer"),
};

function omit<Value>(record: Readonly<Record<string, Value>>, name: string): Record<string, Value> {
  return Object.fromEntries(Object.entries(record).filter(([key]) => key !== name));
}

interface ViewData {
  grain: Grain;
  by: Breakdown;
  whole: InferenceResponse;
  byTime: InferenceResponse;
  groups: InferenceResponse;
  /** Pods whose tokens are unknown, of the workloads that served the model, by time. Of a consumer: requests without a
   * name, to the models and workloads that it used. */
  unknown: ModelRow[];
  hours: HoursResponse | null;
}

const subjectOf = ({ view }: Route): Subject => (view === "consumer" ? "consumer" : "model");

function breakdownOf(route: Route): Breakdown {
  const { by = "" } = route.query;
  const breakdowns = BREAKDOWNS[subjectOf(route)];
  return Object.hasOwn(breakdowns, by) ? by : (Object.keys(breakdowns)[0] ?? "");
}

/** The subject's own name comes last: no filter replaces it. */
const filtersOf = (route: Route) => ({
  cluster: route.query["cluster"],
  ...modelFiltersOf(filtersIn(route)),
  [subjectOf(route)]: exactly(route.name),
});

async function fetchModel(route: Route): Promise<ViewData> {
  const filters = filtersOf(route);
  const by = breakdownOf(route);
  const subject = subjectOf(route);
  const whole = await fetchJson("v1/inference", { ...periodOf(route), ...filters, granularity: "total" });
  const { start, end } = whole;
  const period = { start, end };
  const grain = grainOf((Date.parse(end) - Date.parse(start)) / HOUR, route.query["grain"]);
  const groupsBy = (breakdown: Breakdown) =>
    fetchAll("v1/inference", {
      ...period,
      ...filters,
      granularity: "total",
      group_by: ALL_BREAKDOWNS[breakdown]?.groupBy ?? "",
    });
  const chosen = groupsBy(by);
  const servedBy = "cluster,namespace,workload,model";
  const [byTime, workloads, groups, unknown, hours] = await Promise.all([
    fetchAll("v1/inference", { ...period, ...filters, granularity: grain }),
    subject === "model" && by === "workload"
      ? chosen
      : fetchAll("v1/inference", { ...period, ...filters, granularity: "total", group_by: servedBy }),
    chosen,
    fetchAll("v1/inference", {
      ...period,
      ...filters,
      [subject]: exactly(""),
      granularity: grain,
      group_by: servedBy,
    }),
    fetchHours({ ...period, cluster: filters.cluster }),
  ]);
  const unattributed = (subject === "model" ? unknownRowsOf : unnamedRowsOf)(unknown.rows, workloads.rows);
  return { grain, by, whole, byTime, groups, unknown: unattributed, hours };
}

export function Model() {
  const route = useRoute();
  const filters = filtersIn(route);
  const { cluster, grain } = route.query;
  const subject = subjectOf(route);
  const key = JSON.stringify([subject, route.name, periodOf(route), cluster, grain, breakdownOf(route), filters]);
  const request = useFetch(key, () => fetchModel(route));
  const dimensions = omit(MODEL_DIMENSIONS, subject);
  const title = (
    <>
      {MODEL_DIMENSIONS[subject]} <Name>{route.name}</Name>
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
  const subject = subjectOf(route);
  if (total === undefined) {
    const filtered = filtersIn(route).length > 0 && " with these filters";
    if (subject === "consumer")
      return (
        <NoConsumers>
          No requests of this consumer were counted in this period{filtered}. Select another period, or see{" "}
          <a href={linkTo(route, "models")}>all consumers</a>.
        </NoConsumers>
      );
    return (
      <Empty>
        No server of this model was seen in this period{filtered}. Select another period, or see{" "}
        <a href={linkTo(route, "models")}>all models</a>.
      </Empty>
    );
  }
  return (
    <>
      <ModelStats row={total} currency={whole.currency} />
      <UnknownNote {...props} />
      <Columns
        left={<OverTime {...props} total={total} />}
        right={
          <>
            <Section title="Unit costs">
              <UnitCosts total={total} currency={whole.currency} />
            </Section>
            <Groups {...props} />
          </>
        }
      />
    </>
  );
}

/** What may have been of the model or the consumer, and is in no figure. */
function UnknownNote({ unknown, whole }: ViewData) {
  const subject = subjectOf(useRoute());
  const cost = money(
    unknown.reduce((sum, row) => sum + (row.allocated_usd ?? 0), 0),
    whole.currency,
  );
  if (unknown.length === 0) return null;
  return (
    <p class="note unpriced" data-testid="unknown-pods">
      {subject === "model"
        ? `Pods of this model's workloads that cost ${cost} have unknown tokens. Which part of it was for this model is unknown, so no figure includes it.`
        : `Requests to models that this consumer used, on the same workloads, cost ${cost} and have no consumer's name. No figure includes them.`}
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
const TOKENS: readonly Series[] = [
  { key: "prompt_tokens", name: "prompt tokens", meaning: "", color: PART_COLORS.host_usd },
  { key: "generated_tokens", name: "generated tokens", meaning: "", color: PART_COLORS.unallocated_usd },
];

function OverTime({ total, whole, byTime, grain, hours, unknown }: ViewData & { total: ModelRow }) {
  const { currency } = whole;
  const by = `by ${stepName(grain)}`;
  const buckets = bucketsOf(whole.start, whole.end, grain);
  const aligned = align(buckets, byTime.rows);
  const coverage = completeShare(buckets, hours?.rows ?? null, aligned, isWhole(whole.coverage));
  const subject = subjectOf(useRoute());
  const unattributed = { ...UNATTRIBUTED[subject], usd: costsByBucket(buckets, unknown) };
  const barsBy = (barOf: typeof loadBar) => barsOf(buckets, byTime.rows, coverage, unattributed, currency, barOf);
  const [unitCosts, spent] = [barsBy(unitCostBar), barsBy(costBar)];
  const priced = aligned.map((row) => (row === undefined ? 1 : pricedShare(row)));
  const hasUnmeasured = unitCosts.rows.some((row) => row?.["unmeasured"] !== undefined);
  const { usd_per_million_tokens: asItWas, usd_per_million_tokens_at_full_use: atFullUse } = total;
  const shared = { buckets, coverage, hours };
  return (
    <>
      <Section title={`${UNIT_COSTS.usd_per_million_tokens} over time, ${by}`}>
        <Chart
          {...shared}
          label={`${UNIT_COSTS.usd_per_million_tokens} over time: at full use, and what waiting adds`}
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
      <Section title={`${amountTitle("allocated_usd")} over time, ${by}`}>
        <Chart
          {...shared}
          label={`Allocated cost of this ${subject} over time, by part`}
          bars={spent}
          priced={priced}
          parts={colored(partsOf(byTime.rows, PARTS.slice(0, 3)))}
          totals={total}
          whole={total.allocated_usd}
          wholeName={AMOUNTS.allocated_usd}
          show={(figure) => money(figure, currency)}
          axis={(figure) => axisMoney(figure, currency)}
        />
        <Gaps hours={hours} />
      </Section>
      {subject === "model" ? (
        <Section title={`Load over time, ${by}`}>
          <Chart
            {...shared}
            label="Tokens per GPU-second over time"
            bars={barsBy(loadBar)}
            parts={LOAD}
            totals={{ load: total.tokens_per_gpu_second }}
            whole={null}
            wholeName={null}
            show={tokenRate}
            axis={tokenCount}
          />
        </Section>
      ) : (
        <Section title={`Tokens over time, ${by}`}>
          <Chart
            {...shared}
            label="Prompt and generated tokens over time"
            bars={barsBy(tokensBar)}
            parts={TOKENS}
            totals={total}
            whole={tokensOf(total)}
            show={tokenCount}
          />
        </Section>
      )}
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
          nameColumn("name", "Unit cost", (row) => row.name),
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
  const { title = "", groupBy = "" } = ALL_BREAKDOWNS[by] ?? {};
  const subject = subjectOf(route);
  const breakdowns = Object.entries(BREAKDOWNS[subject]);
  const isUnnamed = by === "consumer" && groups.rows.every(({ group }) => group["consumer"] === null);
  return (
    <Section
      title={
        subject === "model"
          ? "By workload, consumer, business unit, server and hardware"
          : "By model, workload, business unit, server and hardware"
      }
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
        {breakdowns.map(([key, entry], index) => (
          <a
            key={key}
            class="filter"
            href={changed(route, { by: index === 0 ? "" : key, "groups-sort": "" })}
            aria-current={by === key ? "page" : undefined}
          >
            {entry.title}
          </a>
        ))}
      </nav>
      {subject === "consumer" && by === "business_unit" && (
        <p class="note">The business units that own the servers, and pay for their GPUs.</p>
      )}
      {isUnnamed ? (
        <NoConsumers>Who used this model is unknown.</NoConsumers>
      ) : (
        <Table<ModelRow>
          name="groups"
          caption={`Costs of the ${subject} by ${title.startsWith("GPU") ? title : title.toLowerCase()}`}
          sort="-allocated_usd"
          rows={groups.rows}
          rowKey={(row) => Object.values(row.group).join("\n")}
          columns={[...nameColumns(route, by, whole, groups.rows), ...modelColumns(currency, groups.rows)]}
        />
      )}
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
  if (by === "consumer") return [groupColumn(route, by)];
  // Of the model, show the consumer's part: a role that owns no pods of it sees nothing else.
  if (by === "model") return [groupColumn(route, by, [{ dimension: "consumer", name: route.name, isExcluded: false }])];
  const column: Column<ModelRow> = {
    key: by,
    title: ALL_BREAKDOWNS[by]?.title ?? by,
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
