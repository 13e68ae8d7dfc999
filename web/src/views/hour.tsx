// One or more hours by pod: allocated GPUs, price, utilization source, and the calculation of each cost.

import {
  type CostRow,
  settle,
  fetchJson,
  fetchAll,
  fetchIfAllowed,
  type FleetResponse,
  type HourRow,
  type HoursResponse,
  type Line,
  type LinesResponse,
  MAX_DETAIL_HOURS,
  type NodeRow,
  type NodesResponse,
  type Parameters,
  type Settled,
} from "../api";
import {
  counted,
  HOUR,
  instant,
  isMeasured,
  isUnmeasured,
  knownFigure,
  moment,
  NOT_MEASURED,
  readClock,
  roundHours,
  roundMoney,
  utilizationText,
  wasteText,
  writeClock,
} from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { figureOf } from "../explain";
import { lackingHours, lackingStatus, noteGroups } from "../health";
import { amountTitle, PARTS, partsOf } from "../identity";
import { heldGpuHours, sumOf } from "../removal";
import { Optional, DownloadButton, Empty, Name, NoteText, NotFound, Section, Stat, UnpricedNote, View } from "../parts";
import { clusterOf, exactly, linkTo, type Route } from "../route";
import { Causes, fetchNeighbors, hasCauses } from "./causes";
import { titleOf } from "./filters";
import { Lines, NodeTable } from "./lines";
import { lineKey, Why } from "./why";

const FILTERS: Record<string, keyof Parameters<"v1/lines">> = {
  unit: "business_unit",
  namespace: "namespace",
  workload: "workload",
  node: "node",
  pool: "node_pool",
};

interface ViewData {
  start: string;
  end: string;
  lines: LinesResponse;
  /** The pods of the same hours, also those that the filters leave out, if some of the lines are unmeasured. */
  all: readonly Line[];
  /** The pods that the filters select; undefined without filters. */
  selected: CostRow | undefined;
  fleet: FleetResponse;
  hours: HoursResponse | null;
  nodes: Settled<NodesResponse | null>;
}

function spanOf(route: Route): { start: string; end: string; count: number } | null {
  const first = Date.parse(route.name);
  const count = Math.min(MAX_DETAIL_HOURS, Math.max(1, Math.trunc(Number(route.query["hours"] ?? 1)) || 1));
  if (Number.isNaN(first) || first % HOUR !== 0) return null;
  return { start: instant(first), end: instant(first + count * HOUR), count };
}

async function fetchHour(route: Route): Promise<ViewData | null> {
  const span = spanOf(route);
  if (span === null) return null;
  const period = { start: span.start, end: span.end, cluster: clusterOf(route) };
  const filters = filtersOf(route);
  const [lines, fleet, hours, nodes, costs] = await Promise.all([
    fetchAll("v1/lines", { ...period, ...filters, limit: "2000" }, 10),
    fetchJson("v1/fleet", { ...period, granularity: "total" }),
    fetchIfAllowed("v1/hours", period),
    span.count > 1 ? { response: null } : settle(fetchIfAllowed("v1/nodes", { ...period, limit: "2000" })),
    isFiltered(route) ? fetchJson("v1/costs", { ...period, ...filters, granularity: "total" }) : null,
  ]);
  const { start, end } = span;
  const all = isFiltered(route) ? await fetchNeighbors({ start, end }, period.cluster, lines.rows) : lines.rows;
  return { ...span, lines, all, fleet, hours, nodes, selected: costs?.rows[0] };
}

const isFiltered = (route: Route) => Object.keys(FILTERS).some((key) => route.query[key] !== undefined);

function filtersOf(route: Route): Record<string, string> {
  return Object.fromEntries(
    Object.entries(FILTERS).flatMap(([key, name]) => {
      const value = route.query[key];
      return value === undefined ? [] : [[name, exactly(value)]];
    }),
  );
}

/** The newest hour with figures, for the URL `#/hour`. */
async function latest(route: Route): Promise<string> {
  const { rows, end } = await fetchJson("v1/fleet", { window: "6h", cluster: clusterOf(route) });
  return rows.at(-1)?.start ?? instant(Date.parse(end) - HOUR);
}

export function Hour() {
  const route = useRoute();
  const zone = useZone();
  const requestKey = JSON.stringify([route.name, route.query["hours"], clusterOf(route), filtersOf(route)]);
  const request = useFetch(requestKey, async () => {
    if (route.name !== "") return fetchHour(route);
    window.location.replace(linkTo(route, "hour", await latest(route))); // Back leaves the view
    return undefined;
  });
  const span = spanOf(route);
  if (route.name !== "" && span === null)
    return (
      <>
        <h1>Hour not found</h1>
        <NotFound>
          <Name>{route.name}</Name> is not a full hour. Hours are written as in 2026-11-20T10:00:00Z.
        </NotFound>
      </>
    );
  const start = span === null ? "Latest hour" : moment(span.start, zone);
  const title = (
    <>
      {span !== null && span.count > 1 ? `${start}, ${span.count} hours` : start}
      {request.response && !request.isLoading && <Without {...request.response} />}
    </>
  );
  return (
    <View title={title} request={request}>
      {(viewData) => viewData && <Shown {...viewData} />}
    </View>
  );
}

/** What the view's amounts lack, as a part of the headline: the clusters of an hour, or the cluster-hours of several. */
function Without({ start, end, fleet: { coverage }, hours }: ViewData) {
  const { hours_expected: expected, hours_complete: complete } = coverage;
  if (complete === expected || complete === 0) return null; // without any figures, the pods' place says why
  const clusters = lackingHours(hours?.rows ?? []).map(({ cluster }) => cluster);
  const isNamed = clusters.length > 0 && Date.parse(end) - Date.parse(start) === HOUR;
  return (
    <span class="lacking" data-testid="without">
      {isNamed
        ? `, without ${clusters.join(", ")}`
        : `, without ${expected - complete} of ${counted(expected, "cluster-hour")}`}
    </span>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const { fleet, lines } = props;
  const open = lines.rows.find((line) => lineKey(line) === route.query["line"]);
  // Notes on complete hours, such as the date of a price list, come last.
  const isLacking = (props.hours?.rows ?? []).some(({ status }) => status !== "complete");
  const step = Date.parse(props.end) - Date.parse(props.start);
  const to = (start: number) => linkTo(route, "hour", instant(start), { ...keptQuery(route), line: "" });
  return (
    <>
      <nav class="steps" aria-label="Hours">
        <a href={to(Date.parse(props.start) - step)} rel="prev">
          ← Previous
        </a>{" "}
        {Date.parse(props.end) + step <= Date.now() ? (
          <a href={to(Date.parse(props.end))} rel="next">
            Next →
          </a>
        ) : (
          <span class="unknown">Newest</span>
        )}
        <HourPicker start={props.start} open={(start) => go(to(start))} />
      </nav>
      <Filters />
      {fleet.coverage.hours_complete > 0 && (isFiltered(route) ? <Selected {...props} /> : <Totals fleet={fleet} />)}
      <UnpricedNote totals={isFiltered(route) ? (props.selected ?? {}) : fleet.totals} />
      {isLacking && <Status {...props} />}
      {hasCauses(lines.rows) && (
        <Section title="Why a part is unmeasured">
          <Causes lines={lines.rows} hours={props.hours?.rows ?? []} all={props.all} />
        </Section>
      )}
      <Section
        title="Pods"
        aside={
          <DownloadButton
            path="v1/costs"
            parameters={{
              start: props.start,
              end: props.end,
              cluster: clusterOf(route),
              ...filtersOf(route),
              granularity: "hour",
              group_by: "business_unit,namespace,workload_kind,workload,pod,node,resource",
            }}
            name="pods"
          />
        }
      >
        {lines.rows.length === 0 ? <Nothing {...props} /> : <Lines rows={lines.rows} areSeveral={step > HOUR} />}
        {lines.cursor !== null && <p class="note">Not all pods are shown. Select a business unit.</p>}
      </Section>
      <Optional side={props.nodes}>
        {(nodes) => {
          const rows = nodesOf(route, nodes?.rows ?? [], lines.rows);
          return (
            rows.length > 0 && (
              <Section title="Nodes">
                <NodeTable rows={rows} />
              </Section>
            )
          );
        }}
      </Optional>
      {!isLacking && <Status {...props} />}
      {open && (
        <Why
          line={open}
          figure={figureOf(route.query["figure"]) ?? "allocated_usd"}
          hour={hourOf(props, open)}
          close={() => go(changed(route, { line: "", figure: "" }))}
        />
      )}
    </>
  );
}

/** Opens any hour. The field shows local time or UTC, as selected for the page. */
function HourPicker({ start, open }: { start: string; open: (start: number) => void }) {
  const zone = useZone();
  const pick = (event: SubmitEvent) => {
    event.preventDefault();
    const picked = readClock(new FormData(event.currentTarget as HTMLFormElement).get("hour") as string, zone);
    if (picked !== null) open(picked);
  };
  return (
    <form onSubmit={pick}>
      <label>
        Hour{" "}
        <input
          name="hour"
          type="datetime-local"
          required
          value={writeClock(start, zone)}
          max={writeClock(instant(Date.now()), zone)}
        />
        <button type="submit">Open</button>
      </label>
    </form>
  );
}

/** Why there are no pods: which clusters lack the hour, and why. */
function Nothing({ fleet: { coverage }, hours }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  if (coverage.hours_expected === 0) return <Empty>No data yet: the hour has not ended.</Empty>;
  if (coverage.hours_complete > 0) return <Empty>No pod held a GPU.</Empty>;
  const lacking = lackingHours(hours?.rows ?? []);
  return (
    <div class="empty" data-testid="no-data">
      <p>No data: the hour is missing or incomplete.</p>
      <ul class="notes">
        {lacking.map(({ cluster, hour, status, reason }) => (
          <li key={`${cluster} ${hour}`}>
            <Name>{cluster}</Name>, {moment(hour, zone)}: <strong>{status}</strong>, {reason}
          </li>
        ))}
      </ul>
      <p>
        <a href={linkTo(route, "health")}>Data health</a> has the checks.
      </p>
    </div>
  );
}

function keptQuery(route: Route): Record<string, string> {
  return Object.fromEntries(
    Object.entries(route.query).filter(([key]) => key in FILTERS || key === "hours" || key === "in"),
  );
}

function hourOf({ hours }: ViewData, line: Line): HourRow | undefined {
  return hours?.rows.find((row) => row.hour === line.hour && row.cluster === line.cluster);
}

function Filters() {
  const route = useRoute();
  const set = Object.keys(FILTERS).filter((key) => route.query[key] !== undefined);
  if (set.length === 0) return null;
  return (
    <p class="filters">
      Filtered by{" "}
      {set.map((key) => (
        <span key={key} class="filter">
          {titleOf(FILTERS[key] ?? key)} <Name>{route.query[key] ?? ""}</Name>{" "}
          <a href={changed(route, { [key]: "" })} aria-label={`Remove the filter ${titleOf(FILTERS[key] ?? key)}`}>
            ×
          </a>
        </span>
      ))}
    </p>
  );
}

function Status({ hours, fleet }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  if (fleet.coverage.hours_complete === 0) return null; // the pods' place says why
  const rows = hours?.rows.filter((row) => row.status !== "complete" || row.notes.length > 0) ?? [];
  if (rows.length === 0) return null;
  if (new Set(rows.map(({ hour }) => hour)).size === 1)
    return (
      <Section title="Notes">
        <ul class="notes">
          {rows.map((row) => (
            <li key={`${row.cluster} ${row.hour}`}>
              <Name>{row.cluster}</Name>, {moment(row.hour, zone)}: <strong>{lackingStatus(row)}</strong>
              {row.notes.length > 0 && (
                <ul>
                  {noteGroups([row]).map((group) => (
                    <li key={group.note}>
                      <NoteText {...group} />
                    </li>
                  ))}
                </ul>
              )}
            </li>
          ))}
        </ul>
      </Section>
    );
  const open = (cluster: string, at: number) => linkTo(route, "hour", instant(at), { cluster });
  return (
    <Section title="Notes">
      <ul class="notes" data-testid="notes">
        {rows
          .filter(({ status }) => status !== "complete")
          .map(({ cluster, hour, status }) => (
            <li key={`${cluster} ${hour}`}>
              <Name>{cluster}</Name>, <a href={open(cluster, Date.parse(hour))}>{moment(hour, zone)}</a>:{" "}
              <strong>{status}</strong>
            </li>
          ))}
        {noteGroups(rows).map(({ cluster, note, names, hours: count, first, last }) => (
          <li key={`${cluster} ${note}`}>
            <Name>{cluster}</Name>, {counted(count, "hour")}, <a href={open(cluster, first)}>{moment(first, zone)}</a>
            {first !== last && ` to ${moment(last, zone)}`}: <NoteText note={note} names={names} />
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** The totals of the hour. */
function Totals({ fleet }: { fleet: FleetResponse }) {
  const { totals, currency } = fleet;
  return (
    <dl class="stats">
      <Stat name={amountTitle("node_cost_usd")} value={roundMoney(totals.node_cost_usd, currency)} testId="node-cost" />
      {partsOf([totals], PARTS).map((part) => (
        <Stat
          key={part.key}
          name={part.name}
          value={roundMoney(knownFigure(totals, part.key), currency, [totals.node_cost_usd])}
          note={isUnmeasured(totals, part.key) ? `unknown: ${NOT_MEASURED}` : part.meaning}
          testId={part.key}
        />
      ))}
    </dl>
  );
}

/** What the filters select, each figure with the total that it is a part of. */
function Selected({ fleet, selected, nodes, lines }: ViewData) {
  const route = useRoute();
  const { totals, currency } = fleet;
  const cluster = clusterOf(route);
  const of = (usd: number | null) => `of ${roundMoney(usd, currency)} in ${cluster ?? "all clusters"}`;
  const onNodes = ["unit", "namespace", "workload"].every((key) => route.query[key] === undefined);
  const nodeRows = "response" in nodes ? (nodes.response?.rows ?? []) : [];
  const rows = onNodes ? nodesOf(route, nodeRows, lines.rows) : [];
  const held = heldGpuHours(rows);
  const whole = sumOf(rows.map((row) => row.node_cost_usd));
  return (
    <dl class="stats" data-testid="selected">
      {rows.length > 0 ? (
        <>
          <Stat
            name={amountTitle("node_cost_usd")}
            value={roundMoney(whole, currency)}
            note={of(totals.node_cost_usd)}
            testId="node-cost"
          />
          {partsOf(rows, PARTS).map((part) => (
            <Stat
              key={part.key}
              name={part.name}
              value={roundMoney(
                isUnmeasured(held, part.key) ? null : sumOf(rows.map((row) => row[part.key])),
                currency,
              )}
              note={isUnmeasured(held, part.key) ? `unknown: ${NOT_MEASURED}` : of(totals[part.key])}
              testId={part.key}
            />
          ))}
        </>
      ) : (
        selected !== undefined && (
          <>
            <Stat
              name={amountTitle("allocated_usd")}
              value={roundMoney(selected.allocated_usd, currency)}
              note={of(totals.allocated_usd)}
              testId="allocated_usd"
            />
            <Stat
              name={amountTitle("effective_usd")}
              value={roundMoney(knownFigure(selected, "effective_usd"), currency)}
              note={isMeasured(selected) ? of(totals.effective_usd) : `unknown: ${NOT_MEASURED}`}
              testId="effective_usd"
            />
            <Stat
              name={amountTitle("waste_usd")}
              value={roundMoney(knownFigure(selected, "waste_usd"), currency)}
              note={
                isMeasured(selected)
                  ? `${wasteText(selected)} of the allocated cost, ${of(totals.waste_usd)}`
                  : `unknown: ${NOT_MEASURED}`
              }
              testId="waste_usd"
            />
            <Stat
              name={amountTitle("unmeasured_usd")}
              value={roundMoney(selected.unmeasured_usd, currency)}
              note={of(totals.unmeasured_usd)}
              testId="unmeasured_usd"
            />
          </>
        )
      )}
      {selected !== undefined && (
        <Stat
          name="Utilization"
          value={utilizationText(selected)}
          note={`of measured GPU-hours; ${roundHours(selected.allocated_gpu_hours)} allocated`}
          testId="utilization"
        />
      )}
    </dl>
  );
}

/** The nodes that the filters select: by name and pool, and otherwise those of the selected pods. */
function nodesOf(route: Route, rows: readonly NodeRow[], lines: readonly Line[]): NodeRow[] {
  const { node, pool } = route.query;
  const isOfPods = ["unit", "namespace", "workload"].some((key) => route.query[key] !== undefined);
  const held = new Set(lines.map((line) => `${line.cluster} ${line.node}`));
  return rows.filter(
    (row) =>
      (node === undefined || row.node === node) &&
      (pool === undefined || row.node_pool === pool) &&
      (!isOfPods || held.has(`${row.cluster} ${row.node}`)),
  );
}
