// Columns that several tables of costs share.

import type { Costs } from "./api";
import { gpuHours, money } from "./format";
import type { Column } from "./parts";

/** An amount of each row, in the answer's currency. */
export function moneyColumn<Row extends Costs>(
  key: "allocated_usd" | "effective_usd" | "waste_usd" | "unmeasured_usd",
  title: string,
  currency: string,
): Column<Row> {
  return { key, title, isFigure: true, cell: (row) => money(row[key], currency), by: (row) => row[key] };
}

/** GPU-hours that each row held. */
export function gpuHoursColumn<Row extends Costs>(): Column<Row> {
  return {
    key: "allocated_gpu_hours",
    title: "GPU-hours",
    isFigure: true,
    cell: (row) => gpuHours(row.allocated_gpu_hours),
    by: (row) => row.allocated_gpu_hours,
  };
}
