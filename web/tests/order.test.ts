import { expect, test } from "vitest";
import { orderAfter, orderMark, sorted } from "../src/order";
import { hiddenColumns } from "../src/parts";

interface Row {
  change: number | null;
}
const COLUMN = { key: "change", by: (row: Row) => row.change, isChange: true };
const rows = [3, null, -20, 0, 50, -1].map((change) => ({ change }));
const changes = (order: string) => sorted(rows, [COLUMN], order).map(({ change }) => change);

test("changes are sorted by size, so that increases and decreases come first", () => {
  expect(changes("~change")).toEqual([50, -20, 3, -1, 0, null]);
  expect(changes("-change")).toEqual([50, 3, 0, -1, -20, null]);
  expect(changes("change")).toEqual([-20, -1, 0, 3, 50, null]);
});

test("the header of changes leads from their size to increases and to decreases", () => {
  const orders = ["-allocated_usd", "~change", "-change", "change"];
  expect(orders.map((order) => orderAfter(COLUMN, order))).toEqual(["~change", "-change", "change", "~change"]);
  expect(["name", "-cost", "cost"].map((order) => orderAfter({ key: "cost" }, order))).toEqual([
    "-cost",
    "cost",
    "-cost",
  ]);
});

test("a header says in words what an order by size is", () => {
  expect(orderMark("~change")).toEqual({ arrow: "↕", aria: "other", text: "Largest change first, up or down" });
  expect(orderMark("-cost")).toEqual({ arrow: "↓", aria: "descending" });
});

test("a table says how many columns it has beyond its room", () => {
  expect(hiddenColumns([100, 200, 301, 302, 400], 300)).toBe(2);
  expect(hiddenColumns([100, 200], 300)).toBe(0);
  expect(hiddenColumns([100], 0)).toBe(0); // not laid out yet
});
