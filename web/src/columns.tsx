// Columns that several tables of costs share.

import type { ComponentChildren } from "preact";
import type { Costs } from "./api";
import { PART_COLOURS } from "./charts/colours";
import { type Figure, gpuHours, money, percent, ratio, utilization } from "./format";
import { type Column, Name } from "./parts";

/** A figure in a column of its own. */
export function figureColumn<Row>(
  key: string,
  title: string,
  value: (row: Row) => Figure,
  shown: (value: Figure) => string,
): Column<Row> {
  return { key, title, isFigure: true, cell: (row) => shown(value(row)), by: value };
}

/** An amount of each row, in the answer's currency. */
export function moneyColumn<Key extends string, Row extends Partial<Record<Key, number | null>>>(
  key: Key,
  title: string,
  currency: string,
): Column<Row> {
  return figureColumn<Row>(
    key,
    title,
    (row) => row[key],
    (value) => money(value, currency),
  );
}

/** GPU-hours that each row held. */
export function gpuHoursColumn<Row extends Costs>(): Column<Row> {
  return figureColumn<Row>("allocated_gpu_hours", "GPU-hours", (row) => row.allocated_gpu_hours, gpuHours);
}

/** A name, which may lead somewhere. */
export function nameColumn<Row>(
  key: string,
  title: string,
  name: (row: Row) => string,
  link?: (row: Row) => string,
): Column<Row> {
  const cell = (row: Row): ComponentChildren =>
    link === undefined ? (
      <Name>{name(row)}</Name>
    ) : (
      <a href={link(row)}>
        <Name>{name(row)}</Name>
      </a>
    );
  return { key, title, cell, by: name };
}

/** One of the names that a row is grouped by. */
export function groupColumn<Row extends { group: Record<string, string> }>(
  key: string,
  title: string,
  link?: (row: Row) => string,
): Column<Row> {
  return nameColumn(key, title, (row) => row.group[key] ?? "", link);
}

/** The column that tells clusters apart, where rows are of several. */
export function clusterColumns<Row>(rows: readonly Row[], cluster: (row: Row) => string): Column<Row>[] {
  return new Set(rows.map(cluster)).size > 1 ? [nameColumn("cluster", "Cluster", cluster)] : [];
}

/** Allocated as the whole bar, effective as the filled part of it; what nobody observed is hatched. */
export function useColumn<Row extends Costs>(): Column<Row> {
  return { key: "use", title: "Used", cell: (row) => <Bar row={row} />, by: utilization };
}

function Bar({ row }: { row: Costs }) {
  const used = ratio(row.effective_gpu_hours, row.allocated_gpu_hours) ?? 0;
  const unmeasured = ratio(row.unmeasured_gpu_hours, row.allocated_gpu_hours) ?? 0;
  return (
    <span class="bar">
      <span style={{ width: `${100 * used}%`, background: PART_COLOURS.effective_usd }} />
      <span class="missing" style={{ width: `${100 * unmeasured}%` }} />
      <span class="number">{percent(utilization(row))}</span>
    </span>
  );
}
