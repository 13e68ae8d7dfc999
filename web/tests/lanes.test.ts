import { expect, test } from "vitest";
import type { Holder, NodeRow } from "../src/api";
import { stripsOf } from "../src/lanes";

function holder(uid: string, units: number, share: number, hours = units * share): Holder {
  return { uid, pod: uid, resource: "gpu", units, gpu_share: share, allocated_gpu_hours: hours } as Holder;
}

function hour(capacity: number, holders: Holder[], rest: Partial<NodeRow> = {}): NodeRow {
  return {
    capacity_gpu_hours: capacity,
    stranded_gpu_hours: 0,
    unobserved_gpu_hours: 0,
    holders,
    ...rest,
  } as NodeRow;
}

function seats(rows: (NodeRow | undefined)[]): string[] {
  return stripsOf(rows).lanes.map((lane) =>
    lane.map((cell) => (cell.kind === "held" ? cell.holder.uid : cell.kind[0])).join(" "),
  );
}

test("a pod keeps its lanes, and lanes it leaves are free", () => {
  const [a, b, c] = [holder("A", 1, 1), holder("B", 2, 1), holder("C", 1, 1)];
  expect(seats([hour(4, [a, b]), hour(4, [b]), hour(4, [c, b])])).toEqual(["A f C", "B B B", "B B B", "f f f"]);
});

test("slices have separate lanes, and stranded lanes are at the bottom", () => {
  const two = holder("A", 3, 2 / 7);
  const strips = stripsOf([hour(1, [two, holder("B", 1, 1 / 7)]), hour(1, [two], { stranded_gpu_hours: 1 / 7 })]);
  expect(strips.perGpu).toBe(7);
  expect(seats([hour(1, [two, holder("B", 1, 1 / 7)]), hour(1, [two], { stranded_gpu_hours: 1 / 7 })])).toEqual([
    ...Array.from({ length: 6 }, () => "A A"),
    "B s",
  ]);
});

test("a missing hour is neither free nor held", () => {
  expect(seats([hour(1, [holder("A", 1, 1)]), undefined])).toEqual(["A a"]);
  expect(seats([hour(1, [], { holders: null })])).toEqual(["u"]);
});

test("part of an hour fills part of a cell", () => {
  const cell = stripsOf([hour(1, [holder("A", 1, 1, 0.25)])]).lanes[0]?.[0];
  expect(cell).toMatchObject({ kind: "held", part: 0.25 });
});

test("a part of an hour is next to the hour in which the pod holds the lane", () => {
  const [whole, begun, ended] = [holder("A", 1, 1), holder("A", 1, 1, 0.87), holder("A", 1, 1, 0.4)];
  const [lane = []] = stripsOf([hour(1, []), hour(1, [begun]), hour(1, [whole]), hour(1, [ended]), hour(1, [])]).lanes;
  const isAtEnd = (at: number) => (lane[at] as { isAtEnd?: boolean }).isAtEnd ?? false;
  expect([1, 2, 3].map(isAtEnd)).toEqual([true, false, false]);
  // Without a neighbor, or with both, nothing says when in the hour it was.
  expect(stripsOf([hour(1, [begun])]).lanes[0]?.[0]).toEqual({ kind: "held", holder: begun, part: 0.87 });
});
