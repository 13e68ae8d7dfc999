// CSV that Excel opens with a double click: UTF-8 with a byte-order mark, and no cell that it would run as a formula.

import type { Figure } from "./format";

/** As CSV_FORMULA_STARTS of the API. */
const FORMULA = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/;

/** A number as it is, an unknown one empty, and text that would begin a formula after an apostrophe. */
function cellOf(cell: string | Figure): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(Math.round(cell * 1e6) / 1e6);
  const text = FORMULA.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export interface Cell<Row> {
  title: string;
  of: (row: Row) => string | Figure;
}

export function spreadsheetOf<Row>(columns: readonly Cell<Row>[], rows: readonly Row[]): string {
  const lines = [
    columns.map(({ title }) => cellOf(title)),
    ...rows.map((row) => columns.map((column) => cellOf(column.of(row)))),
  ];
  return `\ufeff${lines.map((cells) => cells.join(",")).join("\r\n")}\r\n`;
}

/** Saves a text as a file. */
export function save(text: string, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
