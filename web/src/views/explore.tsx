// Explore: costs by any dimension and measure, with filters, a way back, and the period before.

import { fetchAll, fetchJson, settle, type CostRow, type CostsResponse, type Settled } from "../api";
import { PART_COLORS } from "../charts/colors";
import { type Series, StackedChart } from "../charts/stacked";
import { clusterColumns, figureColumn, gpuHoursColumn, moneyColumn, useColumn } from "../columns";
import {
  backTo,
  bucketStarts,
  costsOf,
  DIMENSIONS,
  figureOf,
  filterQuery,
  isMoney,
  limitOf,
  type Measure,
  MEASURES,
  onlyGroups,
  opened,
  type Question,
  questionOf,
  type Step,
  stepOf,
} from "../explore";
import { change, type Figure, gpuHours, HOUR, instant, money, ratio } from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { ClusterSuffix, DownloadButton, Empty, Loaded, Name, Optional, Section, Table } from "../parts";
import { periodOf, type Route } from "../route";
import { isWhole } from "../series";

const TOP = 7;
const OTHERS = "\0others";
const COLORS = Object.values(PART_COLORS);

interface Chart {
  step: Step;
  /** Of the groups with the largest figures. */
  groups: CostsResponse;
  /** Of all groups, by cluster, from which the others follow. */
  all: CostsResponse;
  names: string[];
}

interface ViewData {
  whole: CostsResponse;
  before: CostsResponse | null;
  chart: Settled<Chart>;
}

export async function fetchExplore(route: Route): Promise<ViewData | string> {
  const question = questionOf(route);
  const { cluster, grain } = route.query;
  // A small request resolves the period, so that all others match even if an hour ends meanwhile.
  const { start, end } = await fetchJson("v1/fleet", { ...periodOf(route), cluster, granularity: "total" });
  const limit = limitOf(question, start, end);
  if (limit !== undefined) return limit;
  const period = { start, end, cluster };
  const total = { ...costsOf(question), granularity: "total" as const };
  const length = Date.parse(end) - Date.parse(start);
  const earlier = { start: instant(Date.parse(start) - length), end: start, cluster };
  const [whole, before] = await Promise.all([
    fetchAll("v1/costs", { ...total, ...period }),
    question.isCompared ? fetchAll("v1/costs", { ...total, ...earlier }) : null,
  ]);
  const step = stepOf(question, start, end, grain);
  return { whole, before, chart: await settle(fetchChart(question, period, whole, step)) };
}

async function fetchChart(
  question: Question,
  period: { start: string; end: string; cluster: string | undefined },
  whole: CostsResponse,
  step: Step,
): Promise<Chart> {
  const names = [...whole.rows]
    .filter(({ kind }) => kind !== "idle")
    .sort((left, right) => (figureOf(right, question.measure) ?? 0) - (figureOf(left, question.measure) ?? 0))
    .slice(0, TOP)
    .map((row) => row.group[question.by] ?? "");
  const by = { granularity: step, ...period };
  const [groups, all] = await Promise.all([
    names.length === 0 ? whole : fetchAll("v1/costs", { ...costsOf(onlyGroups(question, names)), ...by }),
    fetchAll("v1/costs", { ...costsOf({ ...question, by: "cluster" }), ...by }),
  ]);
  return { step, groups, all, names };
}

export function Explore() {
  const route = useRoute();
  const question = questionOf(route);
  const { cluster, grain } = route.query;
  const request = useFetch(JSON.stringify([periodOf(route), cluster, grain, question]), () => fetchExplore(route));
  return (
    <>
      <h1>
        Explore
        <ClusterSuffix />
      </h1>
      <Trail question={question} />
      <Controls question={question} />
      <Chips question={question} />
      <Loaded request={request}>
        {(viewData) => (typeof viewData === "string" ? <Empty>{viewData}</Empty> : <Shown {...viewData} />)}
      </Loaded>
    </>
  );
}

/** The dimensions that were opened, as links back. */
function Trail({ question }: { question: Question }) {
  const route = useRoute();
  if (question.trail.length === 0) return null;
  return (
    <nav aria-label="Trail" class="trail">
      {question.trail.map((dimension, step) => (
        <span key={dimension}>
          <a href={changed(route, backTo(question, step))}>{titleOf(dimension)}</a>{" "}
          <Name>{question.filters.find((filter) => filter.dimension === dimension)?.name ?? ""}</Name>
          {" › "}
        </span>
      ))}
      <span aria-current="location">{titleOf(question.by)}</span>
    </nav>
  );
}

function Controls({ question }: { question: Question }) {
  const route = useRoute();
  const set = (query: Record<string, string>) => go(changed(route, query));
  const value = (event: Event) => (event.currentTarget as HTMLSelectElement).value;
  const isLabel = question.by.startsWith("label:");
  return (
    <div class="choices explore" role="group" aria-label="Question">
      <label>
        Group by
        <select value={question.by} onChange={(event) => set({ by: value(event), trail: "" })}>
          {isLabel && <option value={question.by}>{titleOf(question.by)}</option>}
          {Object.entries(DIMENSIONS).map(([key, title]) => (
            <option key={key} value={key}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <label>
        Measure
        <select value={question.measure} onChange={(event) => set({ measure: value(event) })}>
          {Object.entries(MEASURES).map(([key, title]) => (
            <option key={key} value={key}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <label>
        <input
          type="checkbox"
          checked={question.isCompared}
          onChange={(event) => set({ compare: event.currentTarget.checked ? "1" : "" })}
        />{" "}
        Compare with the period before
      </label>
    </div>
  );
}

/** The filters, each with a button that removes it, and a form that adds one. */
function Chips({ question }: { question: Question }) {
  const route = useRoute();
  const { filters } = question;
  const without = (index: number) => filterQuery(filters.toSpliced(index, 1), filters);
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => (form.get(name) as string | null)?.trim() ?? "";
    const label = text("label");
    const dimension = text("dimension") === "label" ? `label:${label}` : text("dimension");
    if (dimension === "label:") return;
    const added = { dimension, name: text("name"), isExcluded: text("match") === "not" };
    go(changed(route, filterQuery([...filters, added], filters)));
  };
  return (
    <div class="chips" role="group" aria-label="Filters">
      {filters.map(({ dimension, name, isExcluded }, index) => (
        <span class="chip" key={`${dimension} ${name}`}>
          {titleOf(dimension)} {isExcluded ? "is not" : "is"} <Name>{name}</Name>{" "}
          <button
            type="button"
            aria-label={`Remove the filter ${titleOf(dimension)} ${name}`}
            onClick={() => go(changed(route, { ...without(index), trail: "" }))}
          >
            ×
          </button>
        </span>
      ))}
      <details>
        <summary>Add filter</summary>
        <form onSubmit={add}>
          <select name="dimension" aria-label="Dimension of the filter">
            {Object.entries(DIMENSIONS).map(([key, title]) => (
              <option key={key} value={key}>
                {title}
              </option>
            ))}
            <option value="label">Label</option>
          </select>{" "}
          <input name="label" aria-label="Name of the label" placeholder="label" size={8} />{" "}
          <select name="match" aria-label="Whether it matches">
            <option value="is">is</option>
            <option value="not">is not</option>
          </select>{" "}
          <input name="name" aria-label="Name that the filter matches" size={16} /> <button type="submit">Add</button>
        </form>
      </details>
    </div>
  );
}

function Shown({ whole, before, chart }: ViewData) {
  const route = useRoute();
  const question = questionOf(route);
  const { measure, by } = question;
  const { currency, start, end } = whole;
  if (whole.rows.length === 0) {
    const why =
      question.filters.length > 0
        ? "Nothing matches these filters in this period. Remove a filter, or select another period."
        : "No costs in this period. Select another period, or look at the data health.";
    return <Empty>{why}</Empty>;
  }
  const show = (figure: Figure) => (isMoney(measure) ? money(figure, currency) : gpuHours(figure));
  const isIdle = (row: CostRow) => row.kind === "idle";
  const name = (row: CostRow) => (isIdle(row) ? "idle" : (row.group[by] ?? ""));
  const earlier = new Map(before?.rows.map((row) => [name(row), row]));
  const isComparable = before !== null && isWhole(before.coverage) && isWhole(whole.coverage);
  const was = (row: CostRow): Figure => {
    const found = earlier.get(name(row));
    return found === undefined ? (isComparable ? 0 : null) : figureOf(found, measure);
  };
  const difference = (row: CostRow): Figure => {
    const [now, then] = [figureOf(row, measure), was(row)];
    return now == null || then == null || !isComparable ? null : now - then;
  };
  const sum = totalOf(whole, measure);
  const chosen = figureColumn<CostRow>(measure, MEASURES[measure], (row) => figureOf(row, measure), show);
  const rest = [
    moneyColumn("allocated_usd", "Allocated", currency),
    moneyColumn("effective_usd", "Effective", currency),
    moneyColumn("waste_usd", "Waste", currency),
    moneyColumn("unmeasured_usd", "Unmeasured", currency),
  ].filter(({ key }) => key !== measure);
  return (
    <>
      <Section title={`${MEASURES[measure]} over time`}>
        <Optional side={chart}>{(response) => <OverTime chart={response} whole={whole} show={show} />}</Optional>
      </Section>
      <Section
        title={`${MEASURES[measure]} by ${titleOf(by).toLowerCase()}`}
        aside={
          <DownloadButton
            path="v1/costs"
            parameters={{
              ...costsOf(question),
              start,
              end,
              cluster: route.query["cluster"],
              granularity: "total",
              sort: `-${measure}`,
            }}
            name={`costs-by-${by}`}
          />
        }
      >
        <p class="note">
          <strong data-testid="explore-total">{show(sum)}</strong> in {whole.rows.length} rows
          {question.filters.length > 0 && ", the part that the filters select"}. {whole.coverage.hours_complete} of{" "}
          {whole.coverage.hours_expected} cluster-hours are complete.
          {before !== null && !isComparable && " Changes are shown only between complete periods."}
        </p>
        <Table<CostRow>
          name="explore"
          caption={`${MEASURES[measure]} by ${titleOf(by).toLowerCase()}`}
          sort={`-${measure}`}
          rows={whole.rows}
          rowKey={(row) => `${row.kind} ${Object.values(row.group).join("\n")}`}
          columns={[
            {
              key: by,
              title: titleOf(by),
              cell: (row) =>
                isIdle(row) ? (
                  <em>idle, shared by nobody</em>
                ) : (
                  <a href={changed(route, opened(question, name(row)))}>
                    <Name>{name(row)}</Name>
                  </a>
                ),
              by: name,
            },
            ...(by === "cluster" ? [] : clusterColumns(whole.rows, (row) => row.group["cluster"] ?? "")),
            chosen,
            figureColumn<CostRow>("share", "Share", (row) => ratio(figureOf(row, measure), sum), shareText),
            ...(before === null
              ? []
              : [
                  figureColumn<CostRow>("before", "Before", was, show),
                  figureColumn<CostRow>("change", "Change", difference, (figure) =>
                    figure == null ? "–" : `${figure > 0 ? "+" : ""}${show(figure)}`,
                  ),
                  figureColumn<CostRow>(
                    "change_percent",
                    "Change %",
                    (row) => ratio(difference(row), was(row)),
                    change,
                  ),
                ]),
            ...rest,
            useColumn(),
            ...(measure === "allocated_gpu_hours" ? [] : [gpuHoursColumn<CostRow>()]),
            {
              key: "exclude",
              title: "Filter",
              cell: (row) =>
                isIdle(row) ? (
                  ""
                ) : (
                  <button
                    type="button"
                    aria-label={`Exclude ${name(row)}`}
                    onClick={() =>
                      go(
                        changed(
                          route,
                          filterQuery(
                            [...question.filters, { dimension: by, name: name(row), isExcluded: true }],
                            question.filters,
                          ),
                        ),
                      )
                    }
                  >
                    Exclude
                  </button>
                ),
            },
          ]}
        />
      </Section>
    </>
  );
}

function OverTime({ chart, whole, show }: { chart: Chart; whole: CostsResponse; show: (figure: Figure) => string }) {
  const route = useRoute();
  const zone = useZone();
  const { measure, by } = questionOf(route);
  const starts = bucketStarts(whole.start, whole.end, chart.step);
  const buckets = { starts, end: Date.parse(whole.end), step: chart.step === "hour" ? HOUR : 24 * HOUR };
  const rows = starts.map((): Record<string, number | null> | undefined => undefined);
  const at = new Map(starts.map((start, index) => [start, index]));
  const add = (start: string, key: string, figure: Figure) => {
    const index = at.get(Date.parse(start));
    if (index === undefined) return;
    const row = (rows[index] ??= {});
    row[key] = figure == null ? null : (row[key] ?? 0) + figure;
  };
  for (const row of chart.all.rows) add(row.start, OTHERS, figureOf(row, measure));
  for (const row of chart.groups.rows) {
    if (row.kind === "idle") continue;
    add(row.start, row.group[by] ?? "", figureOf(row, measure));
    add(row.start, OTHERS, negative(figureOf(row, measure)));
  }
  // Where there are figures, a group without a row held nothing: a zero, not a gap.
  for (const row of rows)
    for (const key of [...chart.names, OTHERS]) if (row !== undefined) row[key] ??= key in row ? null : 0;
  const hasOthers = rows.some((row) => Math.abs(row?.[OTHERS] ?? 0) > 1e-6);
  const totals: Record<string, Figure> = {};
  for (const row of rows) {
    for (const [key, figure] of Object.entries(row ?? {})) totals[key] = (totals[key] ?? 0) + (figure ?? 0);
  }
  const series: Series[] = [
    ...chart.names.map((key, index) => ({
      key,
      name: key === "" ? "none" : key,
      meaning: "",
      color: COLORS[index] ?? "",
    })),
    ...(hasOthers ? [{ key: OTHERS, name: "others", meaning: "all other groups", color: COLORS[7] ?? "" }] : []),
  ];
  const isComplete = isWhole(whole.coverage);
  return (
    <StackedChart
      label={`${MEASURES[measure]} over time by ${titleOf(by).toLowerCase()}`}
      buckets={buckets}
      rows={rows}
      coverage={rows.map((row) => (row !== undefined || isComplete ? 1 : 0))}
      parts={series}
      totals={totals}
      whole={totalOf(whole, measure)}
      show={show}
      zone={zone}
      onOpen={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
    />
  );
}

const negative = (figure: Figure): Figure => (figure == null ? null : -figure);

/** The sum of the rows: the API's total, less what the filters exclude. */
function totalOf(whole: CostsResponse, measure: Measure): Figure {
  const figures = whole.rows.map((row) => figureOf(row, measure));
  return figures.some((figure) => figure == null)
    ? null
    : figures.reduce<number>((sum, figure) => sum + (figure ?? 0), 0);
}

function shareText(figure: Figure): string {
  return figure == null ? "–" : `${(100 * figure).toFixed(1)}%`;
}

function titleOf(dimension: string): string {
  return DIMENSIONS[dimension] ?? dimension.replace(/^label:/, "Label ");
}
