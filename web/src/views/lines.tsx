// Tables of an hour: pods, with links to the calculation of each cost, and nodes.

import type { Line, NodeRow } from "../api";
import { clusterColumns, figureColumn, gpuHoursColumn, moneyColumn, nameColumn, nodeColumn } from "../columns";
import { capitalized, exactMoney, gpuHours, money, moment, percent } from "../format";
import { changed, useRoute, useZone } from "../hooks";
import { PARTS, partsOf } from "../identity";
import { type Column, Table } from "../parts";
import { lineKey } from "./why";

const AMOUNTS = ["allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"] as const;

export function Lines({ rows, areSeveral }: { rows: readonly Line[]; areSeveral: boolean }) {
  const route = useRoute();
  const zone = useZone();
  const why = (key: (typeof AMOUNTS)[number]): Column<Line> => ({
    key,
    title: capitalized(key.replace("_usd", "")),
    isFigure: true,
    cell: (line) => (
      <a
        href={changed(route, { line: lineKey(line) })}
        aria-label={`${money(line[key], line.currency)}: how calculated`}
      >
        {money(line[key], line.currency)}
      </a>
    ),
    by: (line) => line[key],
  });
  const filter = (key: string, title: string, filtered: string, value: (line: Line) => string): Column<Line> =>
    nameColumn(key, title, value, (line) => changed(route, { [filtered]: value(line) }));
  const hour: Column<Line> = {
    key: "hour",
    title: "Hour",
    cell: (line) => moment(line.hour, zone),
    by: (line) => line.hour,
  };
  return (
    <Table
      name="lines"
      caption="Pods. Click a cost to see how it was calculated"
      sort="-allocated_usd"
      most={100}
      rows={rows}
      rowKey={(line) => `${line.cluster} ${lineKey(line)}`}
      columns={[
        ...(areSeveral ? [hour] : []),
        nameColumn("pod", "Pod", (line: Line) => line.pod),
        ...AMOUNTS.map(why),
        filter("business_unit", "Business unit", "unit", (line) => line.business_unit),
        filter("namespace", "Namespace", "namespace", (line) => line.namespace),
        filter("node", "Node", "node", (line) => line.node),
        ...clusterColumns(rows, (line) => line.cluster),
        gpuHoursColumn(),
        {
          key: "units",
          title: "Requested",
          cell: (line) => `${line.units} × ${line.resource}`,
          by: (line) => line.units,
        },
        figureColumn("gpu_share", "GPU share", (line: Line) => line.gpu_share, gpuHours),
        figureColumn("utilization", "Utilization", (line: Line) => line.utilization, percent),
        {
          key: "utilization_source",
          title: "Utilization source",
          cell: (line) => line.utilization_source,
          by: (line) => line.utilization_source,
        },
        {
          key: "gpu_hourly_usd",
          title: "GPU-hour price",
          isFigure: true,
          cell: (line) => exactMoney(line.gpu_hourly_usd, line.currency),
          by: (line) => line.gpu_hourly_usd,
        },
        {
          key: "price_source",
          title: "Price source",
          cell: (line) => line.price_source || "unknown",
          by: (line) => line.price_source,
        },
      ]}
    />
  );
}

export function NodeTable({ rows }: { rows: readonly NodeRow[] }) {
  const route = useRoute();
  const currency = rows[0]?.currency ?? "USD";
  return (
    <Table
      name="nodes"
      caption="Nodes by cost"
      sort="-node_cost_usd"
      rows={rows}
      rowKey={(row) => `${row.cluster} ${row.kind} ${row.node} ${row.node_pool}`}
      columns={[
        nodeColumn(route),
        moneyColumn("node_cost_usd", "Node cost", currency),
        ...partsOf(rows, PARTS).map((part) =>
          moneyColumn<keyof NodeRow & typeof part.key, NodeRow>(part.key, capitalized(part.name), currency),
        ),
        ...clusterColumns(rows, (row) => row.cluster),
        nameColumn("node_pool", "Node pool", (row: NodeRow) => row.node_pool),
        {
          key: "instance_type",
          title: "Instance type",
          cell: (row) => (row.kind === "node" ? row.instance_type : row.kind),
          by: (row) => row.instance_type,
        },
        {
          key: "price_source",
          title: "Price source",
          cell: (row) => row.price_source || "unknown",
          by: (row) => row.price_source,
        },
      ]}
    />
  );
}
