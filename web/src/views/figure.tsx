// "Why this figure?": from a sum to its hours, pods, prices and their sources. The URL says which figure.

import {
  type CostRow,
  fetchAll,
  fetchIfAllowed,
  fetchJson,
  type FleetTotals,
  type HoursResponse,
  type Line,
  MAX_DETAIL_HOURS,
  type NodeRow,
} from "../api";
import { clusterColumns, figureColumn, moneyColumn, nameColumn, nodeColumn } from "../columns";
import {
  type Amounts,
  type FigureKey,
  figureOf,
  formulaOf,
  isOfPods,
  isRounded,
  largest,
  notesOn,
  type Price,
  pricesOf,
} from "../explain";
import { joinPriced, lackingStatus } from "../health";
import { AMOUNTS } from "../identity";
import {
  capitalized,
  counted,
  dayOf,
  exactMoney,
  gpuHours,
  HOUR,
  roundHours,
  instant,
  knownFigure,
  money,
  moment,
  percent,
  stepName,
  instanceType,
} from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { Dialog, Empty, Loaded, Name, SplitPolicy, Table, UnpricedNote } from "../parts";
import { exactly, linkTo, periodOf, type Route } from "../route";
import { Causes, fetchNeighbors, hasCauses } from "./causes";
import { lineKey, Why } from "./why";

const NONE = {
  why: "",
  "why-unit": "",
  "why-namespace": "",
  "why-workload": "",
  "why-cluster": "",
  "why-at": "",
  "why-pod": "",
};
const MAX_DAYS = 100;
const MOST = 8;

/** Which part of the costs a figure covers. */
export interface Scope {
  unit?: string | undefined;
  cluster?: string | undefined;
  namespace?: string | undefined;
  workload?: string | undefined;
}

/** A link that explains a figure of the selected period. */
export function WhyLink({ figure, amount, scope = {} }: { figure: FigureKey; amount: string; scope?: Scope }) {
  const route = useRoute();
  const query = Object.fromEntries(Object.entries(scope).map(([key, name]) => [`why-${key}`, name ?? ""]));
  return (
    <a
      class="why"
      href={changed(route, { ...NONE, ...query, why: figure })}
      aria-label={`Why ${amount} ${AMOUNTS[figure]}?`}
    >
      Why?
    </a>
  );
}

interface Explained {
  total: CostRow | FleetTotals | undefined;
  currency: string;
  start: string;
  end: string;
  grain: "hour" | "day" | "month";
  rows: (CostRow | (FleetTotals & { start: string; end: string }))[];
  at: string | null;
  hours: HoursResponse | null;
  lines: Line[];
  /** The hour's pods on the same nodes, also those of others, which show why this cost is unmeasured. */
  all: Line[];
  nodes: NodeRow[];
}

async function explain(route: Route, figure: FigureKey): Promise<Explained> {
  const { query } = route;
  const unit = query["why-unit"];
  const cluster = query["why-cluster"] ?? query["cluster"];
  const filters = {
    cluster: cluster === undefined || cluster === query["cluster"] ? cluster : exactly(cluster),
    ...(unit === undefined ? {} : { business_unit: exactly(unit) }),
    ...(query["why-namespace"] === undefined ? {} : { namespace: exactly(query["why-namespace"]) }),
    ...(query["why-workload"] === undefined ? {} : { workload: exactly(query["why-workload"]) }),
  };
  // The fleet's sums are read faster, and those of a unit have no node cost.
  const ofPods = unit !== undefined || query["why-workload"] !== undefined;
  const get = async (period: Record<string, string>, granularity: "total" | "hour" | "day" | "month") => {
    if (!ofPods) return fetchJson("v1/fleet", { ...period, cluster: filters.cluster, granularity });
    return fetchAll("v1/costs", { ...period, ...filters, granularity });
  };
  const whole = await get(periodOf(route), "total");
  const { start, end, currency } = whole;
  const length = (Date.parse(end) - Date.parse(start)) / HOUR;
  const grain = length <= MAX_DETAIL_HOURS ? "hour" : length <= MAX_DAYS * 24 ? "day" : "month";
  const { rows } = await get({ start, end }, grain);
  const total = ofPods ? whole.rows[0] : (whole as unknown as { totals: FleetTotals }).totals;
  const top = largest<(typeof rows)[number]>(rows, figure, 1).shown[0];
  const at = grain !== "hour" ? null : (query["why-at"] ?? top?.start ?? null);
  const explained = {
    total,
    currency,
    start,
    end,
    grain,
    rows,
    at,
    hours: null,
    lines: [],
    all: [],
    nodes: [],
  } as Explained;
  if (at === null) return explained;
  const hour = { start: at, end: instant(Date.parse(at) + HOUR) };
  const [hours, lines, nodes] = await Promise.all([
    fetchIfAllowed("v1/hours", { ...hour, cluster: filters.cluster }),
    isOfPods(figure) ? fetchAll("v1/lines", { ...hour, ...filters, limit: "2000" }, 3) : null,
    isOfPods(figure) ? null : fetchIfAllowed("v1/nodes", { ...hour, cluster: filters.cluster, limit: "2000" }),
  ]);
  const shown = lines?.rows ?? [];
  const all = ofPods && figure === "unmeasured_usd" ? await fetchNeighbors(hour, filters.cluster, shown) : shown;
  return { ...explained, hours, lines: shown, all, nodes: nodes?.rows ?? [] };
}

/** The panel; nothing unless the URL names a figure. */
export function Figure() {
  const route = useRoute();
  const figure = figureOf(route.query["why"]);
  return figure === null ? null : <Panel figure={figure} />;
}

function Panel({ figure }: { figure: FigureKey }) {
  const route = useRoute();
  const key = Object.keys(NONE).map((name) => (name === "why-pod" ? "" : route.query[name]));
  const requestKey = JSON.stringify([periodOf(route), route.query["cluster"], key]);
  const request = useFetch(requestKey, () => explain(route, figure));
  const title = (
    <>
      How the {AMOUNTS[figure]} of <ScopeName /> is calculated
    </>
  );
  return (
    <Dialog id="figure" title={title} close={() => go(changed(route, NONE))}>
      <Loaded request={request}>{(explained) => <Shown {...explained} figure={figure} />}</Loaded>
    </Dialog>
  );
}

function ScopeName() {
  const { query } = useRoute();
  const names = (["workload", "namespace", "unit", "cluster"] as const).filter((key) => query[`why-${key}`]);
  if (names.length === 0) return <>{query["cluster"] === undefined ? "all clusters" : `cluster ${query["cluster"]}`}</>;
  return (
    <>
      {names.map((key, index) => (
        <span key={key}>
          {index > 0 && ", "}
          {key === "unit" ? "business unit" : key} <Name>{query[`why-${key}`] ?? ""}</Name>
        </span>
      ))}
    </>
  );
}

function Shown(props: Explained & { figure: FigureKey }) {
  const { figure, total, currency, start, end } = props;
  const zone = useZone();
  const amounts: Amounts = total ?? {};
  if (total === undefined || amounts[figure] === undefined)
    return <Empty>This period has no such figure. Select another period.</Empty>;
  return (
    <>
      <p>
        {moment(start, zone)} to {moment(end, zone)}:{" "}
        <strong data-testid="figure-total">{exactMoney(knownFigure(amounts, figure), currency)}</strong>
      </p>
      <UnpricedNote totals={total} />
      {figure === "unmeasured_usd" && props.at !== null && hasCauses(props.lines) && (
        <>
          <h3>Why it is unmeasured, in the hour {moment(props.at, zone)}</h3>
          <Causes lines={props.lines} hours={props.hours?.rows ?? []} all={props.all} />
        </>
      )}
      <ol class="path">
        <li>
          <h3>Sum</h3>
          <p data-testid="figure-formula">{formulaOf(figure, amounts, currency)}</p>
          {isRounded(figure, amounts) && (
            <p class="note">
              Each amount is rounded to six decimals, so the last digit of the sum can differ. The CSV and the API have
              all digits, which add up.
            </p>
          )}
        </li>
        <Periods {...props} />
        {props.at !== null && <HourDetails {...props} at={props.at} />}
      </ol>
      <Pod {...props} />
    </>
  );
}

/** The calculation of a pod's cost, above the dialog that it was opened from. */
function Pod({ lines, hours, figure }: Explained & { figure: FigureKey }) {
  const route = useRoute();
  const line = lines.find((candidate) => podKey(candidate) === route.query["why-pod"]);
  if (line === undefined) return null;
  const hour = hours?.rows.find((row) => row.cluster === line.cluster);
  return (
    <Why line={line} figure={figure} hour={hour} closeName="Back" close={() => go(changed(route, { "why-pod": "" }))} />
  );
}

function Periods({ figure, rows, grain, at, currency }: Explained & { figure: FigureKey }) {
  const route = useRoute();
  const zone = useZone();
  const { shown, others, rest } = largest<(typeof rows)[number]>(rows, figure, MOST);
  const to = (row: (typeof rows)[number]) =>
    grain === "hour"
      ? changed(route, { "why-at": row.start })
      : changed(route, { start: row.start, end: row.end, window: "" });
  return (
    <li>
      <h3>{capitalized(stepName(grain))}s</h3>
      <p class="note">
        Select {grain === "hour" ? "an hour" : `a ${stepName(grain)}`} to see its{" "}
        {grain === "hour" ? "" : `${grain === "day" ? "hours" : "days"} and `}
        {isOfPods(figure) ? "pods" : "nodes"}.
      </p>
      <ul class="amounts-list" data-testid="figure-periods">
        {shown.map((row) => (
          <li key={row.start}>
            <a href={to(row)} aria-current={row.start === at ? "true" : undefined}>
              {grain === "hour" ? moment(row.start, zone) : dayOf(row.start)}
            </a>{" "}
            <span>{money(knownFigure(row as Amounts, figure), currency)}</span>
          </li>
        ))}
        {others > 0 && (
          <li>
            {counted(others, grain === "hour" ? "other hour" : `other ${stepName(grain)}`)}{" "}
            <span>{money(rest, currency)}</span>
          </li>
        )}
      </ul>
    </li>
  );
}

function HourDetails({ figure, at, lines, nodes, hours, currency }: Explained & { figure: FigureKey; at: string }) {
  const route = useRoute();
  const zone = useZone();
  const ofPods = isOfPods(figure);
  // Rows without a part of the figure have nothing to do with its prices and notes.
  const parts = (ofPods ? lines : nodes).filter((row) => (row as Amounts)[figure]);
  const prices = pricesOf(ofPods ? (parts as Line[]) : (parts as NodeRow[]).map(priceOfNode));
  const types = new Set(parts.map((row) => row.instance_type));
  const clusters = new Set(parts.map((row) => row.cluster));
  const { shown, others, rest } = ofPods ? largest<Line>(lines, figure, MOST) : { shown: [], others: 0, rest: 0 };
  const topNodes = ofPods ? null : largest<NodeRow>(nodes, figure, MOST);
  return (
    <>
      <li>
        <h3>
          {ofPods ? "Pods" : "Nodes"} of {moment(at, zone)}
        </h3>
        {ofPods ? (
          <Table
            name="figure-pods"
            caption={`The pods with the largest part of the ${AMOUNTS[figure]}. Select one to see its calculation and samples`}
            sort=""
            rows={shown}
            rowKey={(line) => `${line.cluster} ${lineKey(line)}`}
            columns={[
              nameColumn(
                "pod",
                "Pod",
                (line: Line) => line.pod,
                (line: Line) => changed(route, { "why-pod": podKey(line) }),
              ),
              moneyColumn(figure as "waste_usd", currency),
              figureColumn("gpu", "GPU-hours", (line: Line) => line.allocated_gpu_hours, roundHours),
              figureColumn(
                "price",
                "Price per GPU-hour",
                (line: Line) => line.gpu_hourly_usd,
                (usd) => exactMoney(usd, currency),
              ),
              figureColumn("utilization", "Utilization", (line: Line) => line.utilization, percent),
              { key: "source", title: "Measured by", cell: (line) => line.utilization_source },
              ...clusterColumns(shown, (line: Line) => line.cluster),
            ]}
          />
        ) : (
          <Table
            name="figure-nodes"
            caption={`The nodes with the largest part of the ${AMOUNTS[figure]}`}
            sort=""
            rows={topNodes?.shown ?? []}
            rowKey={(row) => `${row.cluster} ${row.kind} ${row.node}`}
            columns={[
              nodeColumn(route),
              moneyColumn(figure as "node_cost_usd", currency),
              nameColumn("type", "Instance type", (row: NodeRow) => instanceType(row)),
              { key: "price_source", title: "Price source", cell: (row) => row.price_source || "none" },
            ]}
          />
        )}
        {(others > 0 || (topNodes?.others ?? 0) > 0) && (
          <p class="note">
            {counted(others || (topNodes?.others ?? 0), ofPods ? "other pod" : "other node")}:{" "}
            {money(ofPods ? rest : (topNodes?.rest ?? 0), currency)}
          </p>
        )}
      </li>
      <li>
        <h3>Prices</h3>
        <Prices prices={prices} currency={currency} ofPods={ofPods} />
      </li>
      <li>
        <h3>Version of the hour</h3>
        <ul>
          {(hours?.rows ?? [])
            .filter((row) => clusters.size === 0 || clusters.has(row.cluster))
            .map((row) => (
              <li key={row.cluster}>
                <Name>{row.cluster}</Name>: {lackingStatus(row)}
                {row.version !== null && `, version ${row.version}`}
                {row.settings_version !== null && `, settings version ${row.settings_version}`}
                {row.published_at !== null && `, published ${moment(row.published_at, zone)}`}
                {notesOn(row.notes, types).length > 0 && `. ${joinPriced(notesOn(row.notes, types)).join(". ")}`}
              </li>
            ))}
        </ul>
        <a href={linkTo(route, "health")}>Restatements and coverage</a>
      </li>
    </>
  );
}

/** Identifies a pod's figures among those of several clusters. */
function podKey(line: Line): string {
  return `${line.cluster} ${lineKey(line)}`;
}

function priceOfNode(row: NodeRow) {
  const capacity = row.capacity_gpu_hours ?? 0;
  const amount = row.node_cost_usd === null || capacity === 0 ? null : row.node_cost_usd / capacity;
  const { price_source, split_policy } = row;
  return { price_source, split_policy, gpu_hourly_usd: amount, allocated_gpu_hours: capacity };
}

function Prices({ prices, currency, ofPods }: { prices: readonly Price[]; currency: string; ofPods: boolean }) {
  return (
    <ul data-testid="figure-prices">
      {prices.slice(0, MOST).map((price) => (
        <li key={`${price.source} ${price.split} ${price.amount}`}>
          {price.amount === null ? "No price" : `${exactMoney(price.amount, currency)} per GPU-hour`}
          {!ofPods && price.amount !== null && " (node cost ÷ GPU-hours)"}, source {price.source || "none"},{" "}
          <SplitPolicy name={price.split} />: {counted(price.rows, ofPods ? "pod" : "node")}, {gpuHours(price.gpuHours)}{" "}
          GPU-hours
        </li>
      ))}
      {prices.length > MOST && <li>and {counted(prices.length - MOST, "other price")}</li>}
    </ul>
  );
}
