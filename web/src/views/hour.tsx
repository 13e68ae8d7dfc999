// One or more hours by pod: allocated GPUs, price, utilization source, and the calculation of each cost.

import {
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
  type NodesResponse,
  type Parameters,
  type Settled,
} from "../api";
import { HOUR, instant, money, moment, readClock, writeClock } from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { joinPriced } from "../health";
import { PARTS, partsOf } from "../identity";
import { Optional, DownloadButton, Empty, ErrorMessage, Name, Section, Stat, UnpricedNote, View } from "../parts";
import { exactly, linkTo, type Route } from "../route";
import { Causes, hasCauses } from "./causes";
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
  const period = { start: span.start, end: span.end, cluster: route.query["cluster"] };
  const [lines, fleet, hours, nodes] = await Promise.all([
    fetchAll("v1/lines", { ...period, ...filtersOf(route), limit: "2000" }, 10),
    fetchJson("v1/fleet", { ...period, granularity: "total" }),
    fetchIfAllowed("v1/hours", period),
    span.count > 1 ? { response: null } : settle(fetchIfAllowed("v1/nodes", { ...period, limit: "2000" })),
  ]);
  return { ...span, lines, fleet, hours, nodes };
}

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
  const { rows, end } = await fetchJson("v1/fleet", { window: "6h", cluster: route.query["cluster"] });
  return rows.at(-1)?.start ?? instant(Date.parse(end) - HOUR);
}

export function Hour() {
  const route = useRoute();
  const zone = useZone();
  const requestKey = JSON.stringify([route.name, route.query["hours"], route.query["cluster"], filtersOf(route)]);
  const request = useFetch(requestKey, async () => {
    if (route.name !== "") return fetchHour(route);
    go(linkTo(route, "hour", await latest(route)));
    return undefined;
  });
  const span = spanOf(route);
  if (route.name !== "" && span === null)
    return <ErrorMessage error={new Error(`${route.name} is not a full hour.`)} />;
  const start = span === null ? "Latest hour" : moment(span.start, zone);
  return (
    <View title={span !== null && span.count > 1 ? `${start}, ${span.count} hours` : start} request={request}>
      {(viewData) => viewData && <Shown {...viewData} />}
    </View>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const { fleet, lines } = props;
  const { totals } = fleet;
  const open = lines.rows.find((line) => lineKey(line) === route.query["line"]);
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
      {fleet.coverage.hours_complete > 0 && (
        <dl class="stats">
          <Stat name="Node cost" value={money(totals.node_cost_usd, fleet.currency)} testId="node-cost" />
          {partsOf([totals], PARTS).map((part) => (
            <Stat
              key={part.key}
              name={part.name}
              value={money(totals[part.key], fleet.currency)}
              note={part.meaning}
              testId={part.key}
            />
          ))}
        </dl>
      )}
      <UnpricedNote totals={totals} />
      <Status {...props} />
      {hasCauses(lines.rows) && (
        <Section title="Why a part is unmeasured">
          <Causes lines={lines.rows} hours={props.hours?.rows ?? []} />
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
              cluster: route.query["cluster"],
              ...filtersOf(route),
              granularity: "hour",
              group_by: "business_unit,namespace,workload_kind,workload,pod,node,resource",
            }}
            name="pods"
          />
        }
      >
        {lines.rows.length === 0 ? (
          <Empty>{nothing(fleet)}</Empty>
        ) : (
          <Lines rows={lines.rows} areSeveral={step > HOUR} />
        )}
        {lines.cursor !== null && <p class="note">Not all pods are shown. Select a business unit.</p>}
      </Section>
      <Optional side={props.nodes}>
        {(nodes) =>
          nodes !== null &&
          nodes.rows.length > 0 && (
            <Section title="Nodes">
              <NodeTable rows={nodes.rows} />
            </Section>
          )
        }
      </Optional>
      {open && <Why line={open} hour={hourOf(props, open)} close={() => go(changed(route, { line: "" }))} />}
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

function nothing({ coverage }: FleetResponse): string {
  if (coverage.hours_expected === 0) return "No data yet: the hour has not ended.";
  return coverage.hours_complete === 0 ? "No data: the hour is missing or incomplete." : "No pod held a GPU.";
}

function keptQuery(route: Route): Record<string, string> {
  return Object.fromEntries(Object.entries(route.query).filter(([key]) => key in FILTERS || key === "hours"));
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
          {key} <Name>{route.query[key] ?? ""}</Name>{" "}
          <a href={changed(route, { [key]: "" })} aria-label={`Remove filter ${key}`}>
            ×
          </a>
        </span>
      ))}
      . The totals above are for the whole fleet.
    </p>
  );
}

function Status({ hours }: ViewData) {
  const zone = useZone();
  const tableRows = hours?.rows.filter((row) => row.status !== "complete" || row.notes.length > 0) ?? [];
  if (tableRows.length === 0) return null;
  return (
    <Section title="Notes">
      <ul class="notes">
        {tableRows.map((row) => (
          <li key={`${row.cluster} ${row.hour}`}>
            <Name>{row.cluster}</Name>, {moment(row.hour, zone)}: <strong>{row.status}</strong>
            {row.notes.length > 0 && (
              <ul>
                {joinPriced(row.notes).map((note) => (
                  <li key={note}>{note}</li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}
