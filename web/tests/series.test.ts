import { describe, expect, test } from "vitest";
import type { HourRow } from "../src/api";
import {
  align,
  bucketsOf,
  cutOf,
  gapsOf,
  grainOf,
  hoursIn,
  lackingClusters,
  completeShare,
  placedTicks,
  pricedShare,
  stack,
  type Step,
  timeTicks,
} from "../src/series";

const HOURS = bucketsOf("2026-11-18T22:00:00Z", "2026-11-19T02:00:00Z", "hour");

describe("buckets", () => {
  test("hours, and days cut at the end of the period", () => {
    expect(HOURS.starts.map((at) => new Date(at).toISOString().slice(11, 13))).toEqual(["22", "23", "00", "01"]);
    const days = bucketsOf("2026-11-18T22:00:00Z", "2026-11-20T05:00:00Z", "day");
    expect(days.starts.map((at) => new Date(at).toISOString().slice(0, 13))).toEqual([
      "2026-11-18T22",
      "2026-11-19T00",
      "2026-11-20T00",
    ]);
  });

  test("weeks begin on Monday, months on the first, and the first bucket is cut", () => {
    const days = (step: Step) =>
      bucketsOf("2026-11-18T05:00:00Z", "2026-12-02T00:00:00Z", step).starts.map((time) =>
        new Date(time).toISOString().slice(5, 13),
      );
    expect(days("week")).toEqual(["11-18T05", "11-23T00", "11-30T00"]);
    expect(days("month")).toEqual(["11-18T05", "12-01T00"]);
    expect(days("day").slice(0, 2)).toEqual(["11-18T05", "11-19T00"]);
  });

  test("a bucket without a row is a gap, not a zero", () => {
    const rows = [{ start: "2026-11-18T23:00:00Z", usd: 0 }];
    expect(align(HOURS, rows).map((row) => row?.usd)).toEqual([undefined, 0, undefined, undefined]);
    expect(
      stack([
        [1, null, 3],
        [2, null, 0],
      ]),
    ).toEqual([
      [3, null, 3],
      [1, null, 3],
    ]);
  });

  test("only the hours of the used clusters can lack costs, and those of a cluster without any figures", () => {
    const row = (cluster: string, status: HourRow["status"]) => ({ cluster, status }) as HourRow;
    const rows = [row("used", "missing"), row("other", "complete"), row("other", "missing"), row("lost", "missing")];
    const clustersIn = (used: Set<string> | null) => hoursIn({ rows }, used)?.rows.map(({ cluster }) => cluster);
    expect(clustersIn(new Set(["used"]))).toEqual(["used", "lost"]);
    expect(clustersIn(null)).toEqual(["used", "other", "other", "lost"]);
    expect(hoursIn(null, new Set())).toBeNull();
  });

  test("share of complete hours in each bucket, over all clusters", () => {
    const hours: Pick<HourRow, "hour" | "status">[] = [
      { hour: "2026-11-18T22:00:00Z", status: "complete" },
      { hour: "2026-11-18T22:00:00Z", status: "missing" },
      { hour: "2026-11-18T23:00:00Z", status: "provisional" },
      { hour: "2026-11-18T23:00:00Z", status: "pending" }, // of another cluster, and not expected yet
      { hour: "2026-11-19T00:00:00Z", status: "incomplete" },
    ];
    // The last hour has not ended, so it is not expected and has no row.
    expect(completeShare(HOURS, hours, [{}, {}, undefined, undefined])).toEqual([0.5, 1, 0, 0]);
    expect(completeShare(HOURS, null, [{}, undefined, {}, {}])).toEqual([1, 0, 1, 1]);
  });

  test("a complete period has no gaps, also without hour statuses", () => {
    expect(completeShare(HOURS, null, [{}, undefined, {}, {}], true)).toEqual([1, 1, 1, 1]);
  });

  test("share of a row with a price: of the fleet's capacity, or of allocated GPU-hours", () => {
    const held = { allocated_gpu_hours: 8, unpriced_gpu_hours: 2 };
    expect(pricedShare(held)).toBe(0.75);
    expect(pricedShare({ ...held, capacity_gpu_hours: 10, unpriced_capacity_gpu_hours: 10 })).toBe(0);
    expect(pricedShare({ ...held, capacity_gpu_hours: null })).toBe(0.75);
    expect(pricedShare({ allocated_gpu_hours: 0, unpriced_gpu_hours: 0 })).toBe(1);
  });

  test("hours up to two weeks, then days, unless another granularity is selected and possible", () => {
    expect([24, 14 * 24, 15 * 24].map((hours) => grainOf(hours, undefined))).toEqual(["hour", "hour", "day"]);
    expect(grainOf(35 * 24, "hour")).toBe("hour");
    expect(grainOf(36 * 24, "hour")).toBe("day");
    expect(grainOf(24, "day")).toBe("day");
  });

  test("labels are at borders of buckets, with dates, and as many as fit", () => {
    const texts = (buckets: ReturnType<typeof bucketsOf>, most: number) =>
      timeTicks(buckets, "utc", most).map(({ column, text }) => `${column}: ${text}`);
    expect(texts(HOURS, 2)).toEqual(["0: 18 Nov, 22:00", "2: 19 Nov"]);
    const month = bucketsOf("2026-10-21T14:00:00Z", "2026-11-25T14:00:00Z", "hour");
    const labels = texts(month, 12);
    expect(labels.slice(0, 2)).toEqual(["10: 22 Oct", "106: 26 Oct"]);
    expect(labels.every((label) => /: \d+ (Oct|Nov)$/.test(label))).toBe(true);
    expect(texts(bucketsOf("2026-11-18T22:00:00Z", "2026-11-21T05:00:00Z", "day"), 2)).toEqual([
      "0: 18 Nov",
      "2: 20 Nov",
    ]);
  });
});

test("cut days and weeks say how much of them is in the period", () => {
  const days = bucketsOf("2026-11-18T22:00:00Z", "2026-11-20T13:00:00Z", "day");
  expect(days.starts.map((_, index) => cutOf(days, index))).toEqual([
    { hours: 2, of: 24 },
    null,
    { hours: 13, of: 24 },
  ]);
  const weeks = bucketsOf("2026-11-16T00:00:00Z", "2026-11-25T00:00:00Z", "week");
  expect(weeks.starts.map((_, index) => cutOf(weeks, index))).toEqual([null, { hours: 48, of: 168 }]);
  expect(cutOf(HOURS, 0)).toBeNull();
});

test("the clusters without figures are named", () => {
  const row = (cluster: string, hour: string, status: HourRow["status"]) => ({ cluster, hour, status });
  const hours = [
    row("b", "2026-11-18T22:00:00Z", "missing"),
    row("a", "2026-11-18T22:00:00Z", "incomplete"),
    row("c", "2026-11-18T22:00:00Z", "provisional"),
    row("c", "2026-11-18T23:00:00Z", "missing"),
  ];
  expect([0, 1, 2].map((index) => lackingClusters(HOURS, index, hours))).toEqual([["a", "b"], ["c"], []]);
});

test("missing hours are listed by cluster, with consecutive hours merged", () => {
  const row = (cluster: string, hour: string, status: HourRow["status"]) => ({
    cluster,
    hour: `2026-11-18T${hour}:00:00Z`,
    status,
  });
  const gaps = gapsOf([
    row("b", "01", "missing"),
    row("a", "02", "incomplete"),
    row("a", "01", "missing"),
    row("a", "00", "missing"),
    row("a", "03", "provisional"),
    row("a", "04", "incomplete"),
    row("b", "00", "complete"),
  ]);
  const tableRows = gaps.map(({ cluster, status, start, end }) => [
    cluster,
    status,
    new Date(start).getUTCHours(),
    new Date(end).getUTCHours(),
  ]);
  expect(tableRows).toEqual([
    ["a", "missing", 0, 2],
    ["a", "incomplete", 2, 3],
    ["a", "incomplete", 4, 5],
    ["b", "missing", 1, 2],
  ]);
});

test("labels end at the edge, and the last one is left out without room", () => {
  const ticks = [
    { column: 0, text: "25 Nov, 00:00" },
    { column: 20, text: "26 Nov" },
  ];
  const lefts = (width: number) => placedTicks(ticks, 24, width, 7).map(({ left }) => left);
  expect(lefts(480)).toEqual([0, 400]); // at its column
  expect(lefts(240)).toEqual([0, 240 - 6 * 7]); // of which 40 pixels are not enough for six letters
  expect(lefts(120)).toEqual([0]); // the first one takes 91 of 120 pixels
});
