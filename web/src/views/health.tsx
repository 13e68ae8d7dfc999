// Data health: which hours and sources are complete, what is missing from the figures, and what to check.

import {
  type CostRow,
  type CostsResponse,
  fetchAll,
  fetchHours,
  ifAllowed,
  fetchJson,
  type HourRow,
  type HoursResponse,
  type Line,
  MAX_BY_HOUR,
  type RestatementsResponse,
  type Settled,
  settle,
} from "../api";
import { coverageColor, STATUS_COLORS } from "../charts/colors";
import { Grid, type Painted } from "../charts/grid";
import { filterQuery } from "../explore";
import { figureColumn, groupColumn, moneyColumn, nameColumn } from "../columns";
import { HOUR, instant, measuredShare, money, moment, percent, ratio, roundHours, roundMoney } from "../format";
import {
  countsOf,
  lackingStatus,
  endOfGroup,
  findingsOf,
  hoursToCheck,
  noteGroups,
  restatedOf,
  type Restated,
  STATUSES,
  statusOf,
} from "../health";
import { GLOSSARY, type Term } from "../glossary";
import { amountTitle } from "../identity";
import { go, useFetch, useRoute, useZone } from "../hooks";
import {
  Columns,
  DoctorCommand,
  Empty,
  HatchSwatch,
  Help,
  Name,
  NoteText,
  Optional,
  Section,
  Stat,
  Swatch,
  Table,
  View,
} from "../parts";
import { exactly, linkTo, periodOf } from "../route";
import { bucketsOf, timeTicks } from "../series";
import { inPeriod } from "../unmeasured";
import { CauseItem, Check } from "./causes";

interface ViewData {
  clusters: CostsResponse;
  unmeasured: CostRow[];
  unpriced: CostRow[];
  hours: HoursResponse | null;
  /** Of the hours that show why GPU-hours are unmeasured. */
  pods: Line[];
  restatements: Settled<RestatementsResponse | null>;
}

const NOTHING_ALLOCATED = "No GPU-hour of this period is known to be allocated, so nothing is known to be missing.";
const MOST_NOTES = 30;
const MOST_STRIPS = 20;
const WORST = 20;
const MOST_HOURS = 8;

export function Health() {
  const route = useRoute();
  const { cluster } = route.query;
  const requestKey = JSON.stringify([periodOf(route), cluster]);
  const request = useFetch(requestKey, async (): Promise<ViewData> => {
    const clusters = await fetchJson("v1/costs", {
      ...periodOf(route),
      cluster,
      granularity: "total",
      group_by: "cluster",
    });
    const period = { start: clusters.start, end: clusters.end, cluster };
    const worst = async (group_by: string, figure: "unmeasured_gpu_hours" | "unpriced_gpu_hours") => {
      if (!clusters.totals[figure]) return [];
      const query = { ...period, granularity: "total", group_by, sort: `-${figure}`, limit: `${WORST}` } as const;
      return (await fetchAll("v1/costs", query, 1)).rows.filter((row) => row[figure] > 0);
    };
    const [unmeasured, unpriced, hours, restatements] = await Promise.all([
      worst("cluster,business_unit,namespace,workload", "unmeasured_gpu_hours"),
      worst("cluster,node_pool,instance_type,capacity_type", "unpriced_gpu_hours"),
      fetchHours(period),
      settle(ifAllowed(fetchAll("v1/restatements", period))),
    ]);
    const pods = clusters.totals.unmeasured_gpu_hours && hours !== null ? await fetchPods(period) : [];
    return { clusters, unmeasured, unpriced, hours, pods, restatements };
  });
  return (
    <View title="Data health" request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

async function fetchPods(period: { start: string; end: string; cluster: string | undefined }): Promise<Line[]> {
  const start = instant(Math.max(Date.parse(period.start), Date.parse(period.end) - MAX_BY_HOUR));
  const { rows } = await fetchAll("v1/costs", { ...period, start, granularity: "hour", group_by: "cluster" });
  const pods = await Promise.all(
    hoursToCheck(rows)
      .slice(0, MOST_HOURS)
      .map(({ cluster, start }) => {
        const hour = { start, end: instant(Date.parse(start) + HOUR) };
        return fetchAll("v1/lines", { ...hour, cluster: exactly(cluster), limit: "2000" }, 10);
      }),
  );
  return pods.flatMap((response) => response.rows);
}

function Shown(props: ViewData) {
  const route = useRoute();
  const { clusters, hours, restatements } = props;
  const { coverage, totals } = clusters;
  const rows = hours?.rows ?? [];
  const restated = restatedOf(
    ("response" in restatements ? (restatements.response?.rows ?? []) : []).filter((row) => !row.adjustment),
  );
  const counts = countsOf(rows, restated);
  return (
    <>
      <dl class="stats">
        <Stat
          name="Hours with figures"
          value={percent(ratio(coverage.hours_complete, coverage.hours_expected))}
          note={
            <>
              {coverage.hours_complete} of {coverage.hours_expected} cluster-hours <Help term="cluster-hour" />
            </>
          }
          testId="hours-complete"
        />
        <Stat
          name="Measured"
          value={percent(totals.allocated_gpu_hours ? measuredShare(totals) : null)}
          note="of allocated GPU-hours, as in the overview"
          testId="measured"
        />
        <Stat
          name="GPU exporter scrapes"
          value={percent(coverage.utilization)}
          note={
            <>
              of those expected, also of GPUs that no pod held <Help term="coverage" />
            </>
          }
          testId="scrapes"
        />
        {(["missing", "closed", "incomplete", "provisional", "restated"] as const)
          .filter((status) => status !== "closed" || counts.closed > 0)
          .map((status) => (
            <Stat
              key={status}
              name={`${status[0]?.toUpperCase()}${status.slice(1)} hours`}
              value={hours === null ? "–" : String(counts[status])}
              note={STATUSES[status]}
              testId={`hours-${status}`}
            />
          ))}
        <Stat
          name={amountTitle("unmeasured_usd")}
          value={roundMoney(totals.unmeasured_usd, clusters.currency)}
          note={`${roundHours(totals.unmeasured_gpu_hours)} GPU-hours, neither effective nor waste`}
          testId="unmeasured-cost"
        />
        <Stat
          name="Unpriced GPU-hours"
          value={roundHours(totals.unpriced_gpu_hours)}
          note="no amount includes them"
          testId="unpriced-hours"
        />
      </dl>
      <Columns
        left={
          <>
            <Section title="Coverage by hour and source">
              {hours === null ? (
                <Empty>Your role may not see hours, or the period is longer than 100 days. Select a shorter one.</Empty>
              ) : rows.length === 0 ? (
                <Empty>No hour of this period has ended. Select an earlier period.</Empty>
              ) : (
                <Coverage {...hours} restated={restated} />
              )}
            </Section>
            <Doctor rows={rows} clusters={clusters.rows} pods={props.pods} unmeasured={props.unmeasured} />
          </>
        }
        right={
          <>
            <Missing {...props} />
            <Section title="Restatements">
              <Optional side={restatements}>{(list) => <Restatements list={list} />}</Optional>
            </Section>
            <Section title="Notes on hours">
              <Notes rows={rows} />
            </Section>
          </>
        }
      />
      <p class="note">
        <a href={linkTo(route, "hour")}>The newest hour, pod by pod</a>
      </p>
    </>
  );
}

const FILLS = { ...STATUS_COLORS, missing: "missing", closed: "missing" } as const;

function Coverage({ rows, start, end, restated }: HoursResponse & { restated: Restated }) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(start, end, "hour");
  const clusters = [...new Set(rows.map((row) => row.cluster))].sort();
  const shownStatuses = (["complete", "provisional", "restated", "pending", "incomplete"] as const).filter(
    (status) => status !== "pending" || rows.some((row) => row.status === status),
  );
  return (
    <>
      <p class="scale">
        {shownStatuses.map((status) => (
          <span key={status}>
            <Swatch color={FILLS[status]} isSolid /> {status === "pending" ? "being computed" : status}
            {status in GLOSSARY && <Help term={status as Term} />}
          </span>
        ))}
        <span>
          <HatchSwatch /> missing{rows.some((row) => lackingStatus(row) === "closed") && " or closed"}
        </span>
      </p>
      <p class="scale">
        <span>
          Coverage <Help term="coverage" />:
        </span>
        <span>
          <Swatch color={coverageColor(1)} isSolid /> more than 99% of the expected scrapes
        </span>
        <span>
          {[0.98, 0.75, 0.5, 0.25, 0].map((share) => (
            <Swatch key={share} color={coverageColor(share)} isSolid />
          ))}{" "}
          from some to all missing
        </span>
      </p>
      <p class="note">
        The status is of the whole hour: it is complete from the coverage threshold of the settings on, also if some
        scrapes are missing.
      </p>
      {clusters.slice(0, MOST_STRIPS).map((cluster, index) => {
        const byHour = new Map(
          rows.filter((row) => row.cluster === cluster).map((row) => [Date.parse(row.hour), row] as const),
        );
        const at = (column: number) => byHour.get(buckets.starts[column] ?? 0);
        return (
          <article class="node" key={cluster} data-testid="coverage-strip">
            <h3>
              Cluster <Name>{cluster}</Name>
            </h3>
            <Grid
              label={`Coverage of cluster ${cluster} by hour: status, allocation, utilization`}
              rows={3}
              columns={buckets.starts.length}
              rowHeight={20}
              dataKey={rows}
              {...(index === 0 && { hint: "an hour of the strip" })}
              labels={["Status", "Allocation", "Utilization"]}
              ticks={(most) => timeTicks(buckets, zone, most)}
              paint={(row, column) => paint(row, at(column), restated)}
              describe={(_row, column) => (
                <Described row={at(column)} restated={restated} when={moment(buckets.starts[column] ?? 0, zone)} />
              )}
              onOpen={(_row, column) => go(linkTo(route, "hour", instant(buckets.starts[column] ?? 0), { cluster }))}
            />
          </article>
        );
      })}
      {clusters.length > MOST_STRIPS && <p class="note">{clusters.length - MOST_STRIPS} more. Select a cluster.</p>}
    </>
  );
}

function paint(source: number, row: HourRow | undefined, restated: Restated): Painted {
  if (row === undefined) return { fill: null };
  if (source === 0) return { fill: FILLS[statusOf(row, restated)] };
  if (row.status === "pending") return { fill: FILLS.pending };
  const share = source === 1 ? row.coverage?.allocation : row.coverage?.utilization;
  return { fill: share === null || share === undefined ? "missing" : coverageColor(share) };
}

function Described({ row, restated, when }: { row: HourRow | undefined; restated: Restated; when: string }) {
  if (row === undefined) return <>{when}: not expected</>;
  const status = statusOf(row, restated);
  return (
    <>
      <strong>{when}</strong> {status === "pending" ? "being computed" : status}: {STATUSES[status]}. Allocation
      (kube-state-metrics): {percent(row.coverage?.allocation)}, utilization (GPU exporter):{" "}
      {percent(row.coverage?.utilization)}
      {row.version !== null && `, version ${row.version}`}
      {row.notes.length > 0 && `. ${row.notes.join(". ")}`}
    </>
  );
}

/** Which of the doctor's checks to look at first. */
function Doctor(props: {
  rows: readonly HourRow[];
  clusters: readonly CostRow[];
  pods: readonly Line[];
  unmeasured: readonly CostRow[];
}) {
  const route = useRoute();
  const zone = useZone();
  const { rows, clusters, pods, unmeasured } = props;
  const found = findingsOf(rows, new Map(clusters.map((row) => [row.group["cluster"] ?? "", row])), pods);
  const causes = found.flatMap(({ cause }) => cause ?? []);
  const findings = found
    .map((entry) => ({
      ...entry,
      period: entry.cause ? inPeriod(entry.cause, causes, unmeasured) : { gpuHours: -1, usd: -1 },
    }))
    .sort((left, right) => (right.period.usd ?? 0) - (left.period.usd ?? 0));
  return (
    <Section title="What to check">
      {findings.length === 0 ? (
        <Empty>
          {rows.some(({ status }) => status === "complete" || status === "provisional")
            ? "Nothing is missing in this period: every hour has all scrapes, a measurement and a price."
            : "No hour of this period has figures, so there is nothing to check yet. Select another period."}
        </Empty>
      ) : (
        <ul class="cards" data-testid="findings">
          {findings.map(({ cluster, check, finding, hour, cause, period }) =>
            cause === undefined ? (
              <li key={`${cluster} ${finding}`} class="item">
                <div class="amount" />
                <div>
                  <Name>{cluster}</Name>
                  {hour !== undefined && (
                    <>
                      , <a href={linkTo(route, "hour", hour, { cluster })}>{moment(hour, zone)}</a>
                    </>
                  )}
                  : {finding} <Check name={check} cluster={cluster} />
                </div>
              </li>
            ) : (
              <CauseItem key={`${cluster} ${finding} ${hour ?? ""}`} cause={cause} period={period} hasHour />
            ),
          )}
        </ul>
      )}
      {findings.some(({ cause }) => cause !== undefined) && (
        <p class="note">
          Causes are those of the worst and of the newest hour of each cluster, whose pods were read. Amounts and
          GPU-hours are what the same workloads have without a measurement in the whole period; those of gaps are of
          their hour.
        </p>
      )}
      <p>
        To check the metrics of every cluster now: <DoctorCommand /> <Help term="doctor" />
      </p>
    </Section>
  );
}

function Notes({ rows }: { rows: readonly HourRow[] }) {
  const route = useRoute();
  const zone = useZone();
  const groups = noteGroups(rows);
  if (groups.length === 0) return <Empty>No hour of this period has a note.</Empty>;
  return (
    <ul class="notes" data-testid="note-groups">
      {groups.slice(0, MOST_NOTES).map((group) => {
        const open = { cluster: group.cluster };
        const first = <a href={linkTo(route, "hour", instant(group.first), open)}>{moment(group.first, zone)}</a>;
        return (
          <li key={`${group.cluster} ${group.note}`}>
            <Name>{group.cluster}</Name>, {group.hours === 1 ? "1 hour" : `${group.hours} hours`}, {first}
            {group.hours > 1 && ` to ${moment(endOfGroup(group), zone)}`}: <NoteText {...group} />
          </li>
        );
      })}
      {groups.length > MOST_NOTES && <li>and {groups.length - MOST_NOTES} more</li>}
    </ul>
  );
}

function Missing({ clusters, unmeasured, unpriced }: ViewData) {
  const route = useRoute();
  const { currency } = clusters;
  return (
    <>
      <Section title="Unmeasured GPU-hours">
        {unmeasured.length === 0 ? (
          <Empty>
            {clusters.totals.allocated_gpu_hours
              ? "Every allocated GPU-hour has a utilization measurement."
              : NOTHING_ALLOCATED}
          </Empty>
        ) : (
          <>
            <p class="note">
              No series of the GPU exporter names these pods, or its samples are missing. Amounts count as unmeasured,
              neither effective nor waste. Causes: the exporter does not run on the node, does not map its devices to
              pods, or its signal does not work for MIG slices. The notes on hours name them.
            </p>
            <Table
              name="unmeasured"
              caption="Workloads with unmeasured GPU-hours"
              sort="-unmeasured_gpu_hours"
              rows={unmeasured}
              rowKey={(row) => Object.values(row.group).join("\n")}
              columns={[
                groupColumn("workload", "Workload", ({ group }: CostRow) =>
                  linkTo(route, "explore", "", {
                    by: "workload",
                    measure: "unmeasured_usd",
                    ...filterQuery(
                      Object.entries(group).map(([dimension, name]) => ({ dimension, name, isExcluded: false })),
                      [],
                    ),
                  }),
                ),
                moneyColumn("unmeasured_usd", currency),
                figureColumn(
                  "unmeasured_gpu_hours",
                  "GPU-hours",
                  (row: CostRow) => row.unmeasured_gpu_hours,
                  roundHours,
                ),
                groupColumn("namespace", "Namespace"),
                groupColumn("business_unit", "Business unit"),
                groupColumn("cluster", "Cluster"),
              ]}
            />
          </>
        )}
      </Section>
      <Section title="GPU-hours without a price">
        {unpriced.length === 0 ? (
          <Empty>
            {clusters.totals.allocated_gpu_hours ? "Every allocated GPU-hour has a price." : NOTHING_ALLOCATED}
          </Empty>
        ) : (
          <>
            <p class="note">
              No price source knows these nodes. Set a price with <code>gpucost prices set</code>, or give the nodes
              their instance type, zone and capacity type as labels. The hours are rated again when a price arrives.
            </p>
            <Table
              name="unpriced"
              caption="Nodes without a price"
              sort="-unpriced_gpu_hours"
              rows={unpriced}
              rowKey={(row) => Object.values(row.group).join("\n")}
              columns={[
                groupColumn("instance_type", "Instance type"),
                figureColumn("unpriced_gpu_hours", "GPU-hours", (row: CostRow) => row.unpriced_gpu_hours, roundHours),
                groupColumn("capacity_type", "Capacity type"),
                groupColumn("node_pool", "Node pool"),
                groupColumn("cluster", "Cluster"),
              ]}
            />
          </>
        )}
      </Section>
    </>
  );
}

type RestatementRow = RestatementsResponse["rows"][number];

function Restatements({ list }: { list: RestatementsResponse | null }) {
  const route = useRoute();
  const zone = useZone();
  if (list === null) return <Empty>Your role may not see restatements.</Empty>;
  if (list.rows.length === 0) return <Empty>No hour of this period was restated.</Empty>;
  const amount = list.rows.every(({ after }) => after.node_cost_usd === null) ? "allocated_usd" : "node_cost_usd";
  const currency = list.rows[0]?.currency ?? "USD";
  return (
    <Table
      name="restatements"
      caption="Hours whose figures were replaced"
      sort="-restated_at"
      rows={list.rows}
      rowKey={(row) => `${row.cluster} ${row.hour} ${row.version}`}
      columns={[
        {
          key: "hour",
          title: "Hour",
          cell: (row) => (
            <a href={linkTo(route, "hour", row.hour, { cluster: row.cluster })}>{moment(row.hour, zone)}</a>
          ),
          by: (row) => row.hour,
        },
        figureColumn(
          "before",
          `${amountTitle(amount)} before`,
          (row: RestatementRow) => row.before[amount],
          (usd) => money(usd, currency),
        ),
        figureColumn(
          "after",
          `${amountTitle(amount)} after`,
          (row: RestatementRow) => row.after[amount],
          (usd) => money(usd, currency),
        ),
        nameColumn("cluster", "Cluster", (row: RestatementRow) => row.cluster),
        { key: "version", title: "Version", isFigure: true, cell: (row) => row.version, by: (row) => row.version },
        {
          key: "restated_at",
          title: "Restated",
          cell: (row) => moment(row.restated_at, zone),
          by: (row) => row.restated_at,
        },
        {
          key: "reason",
          title: "Reason",
          cell: (row) => (
            <span class="wide">
              <Name>{row.reason}</Name>
              {row.adjustment && " (pending adjustment of a closed month, in no figure)"}
            </span>
          ),
        },
        {
          key: "units",
          title: "Business units",
          cell: (row) => <Name>{row.business_units.map((unit) => unit.business_unit).join(", ")}</Name>,
        },
      ]}
    />
  );
}
