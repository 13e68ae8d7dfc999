// Node pools and nodes: each GPU as a strip over time, with the pods that held it and their utilization.

import { fetchJson, fetchAll, MAX_DETAIL_HOURS, type NodeRow } from "../api";
import { PART_COLORS, useColor } from "../charts/colors";
import { Grid, type Painted } from "../charts/grid";
import { DAY, HOUR, instant, money, moment, percent, roundHours, tick } from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { type Cell, stripsOf } from "../lanes";
import { clusterColumns, figureColumn, moneyColumn, nameColumn } from "../columns";
import { Empty, Name, Section, Swatch, Table, View } from "../parts";
import { freeReason, type Removal, removalsOf, strandedReason, sumOf } from "../removal";
import { linkTo, periodOf, type Route } from "../route";
import { bucketsOf, endOf, ticksOf } from "../series";
import { Scale } from "../charts/scale";

const MAX_PAGES = 10;
const MAX_NODES = 24;
const FREE = PART_COLORS.unallocated_usd;

interface ViewData {
  start: string;
  end: string;
  isCut: boolean;
  /** Not all hours were loaded, because the fleet is too large for the period. */
  isPartial: boolean;
  rows: NodeRow[];
}

async function fetchNodes(route: Route): Promise<ViewData> {
  const cluster = route.query["cluster"];
  const { start, end } = await fetchJson("v1/costs", {
    ...periodOf(route),
    cluster,
    granularity: "total",
  });
  const isCut = Date.parse(end) - Date.parse(start) > MAX_DETAIL_HOURS * HOUR;
  const from = isCut ? instant(Date.parse(end) - DAY) : start;
  const response = await fetchAll("v1/nodes", { start: from, end, cluster, limit: "2000" }, MAX_PAGES);
  return { start: from, end, isCut, isPartial: response.cursor !== null, rows: response.rows };
}

export function Nodes() {
  const route = useRoute();
  const requestKey = JSON.stringify([periodOf(route), route.query["cluster"]]);
  const request = useFetch(requestKey, () => fetchNodes(route));
  return (
    <View title={heading(route)} request={request}>
      {(viewData) => <Shown {...viewData} />}
    </View>
  );
}

function heading({ query }: Route) {
  if (query["node"] !== undefined)
    return (
      <>
        Node <Name>{query["node"]}</Name>
      </>
    );
  if (query["pool"] !== undefined)
    return (
      <>
        Node pool <Name>{query["pool"]}</Name>
      </>
    );
  return <>Nodes</>;
}

function Shown(props: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { pool, node } = route.query;
  const nodes = props.rows.filter((row) => row.kind === "node");
  const chosen = nodes.filter(
    (row) => (pool === undefined || row.node_pool === pool) && (node === undefined || row.node === node),
  );
  if (nodes.length === 0) return <Empty>No GPU nodes in this period. Select another period or cluster.</Empty>;
  return (
    <>
      <p class="note">
        {moment(props.start, zone)} to {moment(props.end, zone)}
        {props.isCut && ". Nodes are shown for at most 48 hours: this is the last day of the period."}
        {props.isPartial && " Not all hours are shown. Select a shorter period."}
      </p>
      {node === undefined && (
        <Section title="Which node to remove">
          <Removals rows={pool === undefined ? nodes : chosen} />
        </Section>
      )}
      <Section title="Node pools">
        <Pools rows={nodes} />
      </Section>
      <Section
        title="GPUs by hour"
        aside={(pool ?? node) !== undefined && <a href={changed(route, { pool: "", node: "" })}>All node pools</a>}
      >
        <Scale>
          <Swatch color={FREE} /> unallocated <Swatch color={PART_COLORS.stranded_usd} /> stranded
        </Scale>
        <p class="note">
          Metrics show how much of a node each pod held, but not which GPU. The placement of pods is illustrative.
        </p>
        <Strips {...props} rows={chosen} />
      </Section>
    </>
  );
}

interface Pool {
  name: string;
  cluster: string;
  nodes: number;
  capacity: number | null;
  unallocated: number | null;
  stranded: number | null;
  cost: number | null;
  waste: number | null;
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
    unallocated: sumOf(poolRows.map((row) => row.unallocated_gpu_hours)),
    stranded: sumOf(poolRows.map((row) => row.stranded_gpu_hours)),
    cost: sumOf(poolRows.map((row) => row.node_cost_usd)),
    waste: sumOf(poolRows.map((row) => row.waste_usd)),
  }));
  return (
    <Table
      name="pools"
      caption="Node pools by cost"
      sort="-cost"
      rows={sums}
      rowKey={(pool) => `${pool.cluster} ${pool.name}`}
      columns={[
        nameColumn(
          "name",
          "Node pool",
          (pool: Pool) => pool.name,
          (pool: Pool) => changed(route, { pool: pool.name, node: "", cluster: pool.cluster }),
        ),
        ...clusterColumns(sums, (pool) => pool.cluster),
        { key: "nodes", title: "Nodes", isFigure: true, cell: (pool) => pool.nodes, by: (pool) => pool.nodes },
        moneyColumn("cost", "Node cost", currency),
        moneyColumn("waste", "Waste", currency),
        figureColumn("capacity", "GPU-hours", (pool: Pool) => pool.capacity, roundHours),
        figureColumn("unallocated", "Unallocated GPU-hours", (pool: Pool) => pool.unallocated, roundHours),
        figureColumn("stranded", "Stranded GPU-hours", (pool: Pool) => pool.stranded, roundHours),
      ]}
    />
  );
}

function Removals({ rows }: { rows: readonly NodeRow[] }) {
  const route = useRoute();
  const zone = useZone();
  const removals = removalsOf(rows);
  const currency = rows[0]?.currency ?? "USD";
  const [first] = removals;
  if (first === undefined)
    return <Empty>No node of this period exists in its last hour. Select a period that ends later.</Empty>;
  return (
    <>
      <p data-testid="remove-first">
        {first.emptyHours === 0 && "No node was without pods. Most cost of unallocated GPUs: "}
        <a href={changed(route, { node: first.node.node, cluster: first.node.cluster })}>
          <Name>{first.node.node}</Name>
        </a>
        {first.emptyHours > 0 && " first"}: {first.emptyHours} of {first.hours} hours without pods,{" "}
        {percent(first.heldShare)} of its GPUs held. It costs <strong>{money(first.monthlyUsd, currency)}</strong> a
        month
        {first.emptyHours > 0 && first.emptyHours < first.hours && (
          <>
            , <strong>{money(first.emptyMonthlyUsd, currency)}</strong> of it for hours without pods, which a node pool
            that scales down does not pay
          </>
        )}
        {first.node.capacity_type === "reserved" && ", until its commitment ends"}.
      </p>
      <p class="note">
        Nodes of the last hour: the largest cost of hours without pods first, then of unallocated GPUs. A node with pods
        has to be drained, and its pods need room on others:{" "}
        <a href={linkTo(route, "savings", "", { kind: "consolidate" })}>Savings</a> has the pools in which they fit.
      </p>
      <Table
        name="removals"
        caption="Nodes by the cost of hours without pods"
        sort=""
        most={10}
        rows={removals}
        rowKey={({ node }) => `${node.cluster} ${node.node}`}
        columns={[
          nameColumn(
            "node",
            "Node",
            ({ node }: Removal) => node.node,
            ({ node }: Removal) => changed(route, { node: node.node, cluster: node.cluster }),
          ),
          moneyColumn("emptyMonthlyUsd", "Cost without pods per month", currency),
          moneyColumn("monthlyUsd", "Node cost per month", currency),
          {
            key: "empty",
            title: "Hours without pods",
            isFigure: true,
            cell: ({ emptyHours, hours }) => `${emptyHours} of ${hours}`,
            by: ({ emptyHours, hours }) => emptyHours / hours,
          },
          {
            key: "last",
            title: "Last pod",
            cell: ({ lastHeld }) => (lastHeld === null ? "none in this period" : moment(lastHeld, zone)),
            by: ({ lastHeld }) => lastHeld ?? "",
          },
          figureColumn("held", "GPUs held", ({ heldShare }: Removal) => heldShare, percent),
          moneyColumn("unallocatedUsd", "Unallocated", currency),
          nameColumn("pool", "Node pool", ({ node }: Removal) => node.node_pool),
          ...clusterColumns(removals, ({ node }) => node.cluster),
          nameColumn("type", "Instance type", ({ node }: Removal) => node.instance_type),
          nameColumn("capacity", "Capacity type", ({ node }: Removal) => node.capacity_type),
        ]}
      />
    </>
  );
}

function Strips({ rows, start, end }: ViewData) {
  const nodes = new Map<string, NodeRow[]>();
  for (const row of rows) {
    const key = `${row.cluster}\n${row.node}`;
    const rowsOfKey = nodes.get(key);
    if (rowsOfKey === undefined) nodes.set(key, [row]);
    else rowsOfKey.push(row);
  }
  const all = [...nodes.values()];
  return (
    <>
      {all.slice(0, MAX_NODES).map((nodeRows) => (
        <Strip key={`${nodeRows[0]?.cluster}/${nodeRows[0]?.node}`} rows={nodeRows} start={start} end={end} />
      ))}
      {all.length > MAX_NODES && <p class="note">{all.length - MAX_NODES} more nodes. Select a node pool or a node.</p>}
    </>
  );
}

function Strip({ rows, start, end }: { rows: NodeRow[]; start: string; end: string }) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(start, end, "hour");
  const byHour = new Map(rows.map((row) => [Date.parse(row.hour), row]));
  const hours = buckets.starts.map((at) => byHour.get(at));
  const { perGpu, lanes } = stripsOf(hours);
  const node = rows[0];
  if (node === undefined) return null;
  const at = (row: number, column: number): Cell => lanes[row]?.[column] ?? { kind: "absent" };
  return (
    <article class="node" data-testid="strip">
      <h3>
        <a href={changed(route, { node: node.node, cluster: node.cluster })}>
          <Name>{node.node}</Name>
        </a>
        <span>
          {" "}
          {node.instance_type} · {node.gpu_model} · {node.capacity_type} · pool <Name>{node.node_pool}</Name>
        </span>
      </h3>
      <Grid
        label={`GPUs of node ${node.node} by hour`}
        rows={lanes.length}
        columns={hours.length}
        rowHeight={perGpu === 1 ? 22 : lanes.length <= 16 ? 16 : 8}
        lineEvery={perGpu}
        dataKey={rows}
        hint=" "
        texts={textsOf(lanes)}
        ticks={(most) => ticksOf(buckets, (time) => tick(time, buckets.step, zone), most)}
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

function paint(cell: Cell, row: NodeRow | undefined): Painted {
  if (cell.kind === "absent") return { fill: null };
  if (cell.kind === "free") return { fill: FREE };
  if (cell.kind === "stranded") return { fill: PART_COLORS.stranded_usd };
  if (cell.kind !== "held") return { fill: "missing" };
  const use = cell.holder.utilization;
  const fill = use === null ? "missing" : useColor(use);
  // If the pod started or ended within the hour, the rest of the cell is unallocated.
  const rest = (row?.unallocated_gpu_hours ?? 0) > 0 ? { rest: FREE } : {};
  return { fill, part: cell.part, ...rest };
}

function describe(cell: Cell, row: NodeRow | undefined, when: string) {
  if (cell.kind === "held") {
    const { holder } = cell;
    return (
      <>
        <strong>{when}</strong> <Name>{holder.pod}</Name> in <Name>{holder.namespace}</Name> (
        <Name>{holder.business_unit}</Name>): {holder.units} × {holder.resource}, {percent(holder.utilization)}{" "}
        utilization, {money(holder.allocated_usd, row?.currency)} allocated, {money(holder.waste_usd, row?.currency)}{" "}
        wasted
      </>
    );
  }
  const words = {
    absent: "node not present, or hour missing",
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
