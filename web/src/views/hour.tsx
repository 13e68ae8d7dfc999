// An hour (or some) down to pods: what each held, at which price, seen on which rung; and why a figure is what it is.

import {
  ask,
  askAll,
  askIfAllowed,
  type FleetAnswer,
  type HoursAnswer,
  type Line,
  type NodeRow,
  type Rows,
} from "../api";
import { exactMoney, gpuHours, HOUR, instant, money, moment, percent } from "../format";
import { changed, go, useAnswer, useRoute, useZone } from "../hooks";
import { PARTS, partsOf } from "../identity";
import { DownloadButton, Empty, Failed, Name, Section, Stat, Table, Waiting } from "../parts";
import { exactly, linkTo, type Route } from "../route";
import { lineKey, Why } from "./why";

const FILTERS: Record<string, string> = {
  unit: "business_unit",
  namespace: "namespace",
  workload: "workload",
  node: "node",
  pool: "node_pool",
};

interface Answers {
  start: string;
  end: string;
  lines: Rows<Line>;
  fleet: FleetAnswer;
  hours: HoursAnswer | null;
  nodes: Rows<NodeRow> | null;
}

function spanOf(route: Route): { start: string; end: string; count: number } | null {
  const first = Date.parse(route.name);
  const count = Math.min(48, Math.max(1, Number(route.query["hours"] ?? 1) || 1));
  if (Number.isNaN(first) || first % HOUR !== 0) return null;
  return { start: instant(first), end: instant(first + count * HOUR), count };
}

async function askHour(route: Route): Promise<Answers | null> {
  const span = spanOf(route);
  if (span === null) return null;
  const period = { start: span.start, end: span.end, cluster: route.query["cluster"] };
  const [lines, fleet, hours, nodes] = await Promise.all([
    askAll<Line, Rows<Line>>("v1/lines", { ...period, ...filtersOf(route), limit: "2000" }, 10),
    ask<FleetAnswer>("v1/fleet", { ...period, granularity: "total" }),
    askIfAllowed<HoursAnswer>("v1/hours", period),
    span.count > 1 ? null : askIfAllowed<Rows<NodeRow>>("v1/nodes", { ...period, limit: "2000" }),
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

/** The address `#/hour` alone: the newest hour that is known. */
async function latest(route: Route): Promise<string> {
  const { rows, end } = await ask<FleetAnswer>("v1/fleet", { window: "6h", cluster: route.query["cluster"] });
  return rows.at(-1)?.start ?? instant(Date.parse(end) - HOUR);
}

export function Hour() {
  const route = useRoute();
  const zone = useZone();
  const question = JSON.stringify([route.name, route.query["hours"], route.query["cluster"], filtersOf(route)]);
  const asked = useAnswer(question, async () => {
    if (route.name !== "") return askHour(route);
    go(linkTo(route, "hour", await latest(route)));
    return undefined;
  });
  const span = spanOf(route);
  if (route.name !== "" && span === null) return <Failed error={new Error(`${route.name} is no full hour.`)} />;
  return (
    <>
      <h1>
        {span === null
          ? "The last hour"
          : span.count === 1
            ? moment(span.start, zone)
            : `${moment(span.start, zone)} and ${span.count - 1} hours more`}
      </h1>
      <Waiting asked={asked}>{(answers) => answers && <Shown {...answers} />}</Waiting>
    </>
  );
}

function Shown(props: Answers) {
  const route = useRoute();
  const { fleet, lines } = props;
  const { totals } = fleet;
  const open = lines.rows.find((line) => lineKey(line) === route.query["line"]);
  const step = Date.parse(props.end) - Date.parse(props.start);
  const to = (start: number) => linkTo(route, "hour", instant(start), { ...own(route), line: "" });
  return (
    <>
      <nav class="steps" aria-label="Hours">
        <a href={to(Date.parse(props.start) - step)} rel="prev">
          ← before
        </a>{" "}
        <a href={to(Date.parse(props.end))} rel="next">
          after →
        </a>
      </nav>
      <Filters />
      <Status {...props} />
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
            file="pods.csv"
          />
        }
      >
        {lines.rows.length === 0 ? <Empty>{nothing(fleet)}</Empty> : <Lines {...props} />}
        {lines.cursor !== null && <p class="note">There are more pods than can be shown: choose a business unit.</p>}
      </Section>
      {props.nodes !== null && props.nodes.rows.length > 0 && (
        <Section title="Nodes">
          <NodeTable rows={props.nodes.rows} />
        </Section>
      )}
      {open && <Why line={open} notes={notesOf(props, open)} close={() => go(changed(route, { line: "" }))} />}
    </>
  );
}

function nothing({ coverage }: FleetAnswer): string {
  if (coverage.hours_expected === 0) return "This is not over yet: it has no figures.";
  return coverage.hours_complete === 0
    ? "Nothing is known of this: it is missing or incomplete."
    : "No pod held a GPU.";
}

function own(route: Route): Record<string, string> {
  return Object.fromEntries(Object.entries(route.query).filter(([key]) => key in FILTERS || key === "hours"));
}

function notesOf({ hours }: Answers, line: Line): string[] | null {
  if (hours === null) return null;
  return hours.rows.find((row) => row.hour === line.hour && row.cluster === line.cluster)?.notes ?? [];
}

function Filters() {
  const route = useRoute();
  const set = Object.keys(FILTERS).filter((key) => route.query[key] !== undefined);
  if (set.length === 0) return null;
  return (
    <p class="filters">
      Pods of{" "}
      {set.map((key) => (
        <span key={key} class="filter">
          {key} <Name>{route.query[key] ?? ""}</Name>{" "}
          <a href={changed(route, { [key]: "" })} aria-label={`Without the filter on ${key}`}>
            ×
          </a>
        </span>
      ))}
      ; the sums above are the fleet's.
    </p>
  );
}

function Status({ hours }: Answers) {
  const zone = useZone();
  const told = hours?.rows.filter((row) => row.status !== "complete" || row.notes.length > 0) ?? [];
  if (told.length === 0) return null;
  return (
    <Section title="Notes">
      <ul class="notes">
        {told.map((row) => (
          <li key={`${row.cluster} ${row.hour}`}>
            <Name>{row.cluster}</Name>, {moment(row.hour, zone)}: <strong>{row.status}</strong>
            {row.notes.length > 0 && (
              <ul>
                {row.notes.map((note) => (
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

function Lines({ lines, start, end }: Answers) {
  const route = useRoute();
  const zone = useZone();
  const isLong = Date.parse(end) - Date.parse(start) > HOUR;
  const why = (key: "allocated_usd" | "effective_usd" | "waste_usd" | "unmeasured_usd") => ({
    key,
    title: key.replace("_usd", ""),
    isFigure: true,
    cell: (line: Line) => (
      <a href={changed(route, { line: lineKey(line) })} aria-label={`${money(line[key], line.currency)}: why?`}>
        {money(line[key], line.currency)}
      </a>
    ),
    by: (line: Line) => line[key],
  });
  const link = (key: string, value: string) => (
    <a href={changed(route, { [key]: value })}>
      <Name>{value}</Name>
    </a>
  );
  return (
    <Table
      name="lines"
      caption="Pods and what they held; click a figure to see why it is what it is"
      sort="-allocated_usd"
      most={100}
      rows={lines.rows}
      rowKey={(line) => `${line.cluster} ${lineKey(line)}`}
      columns={[
        ...(isLong
          ? [
              {
                key: "hour",
                title: "Hour",
                cell: (line: Line) => moment(line.hour, zone),
                by: (line: Line) => line.hour,
              },
            ]
          : []),
        { key: "pod", title: "Pod", cell: (line) => <Name>{line.pod}</Name>, by: (line) => line.pod },
        {
          key: "business_unit",
          title: "Business unit",
          cell: (line) => link("unit", line.business_unit),
          by: (line) => line.business_unit,
        },
        {
          key: "namespace",
          title: "Namespace",
          cell: (line) => link("namespace", line.namespace),
          by: (line) => line.namespace,
        },
        { key: "node", title: "Node", cell: (line) => link("node", line.node), by: (line) => line.node },
        why("allocated_usd"),
        why("effective_usd"),
        why("waste_usd"),
        why("unmeasured_usd"),
        {
          key: "allocated_gpu_hours",
          title: "GPU-hours",
          isFigure: true,
          cell: (line) => gpuHours(line.allocated_gpu_hours),
          by: (line) => line.allocated_gpu_hours,
        },
        { key: "units", title: "Held", cell: (line) => `${line.units} × ${line.resource}`, by: (line) => line.units },
        {
          key: "gpu_share",
          title: "Share",
          isFigure: true,
          cell: (line) => gpuHours(line.gpu_share),
          by: (line) => line.gpu_share,
        },
        {
          key: "utilization",
          title: "Used",
          isFigure: true,
          cell: (line) => percent(line.utilization),
          by: (line) => line.utilization,
        },
        {
          key: "utilization_source",
          title: "Rung",
          cell: (line) => line.utilization_source,
          by: (line) => line.utilization_source,
        },
        {
          key: "gpu_hourly_usd",
          title: "Price",
          isFigure: true,
          cell: (line) => exactMoney(line.gpu_hourly_usd, line.currency),
          by: (line) => line.gpu_hourly_usd,
        },
        {
          key: "price_source",
          title: "Source",
          cell: (line) => line.price_source || "unknown",
          by: (line) => line.price_source,
        },
      ]}
    />
  );
}

function NodeTable({ rows }: { rows: readonly NodeRow[] }) {
  const route = useRoute();
  const parts = partsOf(rows, PARTS);
  return (
    <Table
      name="nodes"
      caption="Nodes: what each cost, and what became of it"
      sort="-node_cost_usd"
      rows={rows}
      rowKey={(row) => `${row.cluster} ${row.kind} ${row.node} ${row.node_pool}`}
      columns={[
        {
          key: "node",
          title: "Node",
          cell: (row) => (
            <a href={linkTo(route, "nodes", "", { node: row.node })}>
              <Name>{row.node}</Name>
            </a>
          ),
          by: (row) => row.node,
        },
        { key: "node_pool", title: "Pool", cell: (row) => <Name>{row.node_pool}</Name>, by: (row) => row.node_pool },
        {
          key: "instance_type",
          title: "Type",
          cell: (row) => (row.kind === "node" ? row.instance_type : row.kind),
          by: (row) => row.instance_type,
        },
        {
          key: "price_source",
          title: "Price source",
          cell: (row) => row.price_source || "unknown",
          by: (row) => row.price_source,
        },
        {
          key: "node_cost_usd",
          title: "Node cost",
          isFigure: true,
          cell: (row) => money(row.node_cost_usd, row.currency),
          by: (row) => row.node_cost_usd,
        },
        ...parts.map((part) => ({
          key: part.key,
          title: part.name,
          isFigure: true,
          cell: (row: NodeRow) => money(row[part.key], row.currency),
          by: (row: NodeRow) => row[part.key],
        })),
      ]}
    />
  );
}
