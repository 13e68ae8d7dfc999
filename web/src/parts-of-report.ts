// Adds up the parts of a report that the API reads in parts, because it is large. A group can have a row in each part.

import { NEEDS } from "./amounts";
import { type CostRow, fetchJson, type Parameters, type ResponseBody, type TablePath } from "./api";

/** Figures that are unknown where any part's are. The others are unknown where all are. */
const IDLE = ["idle_gpu_hours", "idle_usd", "cost_usd"] as const;
const SUMS = Object.keys(NEEDS) as (keyof typeof NEEDS)[];

/** Fetches all parts. Rows are sorted again, and cut if only a page of them is wanted. */
export async function fetchParts(path: string, parameters: object, first: object, pages: number): Promise<never> {
  const { limit, ...query } = parameters as Parameters<"v1/costs">;
  const costs = path as TablePath as "v1/costs";
  let page = limit === undefined ? (first as ResponseBody<"v1/costs">) : await fetchJson(costs, query);
  const rows = [...page.rows];
  while (page.cursor !== null) {
    page = await fetchJson(costs, { ...query, cursor: page.cursor });
    for (const row of page.rows) rows.push(row);
  }
  const sums = sorted(sumOfParts(rows), query.sort ?? "");
  const most = limit === undefined ? Infinity : Number(limit) * pages;
  return { ...page, rows: sums.slice(0, most), row_count: sums.length, cursor: null } as never;
}

/** One row for each start, kind and group. */
export function sumOfParts(rows: readonly CostRow[]): CostRow[] {
  const sums = new Map<string, CostRow>();
  for (const row of rows) {
    const key = JSON.stringify([row.start, row.kind, Object.values(row.group)]);
    const sum = sums.get(key);
    if (sum === undefined) sums.set(key, { ...row });
    else addTo(sum, row);
  }
  return [...sums.values()];
}

function addTo(sum: CostRow, row: CostRow) {
  const figures: Record<string, number | null | undefined> = sum as never;
  for (const key of SUMS) {
    const [left, right] = [sum[key], row[key]];
    figures[key] = left == null ? right : right == null ? left : left + right;
  }
  for (const key of IDLE)
    if (sum[key] !== undefined) {
      const [left, right] = [sum[key], row[key]];
      figures[key] = left == null || right == null ? null : left + right;
    }
  // The parts of a group without a price have no cost with idle; all together have one.
  if (sum.idle_usd != null && sum.allocated_usd != null) figures["cost_usd"] = sum.allocated_usd + sum.idle_usd;
}

/** In the API's order: unknown figures last, equal ones as they are. */
function sorted(rows: CostRow[], order: string): CostRow[] {
  for (const name of order.split(",").filter(Boolean).reverse()) {
    const [key, sign] = name.startsWith("-") ? [name.slice(1), -1] : [name, 1];
    const of = (row: CostRow) => (key in row.group ? row.group[key] : row[key as "start"]);
    rows.sort((left, right) => {
      const [a, b] = [of(left), of(right)];
      return a == null || b == null ? Number(a == null) - Number(b == null) : sign * (a < b ? -1 : a > b ? 1 : 0);
    });
  }
  return rows;
}

/** Rows of a CSV file with equal names are one row, with the exact sums of their amounts. */
export function addedUp(csv: string): string {
  const [header = "", ...lines] = csv.split("\r\n");
  const names = header.split(",");
  const amounts = new Set<string>([...SUMS, ...IDLE]);
  const first = names.findIndex((name) => amounts.has(name));
  if (!names.slice(first).every((name) => amounts.has(name))) return csv; // unit costs have no sums, nor parts
  const rows = new Map<string, string[]>();
  for (const line of lines.filter(Boolean)) {
    const cells = cellsOf(line);
    const key = JSON.stringify(cells.slice(0, first));
    const sum = rows.get(key);
    const added = (cell: string, at: number) => (at < first ? cell : plus(names[at] ?? "", sum?.[at] ?? "", cell));
    rows.set(key, sum === undefined ? cells : cells.map(added));
  }
  return [header, ...[...rows.values()].map((cells) => cells.join(",")), ""].join("\r\n");
}

/** The cells as they are written, with their quotes. */
const cellsOf = (line: string) => `${line},`.match(/("(?:[^"]|"")*"|[^,]*),/g)?.map((cell) => cell.slice(0, -1)) ?? [];

/** The exact sum of two decimals with at most 12 digits after the point; "" is an unknown one. */
function plus(name: string, left: string, right: string): string {
  if (left === "" || right === "") return IDLE.some((idle) => idle === name) ? "" : left + right;
  const sum = scaled(left) + scaled(right);
  const digits = `${sum < 0n ? -sum : sum}`.padStart(13, "0");
  return `${sum < 0n ? "-" : ""}${digits.slice(0, -12)}.${digits.slice(-12)}`;
}

function scaled(text: string): bigint {
  const [whole = "", fraction = ""] = text.replace("-", "").split(".");
  const size = BigInt(whole + fraction.padEnd(12, "0"));
  return text.startsWith("-") ? -size : size;
}
