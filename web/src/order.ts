// The order of a table: "key", "-key" for descending, and "~key" for the largest figures first, whatever their sign.

import type { Figure } from "./format";

export interface Sortable<Row> {
  key: string;
  /** Sort key; columns without it cannot be sorted. */
  by?: (row: Row) => string | Figure;
  /** Whether its figures are changes: increases and decreases are of the same interest. */
  isChange?: boolean;
}

const SIGNS = /^[-~]/;

export function keyOf(order: string): string {
  return order.replace(SIGNS, "");
}

/** The order after a click on a column's header. Changes have three: by size, by increase, by decrease. */
export function orderAfter<Row>({ key, isChange }: Sortable<Row>, order: string): string {
  const [first = "", ...others] = isChange === true ? [`~${key}`, `-${key}`, key] : [`-${key}`, key];
  const orders = [first, ...others];
  return orders[orders.indexOf(order) + 1] ?? first;
}

/** How a header shows the order: its arrow, what it means for screen readers, and in words if the arrow needs them. */
export function orderMark(order: string): { arrow: string; aria: "ascending" | "descending" | "other"; text?: string } {
  if (order.startsWith("~")) return { arrow: "↕", aria: "other", text: "Largest change first, up or down" };
  return order.startsWith("-") ? { arrow: "↓", aria: "descending" } : { arrow: "↑", aria: "ascending" };
}

export function sorted<Row>(rows: readonly Row[], columns: readonly Sortable<Row>[], order: string): Row[] {
  const by = columns.find(({ key }) => key === keyOf(order))?.by;
  if (by === undefined) return [...rows];
  const sign = SIGNS.test(order) ? -1 : 1;
  const rank = (row: Row) => {
    const figure = by(row);
    return order.startsWith("~") && typeof figure === "number" ? Math.abs(figure) : figure;
  };
  return [...rows].sort((first, second) => {
    const [left, right] = [rank(first), rank(second)];
    if (left === null || left === undefined) return right === null || right === undefined ? 0 : 1;
    if (right === null || right === undefined) return -1; // unknown figures come last in every order
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  });
}
