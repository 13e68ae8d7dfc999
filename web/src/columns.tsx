// Columns shared by several cost tables.

import type { ComponentChildren } from "preact";
import { type CostRow, type Line, MAX_DETAIL_HOURS, type ModelRow, type NodeRow } from "./api";
import { PART_COLORS } from "./charts/colors";
import {
  type Figure,
  type GpuHours,
  HOUR,
  HARDLY_MEASURED,
  instant,
  isMeasured,
  isRepresentative,
  isUnmeasured,
  knownFigure,
  money,
  NOT_MEASURED,
  percent,
  ratio,
  roundHours,
  shortNode,
  utilization,
  wastePercent,
} from "./format";
import { type AmountKey, amountTitle } from "./identity";
import { type Column, Name } from "./parts";
import { linkTo, type Route } from "./route";

/** A column with a figure. */
export function figureColumn<Row>(
  key: string,
  title: string,
  value: (row: Row) => Figure,
  shown: (value: Figure) => string,
): Column<Row> {
  return { key, title, isFigure: true, cell: (row) => shown(value(row)), by: value };
}

type Figures<Key extends string> = Partial<GpuHours & Record<Key, Figure>>;

/** A column with a figure of the rows. It is unknown, not zero, if it follows from utilization and nothing was measured. */
export function knownColumn<Key extends string, Row extends Figures<Key>>(
  key: Key,
  title: string,
  shown: (value: Figure) => string,
): Column<Row> {
  return {
    ...figureColumn<Row>(key, title, (row) => knownFigure(row, key), shown),
    unknown: (row) => (isUnmeasured(row, key) ? NOT_MEASURED : undefined),
  };
}

/** A column with an amount. */
export function moneyColumn<Key extends AmountKey, Row extends Figures<Key>>(key: Key, currency: string): Column<Row> {
  return knownColumn<Key, Row>(key, amountTitle(key), (value) => money(value, currency));
}

/** A column with the unmeasured cost, if there is any. */
export function unmeasuredColumns<Row extends Figures<"unmeasured_usd">>(
  rows: readonly Row[],
  currency: string,
): Column<Row>[] {
  const isComplete = rows.every(({ unmeasured_usd: usd }) => usd === 0);
  return isComplete ? [] : [moneyColumn("unmeasured_usd", currency)];
}

/** A column with the allocated GPU-hours. */
export function gpuHoursColumn<Row extends CostRow | Line | ModelRow>(): Column<Row> {
  return figureColumn<Row>("allocated_gpu_hours", "GPU-hours", (row) => row.allocated_gpu_hours, roundHours);
}

/** The column with empty cells for the idle cost, to which it does not apply. */
export function exceptIdle<Row extends CostRow>(column: Column<Row>): Column<Row> {
  const { by, mark, unknown } = column;
  const isIdle = ({ kind }: Row) => kind === "idle";
  return {
    ...column,
    cell: (row) => !isIdle(row) && column.cell(row),
    ...(mark && { mark: (row) => !isIdle(row) && mark(row) }),
    ...(unknown && { unknown: (row) => (isIdle(row) ? undefined : unknown(row)) }),
    ...(by && { by: (row) => (isIdle(row) ? null : by(row)) }),
  };
}

/** A column with a name, optionally linked. */
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

/** A column with one of the dimensions that rows are grouped by. */
export function groupColumn<Row extends { group: Record<string, string> }>(
  key: string,
  title: string,
  link?: (row: Row) => string,
): Column<Row> {
  return nameColumn(key, title, (row) => row.group[key] ?? "", link);
}

/** A column with a node's short name, linked to its GPUs by hour. */
export function nodeColumn(route: Route): Column<NodeRow> {
  return nodeLinkColumn(route, (row) => row);
}

export function nodeLinkColumn<Row>(
  route: Route,
  nodeOf: (row: Row) => Pick<NodeRow, "node" | "cluster">,
): Column<Row> {
  const cell = (row: Row) => {
    const { node, cluster } = nodeOf(row);
    return (
      <a href={linkTo(route, "nodes", "", { node, cluster })} title={node}>
        <Name>{shortNode(node)}</Name>
      </a>
    );
  };
  return { key: "node", title: "Node", cell, by: (row) => nodeOf(row).node };
}

/** The pods of a period; of a long one, those of its last day. */
export function linkToPods(
  route: Route,
  { start, end }: { start: string; end: string },
  filters: Record<string, string>,
): string {
  const hours = (Date.parse(end) - Date.parse(start)) / HOUR;
  const shown = hours <= MAX_DETAIL_HOURS ? hours : 24;
  return linkTo(route, "hour", instant(Date.parse(end) - shown * HOUR), { hours: String(shown), ...filters });
}

/** A cluster column, if rows belong to several clusters. */
export function clusterColumns<Row>(rows: readonly Row[], cluster: (row: Row) => string): Column<Row>[] {
  return new Set(rows.map(cluster)).size > 1 ? [nameColumn("cluster", "Cluster", cluster)] : [];
}

/** A bar: its length is the allocated cost, the green part is effective, the yellow one unmeasured. */
export function useColumn(): Column<CostRow> {
  return {
    ...ratioColumn<CostRow>("use", "Utilization", utilization),
    isFigure: false,
    mark: (row) => <Bar row={row} />,
  };
}

/** A column with a ratio that is unknown if too few GPU-hours were measured to say something of the others. */
export function ratioColumn<Row extends GpuHours>(
  key: string,
  title: string,
  ratioOf: (row: Row) => Figure,
): Column<Row> {
  return {
    ...figureColumn<Row>(key, title, (row) => (isRepresentative(row) ? ratioOf(row) : null), percent),
    unknown: unknownRatio,
  };
}

/** The column *Waste %*. */
export function wasteColumn<Row extends GpuHours>(shareOf: (row: Row) => Figure, title = "Waste %"): Column<Row> {
  const column = ratioColumn<Row>("share", title, shareOf);
  return {
    ...column,
    cell: (row) => wastePercent(row, column.by?.(row) as Figure),
    remark: (row) =>
      isMeasured(row) && (row.unmeasured_gpu_hours ?? 0) > 1e-9
        ? "≥: effective cost and waste are of the measured part"
        : undefined,
  };
}

/** Why a ratio of measured figures is unknown; undefined if it is known, or if nothing was allocated. */
export function unknownRatio(row: GpuHours): string | undefined {
  if (!isMeasured(row)) return NOT_MEASURED;
  return isRepresentative(row) || !row.allocated_gpu_hours ? undefined : HARDLY_MEASURED;
}

function Bar({ row }: { row: CostRow }) {
  const used = ratio(row.effective_gpu_hours, row.allocated_gpu_hours) ?? 0;
  const unmeasured = ratio(row.unmeasured_gpu_hours, row.allocated_gpu_hours) ?? 0;
  return (
    <span class="bar" title={unmeasured > 0 ? `${percent(1 - unmeasured)} of the GPU-hours were measured` : undefined}>
      <span style={{ width: `${100 * used}%`, color: PART_COLORS.effective_usd }} />
      <span class="unmeasured" style={{ width: `${100 * unmeasured}%`, color: PART_COLORS.unmeasured_usd }} />
    </span>
  );
}
