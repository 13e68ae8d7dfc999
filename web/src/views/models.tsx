// Models, or who used them: what a million tokens cost, how much of it was serving and waiting, and how many tokens a GPU
// processed.

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { fetchAll, fetchJson, type InferenceResponse, type ModelRow, settle } from "../api";
import { figureColumn, moneyColumn, nameColumn, unmeasuredColumns } from "../columns";
import { type Filter, filterQuery, filtersIn } from "../explore";
import {
  counted,
  isMeasured,
  isRepresentative,
  knownFigure,
  NOT_MEASURED,
  ratio,
  roundMoney,
  tokenCount,
  tokenRate,
  unitPrice,
  utilization,
  wasteText,
} from "../format";
import { useFetch, useRoute } from "../hooks";
import { amountTitle, UNIT_COSTS } from "../identity";
import { MODEL_DIMENSIONS, modelFiltersOf } from "../models";
import {
  type Column,
  DoctorCommand,
  DownloadButton,
  Empty,
  ExcelButton,
  Help,
  Name,
  Section,
  Stat,
  Table,
  UnpricedNote,
  View,
} from "../parts";
import { linkTo, periodOf, type Route } from "../route";
import { type Cell, groupCell, periodCells } from "../spreadsheet";
import { Filters } from "./filters";

/** What the tables' rows are. */
const GROUPS = { model: "Model", consumer: "Consumer" } as const;
type Group = keyof typeof GROUPS;

interface ViewData {
  whole: InferenceResponse;
  models: InferenceResponse;
  consumers: InferenceResponse;
}

async function fetchModels(route: Route): Promise<ViewData> {
  const filters = { cluster: route.query["cluster"], ...modelFiltersOf(filtersIn(route)) };
  // The first response resolves the period, so that the others match even if an hour ends meanwhile.
  const whole = await fetchJson("v1/inference", { ...periodOf(route), ...filters, granularity: "total" });
  const { start, end } = whole;
  const [models, consumers] = await Promise.all(
    (["model,business_unit", "consumer"] as const).map((group) =>
      fetchAll("v1/inference", { start, end, ...filters, granularity: "total", group_by: group }),
    ) as [Promise<InferenceResponse>, Promise<InferenceResponse>],
  );
  return { whole, models, consumers };
}

/** The names of a dimension in the period. */
export async function fetchNames(route: Route, dimension: string): Promise<string[]> {
  const names = await settle(
    fetchJson("v1/inference", {
      ...periodOf(route),
      cluster: route.query["cluster"],
      server: "*",
      granularity: "total",
      group_by: dimension,
    }),
  );
  return "response" in names ? names.response.rows.map((row) => row.group[dimension] ?? "") : [];
}

export function Models() {
  const route = useRoute();
  const filters = filtersIn(route);
  const key = JSON.stringify([periodOf(route), route.query["cluster"], filters]);
  const request = useFetch(key, () => fetchModels(route));
  const controls = (
    <Filters filters={filters} dimensions={MODEL_DIMENSIONS} namesOf={(dimension) => fetchNames(route, dimension)} />
  );
  return (
    <View title="Models" controls={controls} request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

function Shown({ whole, models, consumers }: ViewData) {
  const route = useRoute();
  const [total] = whole.rows;
  if (whole.hours_with_servers === 0) return <NoServers />;
  if (total === undefined) {
    return (
      <Empty>
        {filtersIn(route).length > 0
          ? "Nothing matches these filters in this period. Remove a filter, or select another period."
          : "No inference server was seen in this period. Select another period."}
      </Empty>
    );
  }
  return (
    <>
      <ModelStats row={total} currency={whole.currency} models={models.rows} />
      <Groups by="model" response={models} />
      {consumers.rows.every(({ group }) => group["consumer"] === null) ? (
        <Section title="Costs by consumer">
          <NoConsumers>Who used the models of this period is unknown.</NoConsumers>
        </Section>
      ) : (
        <Groups by="consumer" response={consumers} />
      )}
    </>
  );
}

/** A table of models or consumers. */
function Groups({ by, response }: { by: Group; response: InferenceResponse }) {
  const route = useRoute();
  const { start, end, currency, rows, coverage } = response;
  const inOrder = useRef<readonly ModelRow[]>([]);
  const [cost, ...figures] = modelColumns(currency, rows);
  const named = rows.filter(({ group }) => group[by] !== null);
  return (
    <Section
      title={`Costs by ${by}`}
      aside={
        <span class="filters-of">
          <ExcelButton
            save={({ saveWorkbook }) => saveWorkbook(`${by}s`, response, cellsOf(by, response), inOrder.current)}
          />
          <DownloadButton
            path="v1/inference"
            parameters={{
              start,
              end,
              cluster: route.query["cluster"],
              ...modelFiltersOf(filtersIn(route)),
              granularity: "total",
              group_by: by === "model" ? "model,business_unit" : by,
              sort: route.query[`${by}s-sort`] ?? "-allocated_usd",
            }}
            name={`${by}s`}
          />
        </span>
      }
    >
      <p class="note">
        {counted(new Set(named.map(({ group }) => group[by])).size, by)}
        {named.length < rows.length &&
          (by === "consumer" ? ", and a row for what has none" : ", and a row for unknown ones")}
        .{" "}
        {by === "consumer" &&
          "The cost of a consumer is its part of the servers' cost, by weighted tokens. The servers' business units bear it, also where a consumer has the name of another one. "}
        Inference servers were seen in {counted(response.hours_with_servers, "cluster-hour")}; {coverage.hours_complete}{" "}
        of {coverage.hours_expected} cluster-hours are complete. Pods without an inference server are left out; the API
        has them without a server.
      </p>
      <Table<ModelRow>
        name={`${by}s`}
        inOrder={inOrder}
        caption={`Costs by ${by}, and unit costs per 1M tokens. Open one to see it over time`}
        sort="-allocated_usd"
        rows={rows}
        rowKey={(row) => Object.values(row.group).join("\n")}
        columns={[
          groupColumn(route, by),
          ...(cost === undefined ? [] : [cost]),
          ...(by === "model"
            ? [nameColumn("business_unit", "Business unit", ({ group }: ModelRow) => group["business_unit"] ?? "")]
            : []),
          ...figures,
        ]}
      />
    </Section>
  );
}

/** The columns of the file: those of the table, with the period, GPU-hours, utilization and waste %. */
export function cellsOf(by: Group, response: InferenceResponse): Cell<ModelRow>[] {
  const { currency, start, end } = response;
  const titles: Record<string, string> = {
    ...UNIT_COSTS,
    usd_per_million_tokens_at_full_use: "Cost per 1M tokens at full use",
  };
  const figures = modelColumns(currency, response.rows).map((column): Cell<ModelRow> => ({
    title: (titles[column.key] ?? column.title) + (/usd/.test(column.key) ? ` (${currency})` : ""),
    kind: "number",
    of: (row) => (column.unknown?.(row) === undefined ? column.by?.(row) : null),
  }));
  return [
    { title: GROUPS[by], kind: "text", of: ({ group }) => group[by] ?? WITHOUT_NAME[by].text },
    ...(by === "model" ? [groupCell<ModelRow>("business_unit", "Business unit")] : []),
    ...periodCells<ModelRow>(start, end),
    ...figures,
    { title: "GPU-hours", kind: "number", of: (row) => row.allocated_gpu_hours },
    { title: "Utilization", kind: "percent", of: utilization },
    {
      title: "Waste %",
      kind: "percent",
      of: (row) => (isRepresentative(row) ? ratio(row.waste_usd, row.allocated_usd) : null),
    },
  ];
}

const WITHOUT_NAME: Readonly<Record<Group, { text: string; title: string }>> = {
  model: { text: "unknown", title: "Pods of inference servers whose tokens are unknown" },
  consumer: { text: "none", title: "Hours without requests, and requests without a consumer's name" },
};

/** The column of models or consumers, which leads to their pages with the other filters, and more. */
export function groupColumn(route: Route, by: Group, more: readonly Filter[] = []): Column<ModelRow> {
  const others = [...filtersIn(route).filter(({ dimension }) => dimension !== by), ...more];
  return {
    key: by,
    title: GROUPS[by],
    cell: ({ group: { [by]: name } }) =>
      typeof name === "string" ? (
        <a href={linkTo(route, by, name, filterQuery(others, []))}>
          <Name>{name}</Name>
        </a>
      ) : (
        <span class="unknown" title={WITHOUT_NAME[by].title}>
          {WITHOUT_NAME[by].text}
        </span>
      ),
    by: ({ group }) => group[by],
  };
}

/** The columns of costs, unit costs per million tokens, and tokens; without those in which nothing is. */
export function modelColumns(currency: string, rows: readonly ModelRow[]): Column<ModelRow>[] {
  const price = (key: keyof typeof UNIT_COSTS | "usd_per_million_tokens_at_full_use", title: string) =>
    figureColumn<ModelRow>(
      key,
      title,
      (row) => row[key],
      (value) => unitPrice(value, currency),
    );
  const count = (key: "requests" | "prompt_tokens" | "generated_tokens" | "cached_tokens", title: string) =>
    figureColumn<ModelRow>(key, title, (row) => row[key], tokenCount);
  return [
    moneyColumn("allocated_usd", currency),
    price("usd_per_million_tokens", "Per 1M tokens"),
    price("usd_per_million_tokens_at_full_use", "At full use"),
    price("usd_per_million_generated_tokens", "Per 1M generated"),
    moneyColumn("effective_usd", currency),
    moneyColumn("waste_usd", currency),
    ...unmeasuredColumns(rows, currency),
    ...(rows.every(({ unknown_tokens_usd: usd }) => usd === 0)
      ? []
      : [moneyColumn<"unknown_tokens_usd", ModelRow>("unknown_tokens_usd", currency)]),
    figureColumn("tokens_per_gpu_second", "Tokens per GPU-second", (row) => row.tokens_per_gpu_second, tokenRate),
    count("requests", "Requests"),
    count("prompt_tokens", "Prompt tokens"),
    count("cached_tokens", "Cached"),
    count("generated_tokens", "Generated"),
  ];
}

/** Whether models generate no tokens, as embeddings do, and others do: a price of both would be of neither. */
export function areMixed(models: readonly ModelRow[]): boolean {
  const used = models.filter(({ prompt_tokens: tokens }) => (tokens ?? 0) > 0);
  return (
    used.some(({ generated_tokens: tokens }) => tokens === 0) && used.some(({ generated_tokens: tokens }) => tokens)
  );
}

/** The sums of models, or those of one. */
export function ModelStats(props: { row: ModelRow; currency: string; models?: readonly ModelRow[] }) {
  const { row, currency, models = [] } = props;
  const unknown = row.unknown_tokens_usd ?? 0;
  return (
    <>
      <dl class="stats">
        <Stat
          name={UNIT_COSTS.usd_per_million_tokens}
          value={areMixed(models) ? "by model" : unitPrice(row.usd_per_million_tokens, currency)}
          note={
            areMixed(models) ? (
              "models that generate tokens, and embeddings, which do not, have no price in common"
            ) : (
              <>
                {unitPrice(row.usd_per_million_tokens_at_full_use, currency)} at full use <Help term="at full use" />;
                per 1M generated tokens alone {unitPrice(row.usd_per_million_generated_tokens, currency)}
              </>
            )
          }
          testId="per-million"
        />
        <Stat
          name={amountTitle("allocated_usd")}
          value={roundMoney(row.allocated_usd, currency)}
          note="of the servers' GPUs"
          testId="cost"
        />
        <Stat
          name={amountTitle("effective_usd")}
          value={roundMoney(knownFigure(row, "effective_usd"), currency)}
          note={
            <>
              the cost of serving <Help term="cost of serving, cost of waiting" />
            </>
          }
          testId="serving"
        />
        <Stat
          name={amountTitle("waste_usd")}
          value={roundMoney(knownFigure(row, "waste_usd"), currency)}
          note={
            isMeasured(row)
              ? `the cost of waiting, ${wasteText(row)} of the allocated cost`
              : `unknown: ${NOT_MEASURED}`
          }
          testId="waiting"
        />
        {(row.unmeasured_usd ?? 0) > 0 && (
          <Stat
            name={amountTitle("unmeasured_usd")}
            value={roundMoney(row.unmeasured_usd, currency)}
            testId="unmeasured"
          />
        )}
        <Stat
          name="Prompt tokens"
          value={tokenCount(row.prompt_tokens)}
          note={row.cached_tokens === null ? "cached: unknown" : `${tokenCount(row.cached_tokens)} from a cache`}
          testId="prompt"
        />
        <Stat
          name="Generated tokens"
          value={tokenCount(row.generated_tokens)}
          note={row.requests === null ? "requests: unknown" : `in ${tokenCount(row.requests)} requests`}
          testId="generated"
        />
        <Stat
          name="Tokens per GPU-second"
          value={areMixed(models) ? "by model" : tokenRate(row.tokens_per_gpu_second)}
          note={
            areMixed(models)
              ? "embeddings process many more than models that generate them"
              : `p50 ${tokenRate(row.tokens_per_gpu_second_p50)}, p95 ${tokenRate(row.tokens_per_gpu_second_p95)} of hours`
          }
          testId="load"
        />
        {row.tokens_per_kwh !== null && (
          <Stat name="Tokens per kWh" value={tokenCount(row.tokens_per_kwh)} testId="per-kwh" />
        )}
      </dl>
      <UnpricedNote totals={row} />
      {unknown > 0 && (
        <p class="note unpriced" data-testid="unknown-tokens">
          Tokens are unknown for {roundMoney(unknown, currency)} of the allocated cost. Costs per token leave this part
          out. <DoctorCommand /> <Help term="doctor" /> says which counters are missing.
        </p>
      )}
    </>
  );
}

/** What to do where no consumer is known. */
export function NoConsumers({ children }: { children: ComponentChildren }) {
  return (
    <div class="empty" data-testid="no-consumers">
      <p>{children}</p>
      <details>
        <summary>How to know the consumers of the hours that follow</summary>
        <ol>
          <li>
            Name what counts them in the settings: <code>inference.consumer_label</code> is the label of the servers'
            counters that names who sent a request, and <code>inference.gateway</code> a gateway that counts instead.
          </li>
          <li>
            Add the names to business units as <code>consumers</code>, and run{" "}
            <code class="command">gpucost settings push</code>. A name of no business unit is a consumer of its own.
          </li>
        </ol>
        <p>
          The section <em>One server, several business units</em> of the documentation (
          <code>docs/explanation/inference.md</code>) lists the servers and gateways that can, and explains the split.
        </p>
      </details>
    </div>
  );
}

/** What to do where no inference server was seen. */
function NoServers() {
  const route = useRoute();
  return (
    <div class="empty" data-testid="no-servers">
      <p>No inference server was seen in this period. Select another period, or read the servers' counters:</p>
      <ol>
        <li>
          Scrape the servers with Prometheus, with the labels <code>namespace</code> and <code>pod</code>.
        </li>
        <li>
          Add <code>{"inference: {enabled: true}"}</code> to the settings, and run{" "}
          <code class="command">gpucost settings push</code>.
        </li>
        <li>
          Run <DoctorCommand /> <Help term="doctor" />. It says which servers it sees, and which counters are missing.
        </li>
      </ol>
      <p>
        The page <em>Inference: what a million tokens cost</em> of the documentation (
        <code>docs/explanation/inference.md</code>) explains the figures. Hours that end after the change have them; see{" "}
        <a href={linkTo(route, "health")}>Data health</a>.
      </p>
      <p>
        If your role sees some business units only, see{" "}
        <a href={linkTo(route, "models", "", { "f.consumer": "*" })}>the models of others that they used</a>.
      </p>
    </div>
  );
}
