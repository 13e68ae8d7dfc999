// Explore: costs by any dimension and measure, with filters, a way back, and an earlier period.

import {
  fetchAll,
  fetchHours,
  fetchJson,
  settle,
  type CostRow,
  type CostsResponse,
  type HoursResponse,
  type Settled,
} from "../api";
import { useMemo, useRef, useState } from "preact/hooks";
import { groupColors, IDLE_COLOR, MOST_GROUPS, OTHERS_COLOR } from "../charts/colors";
import { type Series, StackedChart } from "../charts/stacked";
import { exceptIdle, figureColumn, gpuHoursColumn, knownColumn, moneyColumn, nameColumn, useColumn } from "../columns";
import {
  changeOf,
  type Compared,
  type Earlier,
  comparisonNote,
  comparisonOf,
  earlierText,
  fetchEarlier,
  groupKey,
  relativeChange,
  scaled,
  withVanished,
} from "../compare";
import {
  backTo,
  chartedRows,
  chartRows,
  costsOf,
  costsOfRows,
  earlierTotals,
  type Costs,
  DIMENSIONS,
  dimensionsOf,
  dimensionsOfStep,
  excluded,
  figureOf,
  type ExploreRow,
  groupJobs,
  IDLE,
  energyNeedOf,
  isMoney,
  isOfNodes,
  jobsText,
  limitOf,
  type Measure,
  MEASURES,
  nameOf,
  opened,
  OTHERS,
  type Question,
  questionOf,
  sortOf,
  stepOf,
} from "../explore";
import {
  axisMoney,
  change,
  counted,
  type Figure,
  instant,
  isUnmeasured,
  knownFigure,
  money,
  percent,
  ratio,
  roundHours,
  signed,
  stepName,
} from "../format";
import { GLOSSARY } from "../glossary";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import {
  type Column,
  DownloadButton,
  Empty,
  ExcelButton,
  Name,
  Optional,
  Section,
  Swatch,
  Table,
  UnpricedNote,
  View,
} from "../parts";
import { sumOf } from "../removal";
import { periodOf, type Route, writeRoute } from "../route";
import { isSame, load, type SavedView, store, UNREADABLE, withView } from "../saved-views";
import { bucketsOf, completeShare, hoursIn, isWhole, type Step } from "../series";
import { type Cell, costCells } from "../spreadsheet";
import { Filters, Options, titleOf } from "./filters";
import { Gaps } from "./gaps";

const IDLE_COST = "idle cost";
/** Most pages of the chart's groups, which can be many Jobs. */
const MAX_PAGES = 100;

interface Chart {
  step: Step;
  /** Of the groups with the largest figures, and of others whose names begin as those of grouped Jobs. */
  groups: CostsResponse;
  /** Of all groups, by cluster, from which the others follow. */
  all: CostsResponse;
  names: string[];
  /** All business units, from which their colors follow. Empty for another dimension. */
  units: readonly string[];
  /** The chart's group of each name of the API. */
  groupByName: ReadonlyMap<string, string>;
  /** All groups of the earlier period, if it is compared. */
  earlier: { period: Earlier; rows: readonly CostRow[] } | null;
  /** Of the clusters that the filters leave. */
  hours: HoursResponse | null;
}

interface ViewData {
  /** The question that was answered: the URL may contain the next one already. */
  question: Question;
  whole: CostsResponse;
  before: Compared<CostsResponse> | null;
  /** The groups of the table and of the chart, with those that ended. */
  rows: readonly ExploreRow[];
  chart: Settled<Chart>;
}

interface Period {
  start: string;
  end: string;
  cluster: string | undefined;
}

async function fetchExplore(route: Route): Promise<ViewData | string> {
  const question = questionOf(route);
  const { cluster, grain } = route.query;
  // A small request resolves the period, so that all others match even if an hour ends meanwhile.
  const { start, end } = await fetchJson("v1/fleet", { ...periodOf(route), cluster, granularity: "total" });
  const limit = limitOf(question, start, end);
  if (limit !== undefined) return limit;
  const period = { start, end, cluster };
  if (isOfNodes(question.measure)) return fetchOfNodes(question, period, stepOf(question, start, end, grain));
  const total = { ...costsOf(question), granularity: "total" as const };
  const whole = await fetchAll("v1/costs", { ...period, ...total });
  const before = question.isCompared
    ? await fetchEarlier(whole, (earlier) => fetchAll("v1/costs", { ...earlier, cluster, ...total }), route.query["vs"])
    : null;
  const step = stepOf(question, start, end, grain);
  const periods = [period, ...(before === null ? [] : [{ ...before.period, cluster }])];
  const all = withVanished(whole.rows, before?.body.rows ?? []);
  const jobs = await fetchJobs(question, all, periods);
  const rows = groupJobs(all, ({ group }) => jobs.has(group["workload"] ?? ""));
  const chart = await settle(fetchChart(question, period, whole, rows, step, before?.period ?? null));
  return { question, whole, before, rows, chart };
}

async function fetchOfNodes(question: Question, period: Period, step: Step): Promise<ViewData | string> {
  const costs = await (await import("../explore-nodes")).fetchNodeCosts(question, period, step, MOST_GROUPS);
  if (costs === null) return "The fleet has too many nodes for this period. Select a shorter one, or group by cluster.";
  const { whole, rows, names, groups, all } = costs;
  const hours = await fetchHours(period);
  const shown = question.filters.length === 0 ? null : new Set(rows.map(({ group }) => group["cluster"] ?? ""));
  const isByCluster = question.by === "cluster" || question.then === "cluster";
  const chart: Chart = {
    ...{ step, names, units: [], earlier: null },
    groups: { ...whole, rows: groups },
    all: { ...whole, rows: all },
    groupByName: new Map(names.map((name) => [name, name])),
    hours: isByCluster ? hoursIn(hours, shown) : hours,
  };
  return { question, whole, before: null, rows, chart: { response: chart } };
}

/** Names of workloads that are only Jobs. Nothing is asked if no names begin alike. */
async function fetchJobs(
  question: Question,
  rows: readonly CostRow[],
  periods: readonly Period[],
): Promise<ReadonlySet<string>> {
  const hasFamilies = groupJobs(rows, () => true).some(({ jobs }) => jobs !== undefined);
  if (!dimensionsOf(question).includes("workload") || !hasFamilies) return new Set();
  const filters = costsOf({ ...question, measure: "allocated_usd" });
  const kinds = await Promise.all(
    periods.map(({ start, end, cluster }) =>
      settle(
        fetchAll("v1/costs", {
          cluster,
          ...filters,
          start,
          end,
          granularity: "total",
          group_by: "workload_kind,workload",
        }),
      ),
    ),
  );
  const kindRows = kinds.flatMap((kind) => ("response" in kind ? kind.response.rows : []));
  const others = new Set(
    kindRows.filter(({ group }) => group["workload_kind"] !== "Job").map(({ group }) => group["workload"] ?? ""),
  );
  return new Set(kindRows.map(({ group }) => group["workload"] ?? "").filter((name) => !others.has(name)));
}

async function fetchChart(
  question: Question,
  period: Period,
  whole: CostsResponse,
  tableRows: readonly ExploreRow[],
  step: Step,
  before: Earlier | null,
): Promise<Chart> {
  const { by, then } = question;
  const charted = chartedRows(question, tableRows, MOST_GROUPS);
  const names = charted.map((row) => nameOf(question, row));
  const groupByName = new Map(
    charted.flatMap((row) =>
      (row.jobs ?? [row]).map((member) => [nameOf(question, member), nameOf(question, row)] as const),
    ),
  );
  const request = { granularity: step, ...period };
  const { cluster = period.cluster } = costsOf(question);
  const byCluster = costsOf({ ...question, by: "cluster", then: "" });
  const fetchBefore = async (earlier: Earlier) => {
    const { start, end } = earlier;
    const { rows } = await fetchAll("v1/costs", { ...request, ...byCluster, start, end });
    return { period: earlier, rows };
  };
  const [groups, all, hours, earlier, units] = await Promise.all([
    names.length === 0 ? whole : fetchAll("v1/costs", { ...request, ...costsOfRows(question, charted) }, MAX_PAGES),
    fetchAll("v1/costs", { ...request, ...byCluster }),
    fetchHours({ ...period, cluster }),
    before === null ? null : fetchBefore(before),
    by === "business_unit" && then === "" ? fetchUnits() : [],
  ]);
  const rows = all.rows.filter(({ kind }) => kind !== "idle");
  const clusters = question.filters.length === 0 ? null : new Set(rows.map(({ group }) => group["cluster"] ?? ""));
  return { step, groups, all, names, groupByName, earlier, units, hours: hoursIn(hours, clusters) };
}

let allUnits: Promise<readonly string[]> | undefined;

/** All business units, those of the settings also if they hold nothing. Fetched once, so that colors stay. */
function fetchUnits(): Promise<readonly string[]> {
  allUnits ??= settle(fetchJson("v1/business-units", { window: "24h" })).then((units) =>
    "response" in units ? units.response.rows.map((row) => row.business_unit) : [],
  );
  return allUnits;
}

export function Explore() {
  const route = useRoute();
  const question = questionOf(route);
  const { cluster, grain, vs } = route.query;
  const request = useFetch(JSON.stringify([periodOf(route), cluster, grain, vs, question]), () => fetchExplore(route));
  const controls = (
    <>
      <Trail question={question} />
      <Controls question={question} />
      <div class="filters">
        <Filters
          filters={question.filters}
          dimensions={DIMENSIONS}
          hasLabels
          namesOf={(dimension) => fetchNames(route, dimension)}
        />
        <SavedViews />
      </div>
    </>
  );
  return (
    <View title={<Title name={route.query["view"]} />} controls={controls} request={request}>
      {(viewData) => (typeof viewData === "string" ? <Empty>{viewData}</Empty> : <Shown {...viewData} />)}
    </View>
  );
}

/** The name of the view in the address, and whether it has other parameters than the one that the browser has saved. */
function Title({ name }: { name: string | undefined }) {
  const route = useRoute();
  const saved = load().views.find((view) => view.name === name);
  return name === undefined ? (
    <>Explore</>
  ) : (
    <>
      Explore: <Name>{name}</Name>
      {saved !== undefined && !isSame(saved, route.query) && ", changed"}
    </>
  );
}

/** Views that the browser keeps by name, and a form that saves the current one. Its name is in the address, too. */
function SavedViews() {
  const route = useRoute();
  const [{ views, isDamaged }, setViews] = useState(load);
  const [isRefused, setRefused] = useState(false);
  const { view: name } = route.query;
  const keep = (next: SavedView[]) => {
    setRefused(!store(next));
    setViews({ views: next, isDamaged: false });
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const text = (new FormData(event.currentTarget as HTMLFormElement).get("view") as string).trim();
    if (text === "") return;
    keep(withView(views, { name: text, query: route.query }));
    go(changed(route, { view: text }));
  };
  return (
    <div class="filters" role="group" aria-label="Saved views">
      {views.map((view) => (
        <span class="filter" key={view.name} aria-current={isSame(view, route.query) ? "true" : undefined}>
          <a href={writeRoute({ view: "explore", name: "", query: { ...view.query, view: view.name } })}>
            <Name>{view.name}</Name>
          </a>{" "}
          <button
            type="button"
            class="plain"
            aria-label={`Delete the saved view ${view.name}`}
            onClick={() => keep(views.filter((other) => other.name !== view.name))}
          >
            ×
          </button>
        </span>
      ))}
      <details key={name ?? ""}>
        <summary>Save this view</summary>
        <form onSubmit={submit}>
          <input
            name="view"
            aria-label="Name of the view"
            placeholder="name"
            required
            maxLength={80}
            size={20}
            defaultValue={name ?? ""}
          />{" "}
          <button type="submit">Save</button>
        </form>
      </details>
      {isDamaged && <span class="unknown">{UNREADABLE}</span>}
      {isRefused && <span class="unknown">This browser does not keep views. The address has this one.</span>}
    </div>
  );
}

/** The dimensions that were opened, as links back. */
function Trail({ question }: { question: Question }) {
  const route = useRoute();
  if (question.trail.length === 0) return null;
  return (
    <nav aria-label="Trail" class="filters">
      {question.trail.map((opened, step) => (
        <span key={opened}>
          <a href={changed(route, backTo(question, step))}>{titleOfAll(dimensionsOfStep(opened))}</a>{" "}
          {dimensionsOfStep(opened).map((dimension, at) => (
            <span key={dimension}>
              {at > 0 && " · "}
              <Name>{question.filters.find((filter) => filter.dimension === dimension)?.name ?? ""}</Name>
            </span>
          ))}
          {" › "}
        </span>
      ))}
      <span aria-current="location">{titleOfAll(dimensionsOf(question))}</span>
    </nav>
  );
}

/** The titles of one or two dimensions. */
const titleOfAll = (dimensions: readonly string[]) => dimensions.map((dimension) => titleOf(dimension)).join(" × ");
const ofAll = (question: Question) => titleOfAll(dimensionsOf(question)).toLowerCase();

/** The settings' cost labels, as dimensions. The newest pods name them. */
async function fetchLabels(): Promise<string[]> {
  const { rows } = await fetchJson("v1/lines", { window: "2h", limit: "200" });
  return [...new Set(rows.flatMap((row) => Object.keys(row.labels)))].sort().map((label) => `label:${label}`);
}

function Controls({ question }: { question: Question }) {
  const route = useRoute();
  const { response: labels = [] } = useFetch("labels", fetchLabels);
  const set = (query: Record<string, string>) => go(changed(route, query));
  const value = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  const selected = dimensionsOf(question).filter((dimension) => dimension.startsWith("label:"));
  const shownLabels = [...new Set([...labels, ...selected])];
  const titles = { ...DIMENSIONS, ...Object.fromEntries(shownLabels.map((key) => [key, titleOf(key)])) };
  const others = Object.fromEntries(Object.entries(titles).filter(([key]) => key !== question.by));
  return (
    <div class="choices" role="group" aria-label="Question">
      <label>
        Group by
        <select value={question.by} onChange={(event) => set({ by: value(event), trail: "" })}>
          <Options titles={titles} />
        </select>
      </label>
      <label>
        and by
        <select value={question.then} onChange={(event) => set({ then: value(event), trail: "" })}>
          <option value="">–</option>
          <Options titles={others} />
        </select>
      </label>
      <label>
        Measure
        <select value={question.measure} onChange={(event) => set({ measure: value(event) })}>
          <Options titles={MEASURES} />
        </select>
      </label>
      {question.measure === "cost_usd" && (
        <label>
          <input
            type="checkbox"
            checked={question.isIdleSeparate}
            onChange={(event) => set({ idle: event.currentTarget.checked ? "separate" : "" })}
          />{" "}
          Idle cost as a row
        </label>
      )}
      {!isOfNodes(question.measure) && (
        <label>
          <input
            type="checkbox"
            checked={question.isCompared}
            onChange={(event) => set({ compare: event.currentTarget.checked ? "1" : "" })}
          />{" "}
          Compare with an earlier period
        </label>
      )}
    </div>
  );
}

/** The names of a dimension in the period. */
async function fetchNames(route: Route, dimension: string): Promise<string[]> {
  const costs = { ...periodOf(route), cluster: route.query["cluster"], granularity: "total" as const };
  const names = await settle(fetchAll("v1/costs", { ...costs, group_by: dimension })); // not of pods of long periods
  return "response" in names ? names.response.rows.map((row) => row.group[dimension] ?? "") : [];
}

function Shown({ question, whole, before, rows, chart }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { measure } = question;
  const { currency, start, end } = whole;
  const dimensions = dimensionsOf(question);
  const groups = groupsIn(rows);
  const ended = groups - whole.rows.length;
  const inOrder = useRef<readonly ExploreRow[]>([]);
  const swatch = (row: ExploreRow) => "response" in chart && <Swatch color={colorOf(question, chart.response, row)} />;
  if (rows.length === 0) {
    const why =
      question.filters.length > 0
        ? "Nothing matches these filters in this period. Remove a filter, or select another period."
        : "No costs in this period. Select another period, or look at the data health.";
    return <Empty>{why}</Empty>;
  }
  const show = (figure: Figure) => (isMoney(measure) ? money(figure, currency) : roundHours(figure));
  const sum = totalOf(whole, measure);
  const need = energyNeedOf(measure);
  if ((need === "energy" || need === "emission factor") && whole.rows.every((row) => figureOf(row, measure) == null))
    return <Unknown need={need} isEnergyKnown={whole.rows.some((row) => row.energy_kwh != null)} />;
  return (
    <>
      <UnpricedNote totals={sumsOf(whole.rows)} />
      <Section
        title={`${MEASURES[measure]} over time${"response" in chart ? `, by ${stepName(chart.response.step)}` : ""}`}
      >
        <Optional side={chart}>
          {(response) => <OverTime question={question} chart={response} whole={whole} show={show} />}
        </Optional>
      </Section>
      <Section
        title={`${MEASURES[measure]} by ${ofAll(question)}`}
        aside={
          <span class="filters-of">
            <ExcelButton
              save={({ saveWorkbook }) =>
                saveWorkbook(
                  `costs-by-${dimensions.join("-and-")}`,
                  whole,
                  cellsOf(question, whole),
                  inOrder.current.flatMap((row): readonly Costs[] => row.jobs ?? [row]),
                )
              }
            />
            {!isOfNodes(measure) && (
              <DownloadButton
                path="v1/costs"
                parameters={{
                  cluster: route.query["cluster"],
                  ...costsOf(question),
                  start,
                  end,
                  granularity: "total",
                  sort: sortOf(question, route.query["explore-sort"]),
                }}
                name={`costs-by-${dimensions.join("-and-")}`}
              />
            )}
          </span>
        }
      >
        <p class="note">
          <strong data-testid="explore-total">{show(sum)}</strong> in {counted(rows.length, "row")}
          {rows.length < groups && `, which are ${counted(groups, "group")}`}
          {measure === "cost_usd" && question.filters.length === 0 && ", the node cost"}
          {ended > 0 && `, ${ended} of which ended`}
          {question.filters.length > 0 && ", with these filters"}. {jobsText(rows) !== "" && `${jobsText(rows)}. `}
          {whole.coverage.hours_complete} of {whole.coverage.hours_expected} cluster-hours are complete.{" "}
          {before !== null && (
            <>
              Compared with {earlierText(before, zone)}.{" "}
              {comparisonNote(whole.coverage, before.body.coverage, before.period.name)}
            </>
          )}
        </p>
        <Table<ExploreRow>
          name="explore"
          inOrder={inOrder}
          caption={`Every ${ofAll(question)}. Open one to see what it consists of`}
          sort={before === null ? `-${measure}` : "~change"}
          within={(row) => row.jobs ?? []}
          rows={rows}
          rowKey={groupKey}
          columns={[
            {
              key: question.by,
              title: titleOf(question.by),
              cell: (row) =>
                row.kind === "idle" ? (
                  <>
                    {swatch(row)}
                    <em>{IDLE_COST}</em>
                  </>
                ) : row.jobs !== undefined ? (
                  <>
                    {swatch(row)}
                    <Name>{row.group[question.by] ?? ""}</Name>{" "}
                    <span class="unknown">{counted(row.jobs.length, "Job")}</span>
                  </>
                ) : (
                  <>
                    {swatch(row)}
                    <a href={changed(route, opened(question, row.group))}>
                      <Name>{row.group[question.by] ?? ""}</Name>
                    </a>
                  </>
                ),
              by: (row) => row.group[question.by] ?? "",
            },
            ...(question.then === ""
              ? []
              : [
                  nameColumn<ExploreRow>(
                    question.then,
                    titleOf(question.then),
                    (row) => row.group[question.then] ?? "",
                  ),
                ]),
            knownColumn<Measure, Costs>(measure, MEASURES[measure], show),
            ...(before === null ? [] : changeColumns(measure, whole, before.body, show)),
            ...[
              moneyColumn<"allocated_usd", CostRow>("allocated_usd", currency),
              moneyColumn<"effective_usd", CostRow>("effective_usd", currency),
              moneyColumn<"waste_usd", CostRow>("waste_usd", currency),
              moneyColumn<"unmeasured_usd", CostRow>("unmeasured_usd", currency),
            ]
              .filter(({ key }) => key !== measure)
              .map(exceptIdle),
            figureColumn<CostRow>("share", "Share", (row) => ratio(knownFigure(row, measure), sum), percent),
            ...(measure === "allocated_gpu_hours" ? [] : [exceptIdle(gpuHoursColumn<CostRow>())]),
            exceptIdle(useColumn()),
            ...(question.then === "" ? [excludeColumn(route, question)] : []),
          ]}
        />
      </Section>
    </>
  );
}

function excludeColumn(route: Route, question: Question): Column<ExploreRow> {
  return {
    key: "exclude",
    title: "Filter",
    cell: (row) =>
      row.kind !== "idle" &&
      row.jobs === undefined && (
        <button
          type="button"
          aria-label={`Exclude ${row.group[question.by] ?? ""}`}
          onClick={() => go(changed(route, excluded(question, row.group[question.by] ?? "")))}
        >
          Exclude
        </button>
      ),
  };
}

/** How many groups of the API rows are: each Job is one. */
export const groupsIn = (rows: readonly ExploreRow[]) =>
  rows.reduce((count, { jobs }) => count + (jobs?.length ?? 1), 0);

/** The columns of the file, with each Job in a row of its own. */
export function cellsOf(question: Question, whole: CostsResponse): Cell<Costs>[] {
  const { measure } = question;
  const groups = dimensionsOf(question).map((dimension): Cell<Costs> => ({
    title: titleOf(dimension),
    kind: "text",
    of: ({ group, kind }) => (kind === "idle" ? IDLE_COST : (group[dimension] ?? "")),
  }));
  const nodes = isOfNodes(measure) ? (["node_cost_usd", "unallocated_usd"] as const) : [];
  const title = MEASURES[measure] + (isMoney(measure) ? ` (${whole.currency})` : "");
  const costs = costCells(groups, whole, nodes);
  const isIn = costs.some((cell) => cell.title === title) || measure === "allocated_gpu_hours";
  return isIn
    ? costs
    : costCells(groups, whole, nodes, [{ title, kind: "number", of: (row) => knownFigure(row, measure) }]);
}

/** Why no row has energy or emissions, and what to do. */
function Unknown({ need, isEnergyKnown }: { need: "energy" | "emission factor"; isEnergyKnown: boolean }) {
  return (
    <Empty>
      {need === "emission factor" && isEnergyKnown ? (
        <>
          The emissions of this period are unknown: its regions have no emission factor. Set{" "}
          <code>energy.co2e_kg_per_kwh</code> in the settings.
        </>
      ) : (
        <>
          No energy was measured in this period. dcgm-exporter reports it as{" "}
          <code>DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION</code> or <code>DCGM_FI_DEV_POWER_USAGE</code>; Neuron devices
          report none. <code>gpucost doctor</code> says what each cluster has. The settings can turn energy off:{" "}
          <code>energy.enabled</code>.
        </>
      )}
    </Empty>
  );
}

function changeColumns(
  measure: Measure,
  whole: CostsResponse,
  before: CostsResponse,
  show: (figure: Figure) => string,
): Column<ExploreRow>[] {
  const comparison = comparisonOf(whole.coverage, before.coverage);
  const earlier = new Map(before.rows.map((row) => [groupKey(row), row]));
  // Without a row, the group held nothing, if enough hours are known to say so.
  const was = (row: ExploreRow): Figure => {
    if (row.jobs !== undefined) return sumOf(row.jobs.map((job) => was(job) ?? null));
    const old = earlier.get(groupKey(row));
    return old === undefined ? (comparison === null ? null : 0) : knownFigure(old, measure);
  };
  // For the same number of hours, so that the columns' difference is the change.
  const shown = (row: ExploreRow) => (comparison === null ? was(row) : scaled(was(row), comparison));
  const difference = (row: ExploreRow) => changeOf(knownFigure(row, measure), was(row), comparison);
  return [
    {
      ...figureColumn<ExploreRow>("change", "Change", difference, (figure) => signed(figure, show)),
      isChange: true,
    },
    figureColumn<ExploreRow>("before", "Before", shown, show),
    {
      ...figureColumn<ExploreRow>(
        "change_percent",
        "Change %",
        (row) => relativeChange(knownFigure(row, measure), was(row), comparison),
        change,
      ),
      isChange: true,
    },
  ];
}

function OverTime(props: { question: Question; chart: Chart; whole: CostsResponse; show: (figure: Figure) => string }) {
  const { question, chart, whole, show } = props;
  const route = useRoute();
  const zone = useZone();
  const { measure } = question;
  const { names, hours } = chart;
  // The chart is drawn again only for other figures, not when the table's order changes.
  const { buckets, rows, totals, priced, coverage, series, earlier } = useMemo(() => {
    const buckets = bucketsOf(whole.start, whole.end, chart.step);
    const { groups, all, groupByName } = chart;
    const { rows, ...figures } = chartRows(question, buckets, names, groups.rows, all.rows, groupByName);
    const coverage = completeShare(buckets, hours?.rows ?? null, rows, isWhole(whole.coverage));
    const nothing = Object.fromEntries([...names, OTHERS, IDLE].map((key) => [key, 0]));
    const filled = rows.map((row, index) => row ?? ((coverage[index] ?? 0) > 0 ? nothing : undefined));
    const { period, rows: before } = chart.earlier ?? {};
    const later = Date.parse(whole.start) - Date.parse(period?.start ?? whole.start);
    const amounts = before === undefined ? [] : earlierTotals(measure, buckets, later, before);
    const earlier = amounts.length === 0 ? undefined : { name: period?.name ?? "", figures: amounts };
    return { buckets, rows: filled, coverage, series: seriesOf(names, chart.units, rows), earlier, ...figures };
  }, [chart]);
  const open = (start: number, end: number) =>
    go(changed(route, { start: instant(start), end: instant(end), window: "" }));
  const isShared = measure === "cost_usd" && !question.isIdleSeparate;
  const sum = Object.values(totals).reduce<number>((total, figure) => total + (figure ?? 0), 0);
  return (
    <>
      <StackedChart
        label={`${MEASURES[measure]} over time by ${ofAll(question)}`}
        buckets={buckets}
        rows={rows}
        coverage={coverage}
        priced={priced}
        earlier={earlier}
        parts={series}
        totals={totals}
        whole={measure === "cost_usd" ? sum : totalOf(whole, measure)}
        show={show}
        axis={isMoney(measure) ? (figure) => axisMoney(figure, whole.currency) : show}
        hours={hours?.rows}
        zone={zone}
        onOpen={open}
        onSelect={open}
      />
      {isShared && (
        <p class="note">
          The chart shares the idle cost of each {stepName(chart.step)} by the cost allocated in it; the table shares
          that of the whole period. Their sums are the same without filters, and single groups can differ.
        </p>
      )}
      <Gaps hours={hours} />
    </>
  );
}

/** The color of a row's group in the chart. */
export function colorOf(
  question: Question,
  { names, groupByName, units }: Pick<Chart, "names" | "groupByName" | "units">,
  row: ExploreRow,
): string {
  if (row.kind === "idle") return IDLE_COLOR;
  const name = nameOf(question, row);
  return groupColors(names, units).get(groupByName.get(name) ?? name) ?? OTHERS_COLOR;
}

export function seriesOf(
  names: readonly string[],
  units: readonly string[],
  rows: readonly (Record<string, number | null> | undefined)[],
): Series[] {
  const colors = groupColors(names, units);
  const rest = [
    { key: OTHERS, name: "others", meaning: "all other groups", color: OTHERS_COLOR },
    { key: IDLE, name: IDLE_COST, meaning: GLOSSARY.idle, color: IDLE_COLOR },
  ];
  return [
    ...names.map((key) => ({ key, name: key === "" ? "none" : key, meaning: "", color: colors.get(key) ?? "" })),
    ...rest.filter(({ key }) => rows.some((row) => Math.abs(row?.[key] ?? 0) > 1e-6)),
  ];
}

/** The sum of the rows: the API's total, less what the filters exclude. */
function totalOf({ rows }: CostsResponse, measure: Measure): Figure {
  let sum = 0;
  for (const row of rows) {
    const figure = figureOf(row, measure);
    if (figure == null) return null;
    sum += figure;
  }
  return isUnmeasured(sumsOf(rows), measure) ? null : sum;
}

function sumsOf(rows: readonly CostRow[]) {
  const sum = (key: "allocated_gpu_hours" | "unmeasured_gpu_hours" | "unpriced_gpu_hours") =>
    rows.reduce((total, row) => total + row[key], 0);
  return {
    allocated_gpu_hours: sum("allocated_gpu_hours"),
    unmeasured_gpu_hours: sum("unmeasured_gpu_hours"),
    unpriced_gpu_hours: sum("unpriced_gpu_hours"),
  };
}
