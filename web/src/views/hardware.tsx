// A business unit's costs by GPU model and node pool.

import type { CostRow } from "../api";
import { gpuHoursColumn, groupColumn, moneyColumn, unmeasuredColumns, useColumn } from "../columns";
import { useRoute } from "../hooks";
import { Table } from "../parts";
import { linkTo } from "../route";

export function Hardware({ rows, currency }: { rows: readonly CostRow[]; currency: string }) {
  const route = useRoute();
  return (
    <Table
      name="hardware"
      caption="Costs by GPU model and node pool"
      sort="-allocated_usd"
      rows={rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        groupColumn("gpu_model", "GPU model"),
        moneyColumn("allocated_usd", currency),
        moneyColumn("waste_usd", currency),
        ...unmeasuredColumns(rows, currency),
        gpuHoursColumn(),
        useColumn(),
        groupColumn("node_pool", "Node pool", (row) =>
          linkTo(route, "nodes", "", { pool: row.group["node_pool"] ?? "" }),
        ),
        groupColumn("capacity_type", "Capacity type"),
      ]}
    />
  );
}
