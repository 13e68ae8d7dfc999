// A business unit's workloads with allocated and effective costs.

import type { CostRow, CostsResponse } from "../api";
import { clusterColumns, gpuHoursColumn, groupColumn, moneyColumn, useColumn } from "../columns";
import { HOUR, instant, money } from "../format";
import { useRoute } from "../hooks";
import { Table } from "../parts";
import { linkTo } from "../route";

/** The API returns lines of at most 48 hours. For longer periods, the last day is shown. */
const MAX_LINE_HOURS = 48;

export function Workloads({ whole, rows }: { whole: CostsResponse; rows: readonly CostRow[] }) {
  const route = useRoute();
  const { currency } = whole;
  const hours = (Date.parse(whole.end) - Date.parse(whole.start)) / HOUR;
  const shown = hours <= MAX_LINE_HOURS ? hours : 24;
  const first = instant(Date.parse(whole.end) - shown * HOUR);
  const why = (row: CostRow) =>
    linkTo(route, "hour", first, {
      hours: String(shown),
      unit: route.name,
      namespace: row.group["namespace"] ?? "",
      workload: row.group["workload"] ?? "",
      cluster: row.group["cluster"] ?? "",
    });
  return (
    <Table
      name="workloads"
      caption="Workloads by allocated cost"
      sort="-allocated_usd"
      rows={rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        groupColumn("workload", "Workload", why),
        groupColumn("workload_kind", "Kind"),
        groupColumn("namespace", "Namespace"),
        ...clusterColumns(rows, (row) => row.group["cluster"] ?? ""),
        {
          key: "allocated_usd",
          title: "Allocated",
          isFigure: true,
          cell: (row) => (
            <a href={why(row)} title="How this cost was calculated">
              {money(row.allocated_usd, currency)}
            </a>
          ),
          by: (row) => row.allocated_usd,
        },
        moneyColumn("effective_usd", "Effective", currency),
        useColumn(),
        moneyColumn("waste_usd", "Waste", currency),
        gpuHoursColumn(),
      ]}
    />
  );
}
