// Node pools and nodes: each GPU as a strip over time, with the pods that held it and their utilization.

import {
  fetchHours,
  fetchIfAllowed,
  fetchJson,
  type HoursResponse,
  type NodeRow,
  type Recommendation,
  type RecommendationsResponse,
  settle,
  type Settled,
} from "../api";
import { PART_COLORS } from "../charts/colors";
import { Grid, type Painted } from "../charts/grid";
import {
  clockOf,
  counted,
  dateOf,
  DAY,
  type Figure,
  hardwareOf,
  HOUR,
  instant,
  knownFigure,
  measuredShare,
  money,
  moment,
  percent,
  roundHours,
  roundMoney,
  shortNode,
  instanceType,
} from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { type Cell, stripsOf } from "../lanes";
import { clusterColumns, figureColumn, moneyColumn, nameColumn, nodeLinkColumn, unmeasuredColumns } from "../columns";
import {
  Columns,
  Empty,
  ErrorMessage,
  Name,
  NotFound,
  Section,
  SplitPolicy,
  Stat,
  Swatch,
  Table,
  useFolded,
  View,
} from "../parts";
import { AMOUNTS, amountTitle } from "../identity";
import { stepsFor } from "../next-step";
import { fetchNodeHours, type NodeHours } from "../node-hours";
import {
  freeReason,
  heldGpuHours,
  isReserved,
  LEAST_HOURS,
  type PoolWithoutPods,
  type Removal,
  removalGroups,
  removalsOf,
  strandedReason,
  sumOf,
  utilizationOf,
} from "../removal";
import { clusterOf, linkTo, periodOf, type Route } from "../route";
import { additionsFor, alternativesFor, alternativeText, basisOf, commitmentFor, plannedFor } from "../savings";
import { type Buckets, bucketsOf, endOf, timeTicks } from "../series";
import { NothingSwatch, Scale } from "../charts/scale";
import { saved } from "./recommendations";

const MAX_NODES = 24;
const MAX_ON_PHONES = 4;
const MAX_REMOVALS = 5;
/** What a node's hours without pods cost in the period. */
const WITHOUT_PODS = "Cost without pods";

interface ViewData extends NodeHours {
  hours: HoursResponse | null;
  recommendations: Settled<RecommendationsResponse | null>;
}

async function fetchNodes(route: Route): Promise<ViewData> {
  const cluster = clusterOf(route);
  const { start, end } = await fetchJson("v1/costs", {
    ...periodOf(route),
    cluster,
    granularity: "total",
  });
  const [nodeHours, recommendations] = await Promise.all([
    fetchNodeHours({ start, end, cluster }),
    settle(fetchIfAllowed("v1/recommendations", { cluster })),
  ]);
  return { ...nodeHours, recommendations, hours: await fetchHours({ start: nodeHours.start, end, cluster }) };
}

/** The time that is shown, in words. */
const spanOf = ({ start, end }: ViewData) => (Date.parse(end) - Date.parse(start) <= DAY ? "one day" : "seven days");

/** The time that is shown, as the basis of amounts. */
function shownText({ start, end }: Pick<ViewData, "start" | "end">): string {
  const hours = Math.round((Date.parse(end) - Date.parse(start)) / HOUR);
  return hours > 48 ? `these ${counted(Math.ceil(hours / 24), "day")}` : `these ${counted(hours, "hour")}`;
}

export function Nodes() {
  const route = useRoute();
  const requestKey = JSON.stringify([periodOf(route), clusterOf(route)]);
  const request = useFetch(requestKey, () => fetchNodes(route));
  return (
    <View title={<Heading shown={request.isLoading ? undefined : request.response} />} request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

/** What is shown, and of which part of the period. */
function Heading({ shown }: { shown: ViewData | undefined }) {
  const { node, pool } = useRoute().query;
  const name = node ?? pool;
  return (
    <>
      {node !== undefined ? "Node" : pool !== undefined ? "Node pool" : "Nodes"}
      {name !== undefined && (
        <>
          {" "}
          <Name>{name}</Name>
        </>
      )}
      {shown?.isCut === true && `, last ${spanOf(shown).replace("one ", "")} of the period`}
    </>
  );
}

function Shown(props: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { pool, node } = route.query;
  const nodes = props.rows.filter((row) => row.kind === "node");
  const chosen = nodes.filter(
    (row) => (pool === undefined || row.node_pool === pool) && (node === undefined || row.node === node),
  );
  if (chosen.length === 0) return <Nothing {...props} />;
  const shown = `${moment(props.start, zone)} to ${moment(props.end, zone)}`;
  const note = (
    <p class={props.isCut ? "unpriced" : "note"} data-testid="nodes-period">
      {props.isCut ? (
        <>
          <strong>All figures are of {spanOf(props)}:</strong> {shown}, the last of the selected period.{" "}
          {spanOf(props) === "one day" && "The fleet is too large to show more."}
        </>
      ) : (
        shown
      )}
      {props.isPartial && " Not all hours are shown. Select a shorter period."}
    </p>
  );
  const all = <a href={changed(route, { pool: "", node: "", in: "" })}>All node pools</a>;
  if (node !== undefined)
    return (
      <>
        {note}
        <Summary {...props} rows={chosen} fleet={nodes} />
        <NextStep {...props} rows={chosen} fleet={nodes} />
        <Section title="GPUs by hour" aside={all}>
          <Strips {...props} rows={chosen} />
        </Section>
      </>
    );
  return (
    <>
      {note}
      <Columns
        left={
          <Section title="Which node to remove">
            <Removals {...props} rows={chosen} />
          </Section>
        }
        right={
          <Section title="Node pools" aside={pool !== undefined && all}>
            <Pools rows={chosen} />
          </Section>
        }
      />
      <Section title="GPUs by hour">
        <Strips {...props} rows={chosen} />
      </Section>
    </>
  );
}

/** Why there is nothing to show: no nodes, or none with the name in the URL. */
function Nothing({ rows, start, end }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { pool, node } = route.query;
  if (pool === undefined && node === undefined)
    return <Empty>No GPU nodes in this period. Select another period or cluster.</Empty>;
  const names = [node !== undefined && `node ${node}`, pool !== undefined && `node pool ${pool}`].filter(Boolean);
  return (
    <NotFound>
      There is no {names.join(" in ")}
      {clusterOf(route) !== undefined && ` in cluster ${clusterOf(route) ?? ""}`} from {moment(start, zone)} to{" "}
      {moment(end, zone)}. Select another period, or one of the{" "}
      {counted(new Set(rows.map((row) => `${row.cluster} ${row.node}`)).size, "node")} under Nodes.
    </NotFound>
  );
}

/** A node's own figures. */
function Summary({ rows, fleet, recommendations, ...period }: ViewData & { fleet: readonly NodeRow[] }) {
  const route = useRoute();
  const newest = rows.at(-1);
  if (newest === undefined) return null;
  const { currency } = newest;
  const usd = (key: "node_cost_usd" | "unallocated_usd" | "stranded_usd") => sumOf(rows.map((row) => row[key]));
  const hours = (key: "capacity_gpu_hours" | "unallocated_gpu_hours" | "stranded_gpu_hours") =>
    `${roundHours(sumOf(rows.map((row) => row[key])))} GPU-hours`;
  const cost = usd("node_cost_usd");
  const removal = removalsOf(fleet).find(({ node }) => node.node === newest.node && node.cluster === newest.cluster);
  const isUnplanned = plannedIn(recommendations, newest).length === 0 && !isReserved(newest);
  const { gpu_model: model, capacity_type: capacity, node_pool: pool, cluster } = newest;
  return (
    <>
      <p>
        {[instanceType(newest), model, capacity].filter(Boolean).join(", ")}, node pool{" "}
        <a href={linkTo(route, "nodes", "", { pool, cluster })}>
          <Name>{pool}</Name>
        </a>
        , cluster <Name>{cluster}</Name>, zone <Name>{newest.zone}</Name>. Price source: {newest.price_source || "none"}
        , <SplitPolicy name={newest.split_policy} />.
      </p>
      <dl class="stats">
        <Stat
          name={amountTitle("node_cost_usd")}
          value={roundMoney(cost, currency)}
          note={`${roundMoney(cost === null ? null : cost / rows.length, currency)} an hour, in ${counted(rows.length, "hour")}`}
          testId="node-cost"
        />
        <Stat
          name="Utilization"
          value={percent(utilizationOf(rows))}
          note={`of measured GPU-hours; ${roundHours(heldGpuHours(rows).allocated_gpu_hours)} of ${hours("capacity_gpu_hours")} allocated`}
          testId="node-utilization"
        />
        <Stat
          name={amountTitle("unallocated_usd")}
          value={roundMoney(usd("unallocated_usd"), currency)}
          note={hours("unallocated_gpu_hours")}
        />
        <Stat
          name={amountTitle("stranded_usd")}
          value={roundMoney(usd("stranded_usd"), currency)}
          note={hours("stranded_gpu_hours")}
          testId="node-stranded"
        />
        {removal !== undefined && (
          <Stat
            name={WITHOUT_PODS}
            value={roundMoney(removal.emptyUsd, currency)}
            note={
              <>
                {removal.emptyHours === 0
                  ? "It had pods in every hour. "
                  : `${removal.emptyHours} of ${counted(removal.hours, "hour")} without pods. `}
                {isUnplanned &&
                  removal.emptyHours > 0 &&
                  `${roundMoney(removal.emptyMonthlyUsd, currency)} a month at the rate of ${shownText(period)}. `}
                <Recommended recommendations={recommendations} node={newest} />
              </>
            }
            testId="node-removal"
          />
        )}
      </dl>
    </>
  );
}

/** What to do about the node's hours without pods. */
function NextStep(props: ViewData & { fleet: readonly NodeRow[] }) {
  const { rows, fleet, start, end } = props;
  const route = useRoute();
  const newest = rows.at(-1);
  const removal = removalsOf(fleet).find(({ node }) => node.node === newest?.node && node.cluster === newest.cluster);
  if (newest === undefined || removal === undefined) return null;
  const { emptyHours, hours } = removal;
  const steps = stepsFor(removal);
  const savings = linkTo(route, "savings", "", { kind: "consolidate", cluster: newest.cluster });
  return (
    <Section title={steps.length > 0 && emptyHours === hours ? "To remove this node" : "Next step"}>
      {emptyHours < hours && (
        <p>
          {emptyHours === 0
            ? "This node had pods in every hour, so its removal moves them."
            : `This node was without pods in ${emptyHours} of ${counted(hours, "hour")}.`}{" "}
          Whether pods of its pool fit on fewer nodes: <a href={savings}>Savings</a>.
        </p>
      )}
      {emptyHours === hours && steps.length === 0 && (
        <p>
          This node was without pods for {counted(hours, "hour")}. It may be starting for a pod that waits, so wait for{" "}
          {LEAST_HOURS} hours.
        </p>
      )}
      {Date.parse(end) - Date.parse(start) < 6 * DAY && emptyHours > 0 && <Weekdays {...props} />}
      {isReserved(newest) && <p>Its commitment is charged until it ends, also without the node.</p>}
      {steps.length > 0 && (
        <ul class="notes" data-testid="next-step">
          {steps.map(({ text, command }) => (
            <li key={text}>
              {text} {command !== undefined && <code class="command">{command}</code>}
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

/** The savings on offer for the nodes of a pool. Where there are some, their amounts are shown, and no others. */
function plannedIn(recommendations: ViewData["recommendations"], node: Pick<NodeRow, "cluster" | "node_pool">) {
  return plannedFor(rowsOf(recommendations), node);
}

/** What Savings recommends for nodes of a pool. */
function Recommended(props: {
  recommendations: ViewData["recommendations"];
  node: Pick<NodeRow, "cluster" | "node_pool" | "instance_type" | "capacity_type">;
}) {
  const route = useRoute();
  const { recommendations, node } = props;
  const rows = rowsOf(recommendations);
  const planned = plannedFor(rows, node);
  const additions = planned.length === 0 ? additionsFor(rows, node) : [];
  const commitment = planned.length + additions.length === 0 ? commitmentFor(rows, node) : undefined;
  const link = (row: Recommendation) => (
    <>
      <a
        href={linkTo(route, "savings", "", { kind: row.kind, cluster: row.subject.cluster })}
        data-testid="removal-recommendation"
      >
        <Name>{row.title}</Name>: {saved(row.saving.usd, row.currency)} a month
      </a>
      , from {basisOf(row)}
    </>
  );
  return (
    <>
      {planned.map((row) => (
        <span key={row.id}>{link(row)}. </span>
      ))}
      {additions.map((row) => (
        <span key={row.id}>Its pods wait for GPUs: {link(row)}. </span>
      ))}
      {commitment !== undefined && (
        <span data-testid="removal-commitment">
          Savings recommends a{" "}
          <a href={linkTo(route, "savings", "", { kind: "commitment" })}>
            commitment for {node.instance_type} on demand
          </a>
          : scale down first, and commit to the nodes that remain.{" "}
        </span>
      )}
      {alternativesFor(rows, node).map((row) => (
        <span key={row.id} data-testid="removal-alternative">
          Alternative ({alternativeText(row, rows)}): {link(row)}.{" "}
        </span>
      ))}
    </>
  );
}

const rowsOf = (recommendations: ViewData["recommendations"]) =>
  "response" in recommendations ? (recommendations.response?.rows ?? []) : [];

interface Pool {
  name: string;
  cluster: string;
  nodes: number;
  capacity: number | null;
  allocated_gpu_hours: number | null;
  unmeasured_gpu_hours: number | null;
  unallocated: number | null;
  stranded: number | null;
  node_cost_usd: number | null;
  waste_usd: number | null;
  unmeasured_usd: number | null;
}

function Pools({ rows }: { rows: readonly NodeRow[] }) {
  const route = useRoute();
  const currency = rows[0]?.currency ?? "USD";
  const pools = new Map<string, NodeRow[]>();
  for (const row of rows) {
    const key = JSON.stringify([row.cluster, row.node_pool]);
    const rowsOfKey = pools.get(key);
    if (rowsOfKey === undefined) pools.set(key, [row]);
    else rowsOfKey.push(row);
  }
  const sums = [...pools.values()].map((poolRows): Pool => ({
    name: poolRows[0]?.node_pool ?? "",
    cluster: poolRows[0]?.cluster ?? "",
    nodes: new Set(poolRows.map((row) => `${row.cluster}/${row.node}`)).size,
    capacity: sumOf(poolRows.map((row) => row.capacity_gpu_hours)),
    ...heldGpuHours(poolRows),
    unallocated: sumOf(poolRows.map((row) => row.unallocated_gpu_hours)),
    stranded: sumOf(poolRows.map((row) => row.stranded_gpu_hours)),
    node_cost_usd: sumOf(poolRows.map((row) => row.node_cost_usd)),
    waste_usd: sumOf(poolRows.map((row) => row.waste_usd)),
    unmeasured_usd: sumOf(poolRows.map((row) => row.unmeasured_usd)),
  }));
  return (
    <Table
      name="pools"
      caption="Node pools by node cost"
      sort="-node_cost_usd"
      rows={sums}
      rowKey={(pool) => `${pool.cluster} ${pool.name}`}
      columns={[
        nameColumn(
          "name",
          "Node pool",
          (pool: Pool) => pool.name,
          (pool: Pool) => linkTo(route, "nodes", "", { pool: pool.name, cluster: pool.cluster }),
        ),
        moneyColumn("node_cost_usd", currency),
        moneyColumn("waste_usd", currency),
        ...unmeasuredColumns(sums, currency),
        { key: "nodes", title: "Nodes", isFigure: true, cell: (pool) => pool.nodes, by: (pool) => pool.nodes },
        figureColumn("capacity", "Capacity GPU-hours", (pool: Pool) => pool.capacity, roundHours),
        figureColumn("allocated", "Allocated GPU-hours", (pool: Pool) => pool.allocated_gpu_hours, roundHours),
        figureColumn("unallocated", "Unallocated GPU-hours", (pool: Pool) => pool.unallocated, roundHours),
        figureColumn("stranded", "Stranded GPU-hours", (pool: Pool) => pool.stranded, roundHours),
        ...clusterColumns(sums, (pool) => pool.cluster),
      ]}
    />
  );
}

function Removals(props: ViewData) {
  const { rows, recommendations } = props;
  const route = useRoute();
  const zone = useZone();
  const removals = removalsOf(rows);
  const currency = rows[0]?.currency ?? "USD";
  const [first] = removals;
  if (first === undefined)
    return <Empty>No node of this period exists in its last hour. Select a period that ends later.</Empty>;
  const groups = removalGroups(removals);
  const { now } = groups;
  const isWaitedFor = ({ cluster, name }: PoolWithoutPods) =>
    additionsFor(rowsOf(recommendations), { cluster, node_pool: name }).length > 0;
  const pools = groups.pools.filter((pool) => !isWaitedFor(pool));
  const kept = [...groups.pools.filter(isWaitedFor), ...groups.reserved];
  const costs = removals.map(({ monthlyUsd }) => monthlyUsd);
  const monthly = (usd: Figure) => roundMoney(usd, currency, costs);
  const span = props.isCut && spanOf(props) === "one day" ? "day" : "period";
  const ofShown = shownText(props);
  const amountColumn = (key: "emptyUsd" | "costUsd" | "unallocatedUsd", title: string) =>
    figureColumn<Removal>(
      key,
      title,
      (row) => row[key],
      (usd) => money(usd, currency),
    );
  const poolLink = ({ cluster, name }: PoolWithoutPods) => (
    <>
      Node pool{" "}
      <a href={linkTo(route, "nodes", "", { pool: name, cluster })}>
        <Name>{name}</Name>
      </a>
    </>
  );
  const withoutPods = ({ nodes }: PoolWithoutPods) =>
    `hours in which ${nodes.length === 1 ? "one of its nodes" : `${nodes.length} of its nodes`} had no pods.`;
  const ofLastDay = props.isCut ? ` of the last ${spanOf(props)} of the period`.replace("one day", "day") : "";
  const isWeek = Date.parse(props.end) - Date.parse(props.start) >= 6 * DAY; // of 7 days, the current one may have none
  const savings = linkTo(route, "savings", "", { kind: "consolidate" });
  const link = (node: NodeRow) => (
    <a href={linkTo(route, "nodes", "", { node: node.node, cluster: node.cluster })} title={node.node}>
      <Name>{shortNode(node.node)}</Name>
    </a>
  );
  return (
    <>
      {now.length > 0 && (
        <>
          <h3>Remove now: no pods {props.isCut ? `in the last ${spanOf(props)}` : "in the whole period"}</h3>
          {!isWeek && <Weekdays {...props} />}
          <ul class="notes" data-testid="remove-now">
            {now.slice(0, MAX_REMOVALS).map(({ node, hours, monthlyUsd }) => (
              <li key={`${node.cluster} ${node.node}`}>
                {link(node)} in node pool <Name>{node.node_pool}</Name>
                {plannedIn(recommendations, node).length === 0 && (
                  <>
                    {" "}
                    saves <strong>{monthly(monthlyUsd)}</strong> a month at the rate of {ofShown}
                    {isReserved(node) && ", after its commitment ends"}
                  </>
                )}
                : {counted(hours, "hour")} without pods. <Recommended recommendations={recommendations} node={node} />
              </li>
            ))}
            {now.length > MAX_REMOVALS && (
              <li>and {counted(now.length - MAX_REMOVALS, "other node")}, see the table</li>
            )}
          </ul>
        </>
      )}
      {pools.length > 0 && (
        <>
          <h3>Scale down: no pods in some hours{ofLastDay}</h3>
          {!isWeek && now.length === 0 && <Weekdays {...props} />}
          <ul class="notes" data-testid="scale-down">
            {pools.slice(0, MAX_REMOVALS).map((pool) => (
              <li key={`${pool.cluster} ${pool.name}`}>
                {poolLink(pool)}:{" "}
                {plannedIn(recommendations, { cluster: pool.cluster, node_pool: pool.name }).length === 0 && (
                  <>
                    up to <strong>{monthly(pool.emptyMonthlyUsd)}</strong> a month at the rate of {ofShown}, the cost
                    of{" "}
                  </>
                )}
                {withoutPods(pool)}{" "}
                {pool.nodes[0] && <Recommended recommendations={recommendations} node={pool.nodes[0]} />}
              </li>
            ))}
            {pools.length > MAX_REMOVALS && <li>and {counted(pools.length - MAX_REMOVALS, "other node pool")}</li>}
          </ul>
        </>
      )}
      {kept.length > 0 && (
        <>
          <h3>Keep: fewer nodes save nothing</h3>
          <ul class="notes" data-testid="keep">
            {kept.slice(0, MAX_REMOVALS).map((pool) => (
              <li key={`${pool.cluster} ${pool.name}`}>
                {poolLink(pool)}: <strong>{roundMoney(pool.emptyUsd, currency)}</strong> in {ofShown}, the cost of{" "}
                {withoutPods(pool)}{" "}
                {pool.nodes.every(isReserved) &&
                  "Its nodes are reserved: their commitment is charged until it ends, so use them for more work. "}
                {pool.nodes[0] && <Recommended recommendations={recommendations} node={pool.nodes[0]} />}
              </li>
            ))}
          </ul>
        </>
      )}
      {now.length + pools.length + kept.length === 0 && (
        <p data-testid="remove-none">
          Every node of the last hour had pods in every hour{ofLastDay}. The largest cost of unallocated GPUs is on{" "}
          {link(first.node)}: <strong>{roundMoney(first.unallocatedUsd, currency)}</strong> in this {span}, at{" "}
          {percent(first.heldShare)} of its GPUs held.
        </p>
      )}
      {"error" in recommendations && <ErrorMessage error={recommendations.error} />}
      <p class="note">
        A recommendation has its amount of Savings, computed from which pods fit on which nodes in up to 30 days. The
        overview's unallocated cost also has the free GPUs of nodes with pods. All pools in which pods fit on fewer
        nodes: <a href={savings}>Savings</a>.
      </p>
      <Table
        name="removals"
        caption={`Nodes of the last hour: those without pods first. All amounts are of ${ofShown}`}
        sort=""
        most={10}
        rows={removals}
        rowKey={({ node }) => `${node.cluster} ${node.node}`}
        columns={[
          nodeLinkColumn(route, ({ node }: Removal) => node),
          amountColumn("emptyUsd", WITHOUT_PODS),
          {
            key: "empty",
            title: "Hours without pods",
            isFigure: true,
            cell: ({ emptyHours, hours }) => `${emptyHours} of ${hours}`,
            by: ({ emptyHours, hours }) => emptyHours / hours,
          },
          amountColumn("costUsd", amountTitle("node_cost_usd")),
          amountColumn("unallocatedUsd", amountTitle("unallocated_usd")),
          {
            key: "last",
            title: "Last pod",
            cell: ({ lastHeld }) =>
              lastHeld === null
                ? "none"
                : `${dateOf(Date.parse(lastHeld), zone)}, ${clockOf(Date.parse(lastHeld), zone)}`,
            by: ({ lastHeld }) => lastHeld ?? "",
          },
          figureColumn("held", "GPUs held", ({ heldShare }: Removal) => heldShare, percent),
          nameColumn("pool", "Node pool", ({ node }: Removal) => node.node_pool),
          ...clusterColumns(removals, ({ node }) => node.cluster),
          nameColumn("type", "Instance", ({ node }: Removal) => hardwareOf(node)),
        ]}
      />
    </>
  );
}

/** Which weekdays amounts per month are computed from, if not from all. */
function Weekdays({ start, end }: { start: string; end: string }) {
  const route = useRoute();
  const zone = useZone();
  const count = Math.ceil((Date.parse(end) - Date.parse(start)) / HOUR);
  return (
    <p class="note" data-testid="weekdays">
      Amounts a month are those of {counted(count, "hour")} from {moment(start, zone)} to {moment(end, zone)}, as if
      every day were like them. Other weekdays can differ: see{" "}
      <a href={changed(route, { window: "7d", start: "", end: "" })}>all weekdays</a>. Recommendations in{" "}
      <a href={linkTo(route, "savings", "", { kind: "consolidate" })}>Savings</a> look at up to 30 days.
    </p>
  );
}

/** The strips, the largest unallocated cost first. Nodes that ended are folded. */
function Strips({ rows, start, end, hours }: ViewData) {
  const buckets = bucketsOf(start, end, "hour");
  const newest = rows.reduce((latest, row) => (row.hour > latest ? row.hour : latest), "");
  const nodes = new Map<string, NodeRow[]>();
  for (const row of rows) {
    const key = `${row.cluster}\n${row.node}`;
    const rowsOfKey = nodes.get(key);
    if (rowsOfKey === undefined) nodes.set(key, [row]);
    else rowsOfKey.push(row);
  }
  const free = (nodeRows: readonly NodeRow[]) => sumOf(nodeRows.map((row) => row.unallocated_usd)) ?? 0;
  const all = [...nodes.values()].sort((left, right) => free(right) - free(left));
  // In the newest hour of another cluster, a cluster's hour can be missing.
  const newestOf = new Map<string, string>();
  for (const { cluster, hour } of rows) if (hour > (newestOf.get(cluster) ?? "")) newestOf.set(cluster, hour);
  const isPresent = (nodeRows: readonly NodeRow[]) =>
    nodeRows.some(({ cluster, hour }) => hour === (newestOf.get(cluster) ?? newest));
  const present = all.filter(isPresent);
  const ended = all.filter((nodeRows) => !isPresent(nodeRows));
  const lacking = new Set(
    (hours?.rows ?? [])
      .filter(({ status }) => status === "missing" || status === "incomplete")
      .map(({ cluster, hour }) => `${cluster} ${Date.parse(hour)}`),
  );
  const [shown, button] = useFolded(present.slice(0, MAX_NODES), MAX_NODES, MAX_ON_PHONES);
  const [shownEnded, buttonOfEnded] = useFolded(ended.slice(0, MAX_NODES), MAX_NODES, MAX_ON_PHONES);
  const strip = (nodeRows: NodeRow[]) => (
    <Strip key={`${nodeRows[0]?.cluster}/${nodeRows[0]?.node}`} rows={nodeRows} buckets={buckets} lacking={lacking} />
  );
  return (
    <>
      <Scale>
        <span>
          <Swatch color={PART_COLORS.unallocated_usd} /> unallocated
        </span>
        <span>
          <Swatch color={PART_COLORS.stranded_usd} /> stranded
        </span>
        <span>
          <NothingSwatch /> the node did not exist
        </span>
      </Scale>
      <p class="note">
        Metrics show how much of a node each pod held, but not which GPU. The placement of pods is illustrative.
        {all.length > 1 && " The largest unallocated cost comes first."}
      </p>
      <div class="strips">{shown.map(strip)}</div>
      {button}
      {present.length > MAX_NODES && (
        <p class="note">{counted(present.length - MAX_NODES, "more node")}. Select a node pool or a node.</p>
      )}
      {ended.length > 0 && (
        <details open={present.length === 0}>
          <summary>{counted(ended.length, "node")} ended in this period</summary>
          <div class="strips">{shownEnded.map(strip)}</div>
          {buttonOfEnded}
          {ended.length > MAX_NODES && (
            <p class="note">{counted(ended.length - MAX_NODES, "more node")}. Select a node pool or a node.</p>
          )}
        </details>
      )}
    </>
  );
}

function Strip({ rows, buckets, lacking }: { rows: NodeRow[]; buckets: Buckets; lacking: ReadonlySet<string> }) {
  const route = useRoute();
  const zone = useZone();
  const byHour = new Map(rows.map((row) => [Date.parse(row.hour), row]));
  const hours = buckets.starts.map((at) => byHour.get(at));
  const { perGpu, lanes } = stripsOf(hours);
  const node = rows[0];
  if (node === undefined) return null;
  const isLacking = (column: number) => lacking.has(`${node.cluster} ${buckets.starts[column] ?? 0}`);
  const at = (row: number, column: number): Cell => {
    const cell = lanes[row]?.[column] ?? { kind: "absent" };
    return cell.kind === "absent" && isLacking(column) ? { kind: "missing" } : cell;
  };
  return (
    <article class="node" data-testid="strip">
      <h3>
        <a href={linkTo(route, "nodes", "", { node: node.node, cluster: node.cluster })}>
          <Name>{node.node}</Name>
        </a>
        <span>
          {" "}
          {[instanceType(node), node.gpu_model, node.capacity_type].filter(Boolean).join(" · ")} · pool{" "}
          <Name>{node.node_pool}</Name>
        </span>
      </h3>
      <Stranded rows={rows} />
      <Grid
        label={`GPUs of node ${node.node} by hour`}
        rows={lanes.length}
        columns={hours.length}
        rowHeight={perGpu === 1 ? 22 : lanes.length <= 16 ? 16 : 8}
        lineEvery={perGpu}
        dataKey={rows}
        texts={textsOf(lanes)}
        ticks={(most) => timeTicks(buckets, zone, most)}
        paint={(row, column) => paint(at(row, column), hours[column])}
        describe={(row, column) => describe(at(row, column), hours[column], moment(buckets.starts[column] ?? 0, zone))}
        onOpen={(_row, column) => {
          const from = buckets.starts[column];
          if (from !== undefined && endOf(buckets, column) > from) {
            go(linkTo(route, "hour", instant(from), { node: node.node, cluster: node.cluster }));
          }
        }}
      />
    </article>
  );
}

/** What stranded GPUs of the newest hour with any cost, and why. */
function Stranded({ rows }: { rows: readonly NodeRow[] }) {
  const zone = useZone();
  const row = rows.findLast((candidate) => (candidate.stranded_gpu_hours ?? 0) > 1e-6);
  if (row === undefined) return null;
  return (
    <p class="note" data-testid="stranded">
      <Swatch color={PART_COLORS.stranded_usd} />
      Stranded {money(row.stranded_usd, row.currency)} an hour, {roundHours(row.stranded_gpu_hours)} GPUs
      {row !== rows.at(-1) && `, last in ${moment(row.hour, zone)}`}: {strandedReason(row)}.
    </p>
  );
}

function paint(cell: Cell, row: NodeRow | undefined): Painted {
  if (cell.kind === "absent") return { fill: null };
  if (cell.kind === "free") return { fill: "unallocated_usd" };
  if (cell.kind === "stranded") return { fill: "stranded_usd" };
  if (cell.kind !== "held") return { fill: "missing" };
  const use = cell.holder.utilization;
  const fill = use ?? "unmeasured";
  // If the pod started or ended within the hour, the rest of the cell is unallocated.
  const rest = (row?.unallocated_gpu_hours ?? 0) > 0 ? { rest: "unallocated_usd" as const } : {};
  const unmeasured = use === null ? 0 : 1 - measuredShare(cell.holder);
  return { fill, part: cell.part, isAtEnd: cell.isAtEnd ?? false, unmeasured, ...rest };
}

function describe(cell: Cell, row: NodeRow | undefined, when: string) {
  if (cell.kind === "held") {
    const { holder } = cell;
    return (
      <>
        <strong>{when}</strong> <Name>{holder.pod}</Name> in <Name>{holder.namespace}</Name> (
        <Name>{holder.business_unit}</Name>): {holder.units} × {holder.resource}, {percent(holder.utilization)}{" "}
        utilization, {AMOUNTS.allocated_usd} {money(holder.allocated_usd, row?.currency)}, {AMOUNTS.waste_usd}{" "}
        {money(knownFigure(holder, "waste_usd"), row?.currency)}
        {holder.unmeasured_gpu_hours > 1e-9 &&
          `, ${AMOUNTS.unmeasured_usd} ${money(holder.unmeasured_usd, row?.currency)}`}
      </>
    );
  }
  const words = {
    absent: "the node did not exist",
    missing: "missing or incomplete hour: unknown",
    free: "unallocated",
    stranded: "stranded",
    unobserved: "unobserved: no allocation metrics",
    unknown: "holder not known",
  };
  return (
    <>
      <strong>{when}</strong> {words[cell.kind]}
      {row !== undefined && cell.kind === "free" && `: ${freeReason(row)}`}
      {row !== undefined && cell.kind === "stranded" && `: ${strandedReason(row)}`}
    </>
  );
}

/** Pod names, drawn over the lanes and hours that a pod held. */
function textsOf(lanes: Cell[][]) {
  const texts = [];
  for (let row = 0; row < lanes.length;) {
    const laneCells = lanes[row] ?? [];
    const holders = laneCells.map(holderOf);
    let tall = 1;
    while (row + tall < lanes.length && lanes[row + tall]?.every((cell, index) => holderOf(cell) === holders[index]))
      tall++;
    for (let from = 0; from < laneCells.length;) {
      let to = from + 1;
      while (to < laneCells.length && holders[to] === holders[from]) to++;
      const cell = laneCells[from];
      if (cell?.kind === "held") {
        texts.push({ row, rows: tall, from, to, text: cell.holder.pod });
      }
      from = to;
    }
    row += tall;
  }
  return texts;
}

function holderOf(cell: Cell): string {
  return cell.kind === "held" ? cell.holder.uid : cell.kind;
}
