// Tables of an hour: pods, with links to the calculation of each cost, and nodes.

import { useState } from "preact/hooks";
import type { Line, NodeRow } from "../api";
import { clusterColumns, gpuHoursColumn, moneyColumn, nameColumn, nodeColumn } from "../columns";
import {
  counted,
  exactMoney,
  isUnmeasured,
  money,
  moment,
  NOT_MEASURED,
  percent,
  shortNode,
  unitPrice,
  utilization,
  instanceType,
} from "../format";
import { changed, useRoute, useZone } from "../hooks";
import { amountTitle, PARTS, partsOf } from "../identity";
import { type Column, Name, Table } from "../parts";
import { podsOf, type Pod } from "../pods";
import { heldGpuHours } from "../removal";
import { lineKey } from "./why";
import { didNotRun } from "../unmeasured";

/** Rows that are shown before all of them are. */
const MOST_PODS = 25;
const MOST_NODES = 15;

/** Narrow screens show the first two next to the name. The one that the table was opened with an order of comes first. */
const AMOUNTS = ["allocated_usd", "waste_usd", "unmeasured_usd", "effective_usd"] as const;

/** Pods, with a row for each; several hours of a pod are below it. */
export function Lines({ rows, areSeveral }: { rows: readonly Line[]; areSeveral: boolean }) {
  const route = useRoute();
  const zone = useZone();
  const why = (key: (typeof AMOUNTS)[number]): Column<Pod> => ({
    key,
    title: amountTitle(key),
    isFigure: true,
    cell: (line) =>
      line.hours.length > 1 || (line[key] === 0 && key !== "allocated_usd") ? (
        money(line[key], line.currency)
      ) : (
        <a
          href={changed(route, { line: lineKey(line), figure: key === "allocated_usd" ? "" : key })}
          aria-label={`${money(line[key], line.currency)}: how calculated`}
        >
          {money(line[key], line.currency)}
        </a>
      ),
    by: (line) => line[key],
    unknown: (line) => (isUnmeasured(line, key) ? NOT_MEASURED : undefined),
  });
  const filter = (key: string, title: string, filtered: string, value: (line: Pod) => string): Column<Pod> =>
    nameColumn(key, title, value, (line) => changed(route, { [filtered]: value(line) }));
  const hour: Column<Pod> = {
    key: "hour",
    title: "Hour",
    cell: (line) => (line.hours.length > 1 ? counted(line.hours.length, "hour") : moment(line.hour, zone)),
    by: (line) => (line.hours.length > 1 ? line.hours.length : line.hour),
  };
  const areInClusters = new Set(rows.map(({ cluster }) => cluster)).size > 1;
  const [opened] = useState(route.query["lines-sort"]?.replace(/^-/, ""));
  const amounts = [...AMOUNTS.filter((key) => key === opened), ...AMOUNTS.filter((key) => key !== opened)];
  const hasUnmeasured = rows.some((line) => line.unmeasured_usd !== 0);
  return (
    <Table<Pod>
      name="lines"
      caption={
        areSeveral
          ? "Pods. Open a pod to see its hours; click an hour's cost to see how it was calculated"
          : "Pods. Click a cost to see how it was calculated"
      }
      sort="-allocated_usd"
      most={MOST_PODS}
      rows={podsOf(rows)}
      rowKey={(line) => `${line.cluster} ${line.hours.length > 1 ? line.pod : lineKey(line)} ${line.resource}`}
      within={(line) => (line.hours.length > 1 ? line.hours.flatMap((entry) => podsOf([entry])) : [])}
      columns={[
        nameColumn("pod", "Pod", (line: Pod) => line.pod),
        ...amounts.filter((key) => key !== "unmeasured_usd" || hasUnmeasured).map(why),
        ...(areSeveral ? [hour] : []),
        {
          key: "utilization",
          title: "Utilization",
          isFigure: true,
          cell: (line) => (
            <>
              {percent(line.hours.length > 1 ? utilization(line) : line.utilization)}{" "}
              {line.utilization_source !== "pod" && (
                <span class="unknown" title="Utilization source">
                  {didNotRun(line) ? "did not run" : line.utilization_source}
                </span>
              )}
            </>
          ),
          by: (line) => (line.hours.length > 1 ? utilization(line) : line.utilization),
        },
        filter("business_unit", "Business unit", "unit", (line) => line.business_unit),
        filter("namespace", "Namespace", "namespace", (line) => line.namespace),
        {
          key: "node",
          title: areInClusters ? "Node, cluster" : "Node",
          cell: (line) => (
            <>
              <a href={changed(route, { node: line.node })} title={line.node}>
                <Name>{shortNode(line.node)}</Name>
              </a>
              {areInClusters && (
                <div class="note">
                  <Name>{line.cluster}</Name>
                </div>
              )}
            </>
          ),
          by: (line) => `${line.cluster} ${line.node}`,
        },
        gpuHoursColumn<Pod>(),
        {
          key: "units",
          title: "Requested",
          cell: (line) => (
            <span title={line.resource}>
              {line.units} × {line.resource.replace(/^[^/]+\//, "")}
            </span>
          ),
          by: (line) => line.units,
        },
        {
          key: "gpu_hourly_usd",
          title: "Price per GPU-hour",
          isFigure: true,
          cell: (line) => (
            <span title={line.gpu_hourly_usd === null ? undefined : exactMoney(line.gpu_hourly_usd, line.currency)}>
              {line.gpu_hourly_usd === null ? "none" : unitPrice(line.gpu_hourly_usd, line.currency)}
            </span>
          ),
          by: (line) => line.gpu_hourly_usd,
        },
        {
          key: "price_source",
          title: "Price source",
          cell: (line) => (line.gpu_hourly_usd === null ? "–" : line.price_source || "unknown"),
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
      caption="Nodes by node cost"
      most={MOST_NODES}
      sort="-node_cost_usd"
      rows={rows.map((row) => ({ ...row, ...heldGpuHours([row]) }))}
      rowKey={(row) => `${row.cluster} ${row.kind} ${row.node} ${row.node_pool}`}
      columns={[
        nodeColumn(route),
        moneyColumn("node_cost_usd", currency),
        ...partsOf(rows, PARTS).map((part) => moneyColumn<typeof part.key, NodeRow>(part.key, currency)),
        ...clusterColumns(rows, (row) => row.cluster),
        nameColumn("node_pool", "Node pool", (row: NodeRow) => row.node_pool),
        {
          key: "instance_type",
          title: "Instance type",
          cell: (row) => (row.kind === "node" ? instanceType(row) : row.kind.replaceAll("-", " ")),
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
