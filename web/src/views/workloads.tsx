// A business unit's workloads: what they held beside what they used.

import type { CostRow, CostsAnswer } from "../api";
import { clusterColumns, gpuHoursColumn, groupColumn, moneyColumn, useColumn } from "../columns";
import { HOUR, instant, money } from "../format";
import { useRoute } from "../hooks";
import { Table } from "../parts";
import { linkTo } from "../route";

/** Lines are answered for two days at most: of longer periods, the last day's are shown. */
const MOST_HOURS_OF_LINES = 48;

export function Workloads({ whole, rows }: { whole: CostsAnswer; rows: readonly CostRow[] }) {
  const route = useRoute();
  const { currency } = whole;
  const hours = (Date.parse(whole.end) - Date.parse(whole.start)) / HOUR;
  const shown = hours <= MOST_HOURS_OF_LINES ? hours : 24;
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
      caption="Workloads: what they held beside what they used"
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
            <a href={why(row)} title="Why?">
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
