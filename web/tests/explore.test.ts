import { expect, test, vi } from "vitest";
import { hintOf } from "../src/charts/grid";
import type { CostRow, CostsResponse, Coverage } from "../src/api";
import { GROUP_COLORS, groupColors, IDLE_COLOR, MOST_GROUPS, OTHERS_COLOR, PART_COLORS } from "../src/charts/colors";
import { exceptIdle, figureColumn, ratioColumn, useColumn, wasteColumn } from "../src/columns";
import {
  changeOf,
  comparisonNote,
  comparisonOf,
  earlierPeriods,
  earlierText,
  fetchEarlier,
  relativeChange,
  scaled,
  withVanished,
} from "../src/compare";
import {
  backTo,
  chartedRows,
  chartRows,
  costsOfRows,
  costsOf,
  earlierTotals,
  excluded,
  familyOf,
  type Filter,
  filterQuery,
  groupJobs,
  IDLE,
  jobsText,
  limitOf,
  nameOf,
  opened,
  OTHERS,
  questionOf,
  sortOf,
  stepOf,
} from "../src/explore";
import { readRoute, type Route } from "../src/route";
import { bucketsOf } from "../src/series";
import { sheetOf } from "../src/spreadsheet";
import { cellsOf, colorOf, groupsIn, seriesOf } from "../src/views/explore";
import { foldedWorkloads } from "../src/views/workloads";

const at = (query: Record<string, string>): Route => ({ view: "explore", name: "", query });
const filter = (dimension: string, name: string, isExcluded = false): Filter => ({ dimension, name, isExcluded });

test("filters round-trip through the URL, whatever the names contain", () => {
  const filters = [
    filter("namespace", "a,b"),
    filter("namespace", "c\\d!*", true),
    filter("workload", ""),
    filter("zone", "", true),
    filter("label:team", "search"),
  ];
  const query = filterQuery(filters, []);
  expect(questionOf(at(query)).filters).toEqual(filters);
  expect(Object.values(filterQuery([], filters))).toEqual(["", "", "", ""]);
});

test("the API gets names as they are, and labels in one parameter", () => {
  const question = questionOf(
    at(
      filterQuery(
        [
          filter("namespace", "a,b"),
          filter("namespace", "kube", true),
          filter("label:team", "x"),
          filter("label:env", "dev", true),
        ],
        [],
      ),
    ),
  );
  expect(costsOf(question)).toEqual({
    group_by: "business_unit",
    namespace: "a\\,b,!kube",
    label: "team:x,env:!dev",
  });
  expect(costsOf({ ...question, filters: [], measure: "cost_usd" })).toEqual({
    group_by: "business_unit",
    idle: "shared-by-allocation",
  });
});

test("idle cost is shared, or a row of its own where the address says so", () => {
  const idleOf = (query: Record<string, string>) => costsOf(questionOf(at(query)))["idle"];
  expect(idleOf({ measure: "cost_usd" })).toBe("shared-by-allocation");
  expect(idleOf({ measure: "cost_usd", idle: "separate" })).toBe("separate");
  expect(idleOf({ measure: "waste_usd", idle: "separate" })).toBeUndefined();
});

test("an earlier period's totals stand at the same hours, and are unknown where a figure is", () => {
  const DAY = 24 * 3_600_000;
  const buckets = bucketsOf("2026-11-18T00:00:00Z", "2026-11-21T00:00:00Z", "day");
  const row = (date: string, waste_usd: number | null) =>
    ({ start: `2026-11-${date}T00:00:00Z`, waste_usd }) as CostRow;
  const rows = [row("11", 1), row("11", 2), row("12", 5), row("12", null), row("12", 1)];
  expect(earlierTotals("waste_usd", buckets, 7 * DAY, rows)).toEqual([3, null, null]);
  expect(earlierTotals("waste_usd", buckets, 5.5 * DAY, rows)).toEqual([]);
  expect(earlierTotals("waste_usd", { ...buckets, step: "month" }, 28 * DAY, rows)).toEqual([]);
});

test("an opened group becomes a filter, and the trail leads back", () => {
  const first = questionOf(at({}));
  const query = opened(first, { business_unit: "research" });
  expect(query).toMatchObject({ by: "workload", trail: "business_unit", "f.business_unit": "research" });
  const second = questionOf(at(query));
  const third = questionOf(
    at({
      ...query,
      ...opened(second, { workload: "train" }),
    }),
  );
  expect(third).toMatchObject({ by: "pod", trail: ["business_unit", "workload"] });
  const back = questionOf(
    at({
      ...query,
      ...opened(second, { workload: "train" }),
      ...backTo(third, 1),
    }),
  );
  expect(back).toEqual(second);
  expect(questionOf(at({ ...query, ...backTo(second, 0) }))).toEqual(first);
});

test("groups of two dimensions have both names, and open with both as filters", () => {
  const question = questionOf(at({ by: "business_unit", then: "cluster" }));
  expect(costsOf(question).group_by).toBe("business_unit,cluster");
  expect(nameOf(question, row({ group: { business_unit: "a", cluster: "west" } }))).toBe("a · west");
  expect(nameOf(question, row({ group: { business_unit: "", cluster: "west" } }))).toBe("none · west");
  expect(questionOf(at({ by: "cluster", then: "cluster" })).then).toBe("");
  const query = opened(question, { business_unit: "a", cluster: "west" });
  expect(query).toEqual({
    by: "workload",
    then: "",
    trail: "business_unit+cluster",
    "f.business_unit": "a",
    "f.cluster": "west",
  });
  expect(questionOf(at({ ...query, ...backTo(questionOf(at(query)), 0) }))).toEqual(question);
  expect(limitOf(questionOf(at({ then: "pod" })), "2026-11-01T00:00:00Z", "2026-11-04T00:00:00Z")).toContain(
    "48 hours",
  );
});

test("the chart of two dimensions has their pairs, and no other pair of the same names", () => {
  const question = questionOf(at({ by: "business_unit", then: "cluster" }));
  const start = "2026-11-18T00:00:00Z";
  const of = (business_unit: string, cluster: string, allocated_usd: number) =>
    row({ start, group: { business_unit, cluster }, allocated_usd });
  const rows = [of("a", "west", 5), of("b", "east", 3), of("a", "east", 1)];
  const charted = chartedRows(question, rows, 2);
  expect(costsOfRows(question, charted)).toMatchObject({ business_unit: "a,b", cluster: "west,east" });
  const names = charted.map((charted) => nameOf(question, charted));
  const { totals } = chartRows(question, bucketsOf(start, "2026-11-18T01:00:00Z", "hour"), names, rows, rows);
  expect(totals).toEqual({ "a · west": 5, "b · east": 3, [OTHERS]: 1 });
});

test("the table's count is that of its rows, and the groups in rows of Jobs are counted, too", () => {
  const jobs = Array.from({ length: 113 }, (_, at) => row({ group: { workload: `train-${at}` } }));
  const others = Array.from({ length: 37 }, (_, at) => row({ group: { workload: `server${at}x` } }));
  const rows = groupJobs([...jobs, ...others], ({ group }) => group["workload"]?.startsWith("train-") === true);
  expect([rows.length, groupsIn(rows)]).toEqual([38, 150]);
});

test("node costs have the dimensions of nodes", () => {
  const limit = (query: Record<string, string>, days: number) =>
    limitOf(questionOf(at(query)), "2026-11-01T00:00:00Z", `2026-11-${1 + days}T00:00:00Z`.replace(/-(\d)T/, "-0$1T"));
  expect(limit({ measure: "node_cost_usd" }, 1)).toMatch(
    /^The node cost is that of nodes, which have no other dimensions/,
  );
  expect(limit({ measure: "unallocated_usd", by: "cluster", "f.namespace": "a" }, 1)).toContain("“Cost with idle”");
  expect(limit({ measure: "unallocated_usd", by: "cluster" }, 29)).toBeUndefined();
  expect(limit({ measure: "unallocated_usd", by: "node_pool", then: "zone" }, 7)).toBeUndefined();
  expect(limit({ measure: "unallocated_usd", by: "node_pool" }, 8)).toContain("7 days");
  const opening = opened(questionOf(at({ measure: "node_cost_usd", by: "cluster" })), { cluster: "west" });
  expect(opening).toMatchObject({ by: "node_pool", "f.cluster": "west" });
});

test("unknown dimensions and measures become the defaults", () => {
  expect(questionOf(readRoute("#/explore?by=nothing&measure=toString"))).toMatchObject({
    by: "business_unit",
    measure: "allocated_usd",
  });
});

test("a chart of some groups replaces the filters of their dimension", () => {
  const question = questionOf(at({ "f.business_unit": "!other", "f.zone": "a" }));
  const rows = [row({ group: { business_unit: "x" } }), row({ group: { business_unit: "" } })];
  expect(costsOfRows(question, rows)).toMatchObject({ business_unit: "x,!*", zone: "a" });
});

test("granularity is one that the API has for the period and the dimension", () => {
  const question = questionOf(at({}));
  const step = (by: string, end: string, selected?: string) =>
    stepOf({ ...question, by }, "2026-11-01T00:00:00Z", end, selected);
  expect(step("business_unit", "2026-11-03T00:00:00Z")).toBe("hour");
  expect(step("workload", "2026-11-10T00:00:00Z", "hour")).toBe("day");
  expect(step("business_unit", "2026-11-30T00:00:00Z", "hour")).toBe("hour");
  expect(step("business_unit", "2027-06-01T00:00:00Z", "hour")).toBe("week");
});

test("a limit of the API is a sentence", () => {
  const question = questionOf(at({ by: "pod" }));
  expect(limitOf(question, "2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z")).toBeUndefined();
  expect(limitOf(question, "2026-11-01T00:00:00Z", "2026-11-04T00:00:00Z")).toMatch(
    /^Costs by pod .* 48 hours\. Select/,
  );
});

const row = (fields: Partial<CostRow>): CostRow =>
  ({ kind: "group", allocated_gpu_hours: 1, unpriced_gpu_hours: 0, group: {}, ...fields }) as CostRow;

test("an excluded group becomes a filter next to the others, and the trail stays", () => {
  const question = questionOf(at({ by: "workload", "f.workload": "!a", "f.zone": "z", trail: "zone" }));
  const after = questionOf(at({ by: "workload", trail: "zone", ...excluded(question, "b,c") }));
  expect(after.trail).toEqual(["zone"]);
  expect(costsOf(after)).toEqual({ group_by: "workload", workload: "!a,!b\\,c", zone: "z" });
  expect(costsOf(questionOf(at(excluded(questionOf(at({})), ""))))).toMatchObject({ business_unit: "*" });
});

test("the CSV has the table's order where the API has it", () => {
  const question = questionOf(at({ by: "namespace", measure: "waste_usd" }));
  expect(sortOf(question, undefined)).toBe("-waste_usd");
  expect(sortOf(question, "namespace")).toBe("namespace");
  expect(sortOf(question, "-effective_usd")).toBe("-effective_usd");
  expect(sortOf(question, "share")).toBe("waste_usd");
  expect(sortOf(question, "-change")).toBe("-waste_usd");
  expect(sortOf(question, "~change")).toBe("-waste_usd");
  expect(sortOf(question, "-toString")).toBe("-waste_usd");
});

test("the chart's groups and the others add up to all rows, and a missing bucket is a gap", () => {
  const buckets = bucketsOf("2026-11-18T00:00:00Z", "2026-11-18T04:00:00Z", "hour");
  const question = questionOf(at({ by: "namespace" }));
  const hour = (number: number) => `2026-11-18T0${number}:00:00Z`;
  const groups = [
    row({ start: hour(0), group: { namespace: "a" }, allocated_usd: 3 }),
    row({ start: hour(2), group: { namespace: "a" }, allocated_usd: null }),
  ];
  const all = [
    row({ start: hour(0), allocated_usd: 4 }),
    row({ start: hour(0), allocated_usd: 5, allocated_gpu_hours: 3, unpriced_gpu_hours: 2 }),
    row({ start: hour(1), allocated_usd: 7 }),
    row({ start: hour(2), allocated_usd: null, unpriced_gpu_hours: 1 }),
  ];
  const chart = chartRows(question, buckets, ["a"], groups, all);
  expect(chart.rows).toEqual([{ a: 3, [OTHERS]: 6 }, { a: 0, [OTHERS]: 7 }, { a: null, [OTHERS]: null }, undefined]);
  expect(chart.totals).toEqual({ a: 3, [OTHERS]: 13 });
  expect(chart.priced).toEqual([0.5, 1, 0, 1]);
  expect(chartRows({ ...question, measure: "allocated_gpu_hours" }, buckets, [], [], all).priced).toEqual([1, 1, 1, 1]);
});

const coverage = (hours_complete: number, hours_expected = 100) => ({ hours_complete, hours_expected }) as Coverage;

test("complete periods are compared as they are", () => {
  const comparison = comparisonOf(coverage(100), coverage(100));
  expect(changeOf(12, 10, comparison)).toBe(2);
  expect(relativeChange(12, 10, comparison)).toBeCloseTo(0.2);
  expect(relativeChange(12, 0, comparison)).toBeNull();
  expect(changeOf(null, 10, comparison)).toBeNull();
  expect(comparisonNote(coverage(100), coverage(100), "a week before")).toBeNull();
});

test("with few missing hours, changes are for the same number of hours; with many, there are none", () => {
  const few = comparisonOf(coverage(96), coverage(100));
  expect(changeOf(96, 100, few)).toBeCloseTo(0);
  expect(comparisonNote(coverage(96), coverage(100), "a week before")).toBe(
    "Changes are approximate. Cluster-hours without figures: 4 of 100 now.",
  );
  expect(comparisonNote(coverage(100), coverage(99), "a week before")).toBe(
    "Changes are approximate. Cluster-hours without figures: 1 of 100 a week before.",
  );
  expect(comparisonOf(coverage(94), coverage(100))).toBeNull();
  expect(comparisonOf(coverage(100), coverage(0, 0))).toBeNull();
  expect(comparisonNote(coverage(94), coverage(100), "a week before")).toMatch(/^Changes are not shown/);
});

test.each([0, 504])(
  "an earlier period of %s cluster-hours without any figures is called older than the data",
  (expected) => {
    expect(comparisonNote(coverage(504, 504), coverage(0, expected), "a week before")).toBe(
      "Changes are not shown. There are no figures of the earlier period (a week before): it is older than the data, or all its hours are missing.",
    );
  },
);

test("a group that only the period before has is a row of zeros", () => {
  const figures = { waste_usd: 3, energy_kwh: 5, co2e_kg: null };
  const [now, gone] = ["now", "gone"].map((name) => row({ group: { namespace: name }, ...figures }));
  const rows = withVanished([now as CostRow], [gone as CostRow, now as CostRow]);
  const known = rows.map((each) => [each.group["namespace"], each.waste_usd, each.energy_kwh, each.co2e_kg]);
  expect(known).toEqual([
    ["now", 3, 5, null],
    ["gone", 0, 0, null],
  ]);
});

test("periods are compared with the same weekdays first, then with the period before", () => {
  const name = (start: string, end: string) => earlierPeriods(start, end).map((period) => [period.start, period.name]);
  expect(name("2026-11-18T05:00:00Z", "2026-11-19T05:00:00Z")).toEqual([
    ["2026-11-11T05:00:00Z", "a week before"],
    ["2026-11-17T05:00:00Z", "the previous 24 hours"],
  ]);
  expect(name("2026-11-02T00:00:00Z", "2026-11-16T00:00:00Z")).toEqual([["2026-10-19T00:00:00Z", "2 weeks before"]]);
  for (const { start, end } of earlierPeriods("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"))
    expect(Date.parse(end) - Date.parse(start)).toBe(30 * 24 * 3_600_000);
  expect(new Date(earlierPeriods("2026-11-18T05:00:00Z", "2026-11-19T00:00:00Z")[0].start).getUTCDay()).toBe(
    new Date("2026-11-18T05:00:00Z").getUTCDay(),
  );
});

const NOW = { start: "2026-11-18T00:00:00Z", end: "2026-11-19T00:00:00Z", coverage: coverage(24, 24) };

/** Fetches the earlier period of a day of which the API has so many hours by day of the month. */
async function fetchedEarlier(hoursByDay: Record<string, number>, chosen?: string, now = NOW) {
  const days: string[] = [];
  const load = (period: { start: string; end: string }) => {
    expect(Object.keys(period)).toEqual(["start", "end"]); // the API's parameters
    const day = period.start.slice(8, 10);
    days.push(day);
    return Promise.resolve({ coverage: coverage(hoursByDay[day] ?? 0, 24) });
  };
  const { period, reason } = await fetchEarlier(now, load, chosen);
  return { days, name: period.name, reason };
}

test("another period than a week before is compared only if that one lacks figures, and the reason is given", async () => {
  expect(await fetchedEarlier({ "11": 24, "17": 24 })).toEqual({ days: ["11"], name: "a week before", reason: null });
  expect(await fetchedEarlier({ "11": 3, "17": 24 })).toEqual({
    days: ["11", "17"],
    name: "the previous 24 hours",
    reason: "Not with a week before, which has figures for 3 of 24 cluster-hours",
  });
  expect(await fetchedEarlier({})).toMatchObject({ name: "a week before", reason: null });
  // What is missing now is no reason for another period.
  const cut = { ...NOW, coverage: coverage(12, 24) };
  expect(await fetchedEarlier({ "11": 24 }, "", cut)).toMatchObject({ days: ["11"], name: "a week before" });
});

test("a chosen period is compared, whatever figures it has", async () => {
  expect(await fetchedEarlier({ "17": 24 }, "week")).toEqual({ days: ["11"], name: "a week before", reason: null });
  expect(await fetchedEarlier({ "11": 24 }, "previous")).toEqual({
    days: ["17"],
    name: "the previous 24 hours",
    reason: null,
  });
});

test("a comparison says when the earlier period was, and why it is not the default", () => {
  const [week, previous] = earlierPeriods("2026-11-16T00:00:00Z", "2026-11-19T00:00:00Z");
  expect(earlierText({ period: week, reason: null }, "utc")).toBe(
    "a week before (Mon 9 Nov, 00:00 UTC to Thu 12 Nov, 00:00 UTC)",
  );
  expect(earlierText({ period: previous as typeof week, reason: "Not with a week before" }, "utc")).toMatch(
    /^the previous 3 days \(Fri 13 Nov.*\)\. Not with a week before$/,
  );
});

test("the earlier figure and the change add up to the figure, also with missing hours", () => {
  const comparison = comparisonOf(coverage(96), coverage(100));
  const [before, now] = [50, 60];
  expect((scaled(before, comparison) ?? 0) + (changeOf(now, before, comparison) ?? 0)).toBeCloseTo(now);
  expect(scaled(null, comparison)).toBeNull();
  expect(scaled(before, null)).toBeNull();
});

test("jobs whose names begin alike are one row, and other workloads are not", () => {
  expect(["pretrain-rl2j72f9", "ablation-trltttjz", "render-2106-0-retry", "backfill", "7z"].map(familyOf)).toEqual([
    "pretrain",
    "ablation",
    "render",
    "",
    "",
  ]);
  const row = (workload: string, usd: number | null) =>
    ({ group: { workload }, allocated_usd: usd, allocated_gpu_hours: 1 }) as unknown as CostRow;
  const rows = [row("train-a1", 1), row("train-b2", 2), row("train-c3", 4), row("eval-d4", 8), row("notebook-1", 16)];
  const jobs = new Set(["train-a1", "train-b2", "train-c3", "eval-d4"]);
  const grouped = groupJobs(rows, ({ group }) => jobs.has(group["workload"] ?? ""));
  expect(
    grouped.map(({ group, allocated_usd, jobs: members }) => [group["workload"], allocated_usd, members?.length]),
  ).toEqual([
    ["train-*", 7, 3],
    ["eval-d4", 8, undefined],
    ["notebook-1", 16, undefined],
  ]);
  expect(groupJobs(rows, ({ group }) => group["workload"] !== "train-a1")).toHaveLength(5);
  expect(groupJobs([...rows, row("train-e5", null)], () => true)[0]?.allocated_usd).toBeNull();
  const measured = rows.map((each) => ({ ...each, energy_kwh: 2, co2e_kg: null }));
  expect(groupJobs(measured, () => true)[0]).toMatchObject({ energy_kwh: 6, co2e_kg: null });
});

test("a unit's Jobs are one row per cluster and namespace, and other kinds of workloads are not", () => {
  const job = (workload: string, namespace = "ml", workload_kind = "Job") =>
    row({ group: { cluster: "west", namespace, workload_kind, workload }, allocated_usd: 1 });
  const rows = [
    ...["train-1", "train-2", "train-3"].flatMap((name) => [job(name), job(name, "dev")]),
    ...["web-1", "web-2", "web-3"].map((name) => job(name, "ml", "StatefulSet")),
  ];
  const folded = foldedWorkloads(rows);
  expect(folded.map(({ group, jobs }) => [group["namespace"], group["workload"], jobs?.length])).toEqual([
    ["ml", "train-*", 3],
    ["dev", "train-*", 3],
    ...["web-1", "web-2", "web-3"].map((name) => ["ml", name, undefined]),
  ]);
  expect(jobsText(folded)).toBe("Jobs with similar names share 2 rows; open one to see them");
  expect(jobsText(rows)).toBe("");
});

test("grouped Jobs are one group of the chart, as in the table, without others whose names begin alike", () => {
  const question = questionOf(at({ by: "workload", "f.business_unit": "research", "f.workload": "!eval" }));
  const row = (workload: string, allocated_usd: number | null, start = "2026-11-18T00:00:00Z") =>
    ({ start, group: { workload }, allocated_usd, allocated_gpu_hours: 1 }) as unknown as CostRow;
  const jobs = ["train-a1", "train-b2", "train-c3"];
  const table = groupJobs(
    [row("a,b", 5), ...jobs.map((name) => row(name, 2)), row("train-set", 1), row("old", 0)],
    ({ group }) => jobs.includes(group["workload"] ?? ""),
  );
  const charted = chartedRows(question, table, 3);
  expect(charted.map(({ group }) => group["workload"])).toEqual(["train-*", "a,b", "train-set"]);
  expect(chartedRows(question, table, 2)).toEqual(charted.slice(0, 2));
  const costs = costsOfRows(question, charted);
  expect(costs).toMatchObject({ group_by: "workload", business_unit: "research", workload: "train-*,a\\,b,train-set" });
  expect(costsOfRows(question, charted.slice(1)).workload).toBe("a\\,b,train-set");
  const buckets = bucketsOf("2026-11-18T00:00:00Z", "2026-11-18T01:00:00Z", "hour");
  const rows = [row("a,b", 5), ...jobs.map((name) => row(name, 2)), row("train-set", 1)];
  const groups = new Map([["a,b", "a,b"], ...jobs.map((name) => [name, "train-*"] as const)]);
  const chart = chartRows(question, buckets, ["train-*", "a,b"], rows, rows, groups);
  expect(chart.rows).toEqual([{ "train-*": 6, "a,b": 5, [OTHERS]: 1 }]);
});

test("an amount that follows from utilization is unknown for a group without a measurement", () => {
  const buckets = bucketsOf("2026-11-18T00:00:00Z", "2026-11-18T01:00:00Z", "hour");
  const row = (name: string, unmeasured_gpu_hours: number) =>
    ({
      start: "2026-11-18T00:00:00Z",
      group: { team: name },
      allocated_gpu_hours: 2,
      unmeasured_gpu_hours,
      waste_usd: 0,
    }) as unknown as CostRow;
  const groups = [row("a", 2), row("b", 0)];
  const question = { ...questionOf(at({ measure: "waste_usd" })), by: "team" };
  expect(chartRows(question, buckets, ["a", "b"], groups, groups).totals).toEqual({ a: null, b: 0, [OTHERS]: 0 });
});

test("a group without any known figure has no total", () => {
  const buckets = bucketsOf("2026-11-18T00:00:00Z", "2026-11-18T02:00:00Z", "hour");
  const row = (hour: number, name: string, energy_kwh: number | null) =>
    ({ start: `2026-11-18T0${hour}:00:00Z`, group: { team: name }, energy_kwh }) as unknown as CostRow;
  const groups = [row(0, "a", null), row(1, "a", null), row(0, "b", 2), row(1, "b", null)];
  const question = { ...questionOf(at({ measure: "energy_kwh" })), by: "team" };
  expect(chartRows(question, buckets, ["a", "b"], groups, groups).totals).toEqual({ a: null, b: 2, [OTHERS]: null });
});

test("the idle cost is a group of its own, next to the others", () => {
  const question = questionOf(at({ by: "namespace", measure: "cost_usd", idle: "separate" }));
  const start = "2026-11-18T00:00:00Z";
  const groups = [row({ start, group: { namespace: "a" }, cost_usd: 3 })];
  const all = [row({ start, cost_usd: 5 }), row({ start, kind: "idle", cost_usd: 7, allocated_gpu_hours: 0 })];
  const buckets = bucketsOf(start, "2026-11-18T01:00:00Z", "hour");
  const { rows } = chartRows(question, buckets, ["a"], groups, all);
  expect(rows).toEqual([{ a: 3, [OTHERS]: 2, [IDLE]: 7 }]);
  expect(seriesOf(["a"], [], rows).map(({ name }) => name)).toEqual(["a", "others", "idle cost"]);
  expect(seriesOf(["a"], [], [{ a: 3, [OTHERS]: 0, [IDLE]: 7 }]).map(({ name }) => name)).toEqual(["a", "idle cost"]);
});

test.each([true, false])("no two groups of a chart have the same color, with idle cost: %s", (isIdleSeparate) => {
  const question = { ...questionOf(at({ by: "namespace" })), isIdleSeparate };
  const names = Array.from({ length: MOST_GROUPS }, (_, index) => `n${index}`);
  const series = seriesOf(names, [], [{ [OTHERS]: 1, ...(isIdleSeparate ? { [IDLE]: 1 } : {}) }]);
  expect(new Set(series.map(({ color }) => color)).size).toBe(series.length);
  const color = (name: string, fields: Partial<CostRow> = {}) =>
    colorOf(
      question,
      { names, units: [], groupByName: new Map([["job-1", "n1"]]) },
      row({ group: { namespace: name }, ...fields }),
    );
  for (const [index, name] of names.entries()) expect(color(name)).toBe(series[index]?.color);
  expect(color("job-1")).toBe(color("n1"));
  expect([color("small"), color("", { kind: "idle" })]).toEqual([OTHERS_COLOR, IDLE_COLOR]);
});

test("a business unit has the same color in every chart and browser, and no other unit of a chart has it", () => {
  const units = ["research", "assistant", "fraud-detection", "search", "vision", "media", "speech", "robotics"];
  const all = groupColors(units, units);
  expect(new Set(all.values()).size).toBe(units.length);
  for (const count of [1, 2, 3, 4, 5, 6, 7])
    for (const charted of [units.slice(0, count), units.slice(-count), [...units].reverse().slice(0, count)])
      for (const [name, color] of groupColors(charted, [...units].reverse())) expect(color, name).toBe(all.get(name));
  // A unit that the settings do not have does not take a color of theirs, nor do two of more units than colors.
  const many = Array.from({ length: 3 * GROUP_COLORS.length }, (_, index) => `unit-${index}`);
  for (let from = 0; from + 5 <= many.length; from += 5) {
    const charted = [...many.slice(from, from + 5), "another", "one-more"];
    expect(new Set(groupColors(charted, many).values()).size).toBe(charted.length);
  }
  const departed = groupColors([...units.slice(0, 3), "departed"], units);
  for (const name of units.slice(0, 3)) expect(departed.get(name)).toBe(all.get(name));
});

test("a group of another dimension keeps the color of its name after a reload", () => {
  expect(groupColors(["train", "serve"])).toEqual(groupColors(["serve", "train"]));
  const parts = new Set<string>(Object.values(PART_COLORS));
  for (const color of GROUP_COLORS) expect(parts.has(color)).toBe(false);
});

test("what does not apply to the idle cost is an empty cell, which comes last", () => {
  const column = exceptIdle(figureColumn<CostRow>("waste_usd", "Waste", ({ waste_usd }) => waste_usd, String));
  expect(column.cell(row({ waste_usd: 0 }))).toBe("0");
  expect(column.cell(row({ kind: "idle", waste_usd: 0 }))).toBe(false);
  expect(column.by?.(row({ kind: "idle", waste_usd: 0 }))).toBeNull();
  const use = exceptIdle(useColumn());
  const idle = row({ kind: "idle", allocated_gpu_hours: 0, unmeasured_gpu_hours: 0 });
  expect([use.mark?.(idle), use.cell(idle), use.unknown?.(idle)]).toEqual([false, false, undefined]);
});

test("a ratio of hardly measured GPU-hours is a dash, and the table says why", () => {
  const share = ratioColumn<CostRow>("share", "Waste %", ({ waste_usd }) => waste_usd);
  const of = (unmeasured_gpu_hours: number) => {
    const measured = row({ allocated_gpu_hours: 100, unmeasured_gpu_hours, waste_usd: 0.5 });
    return [share.by?.(measured), share.unknown?.(measured)];
  };
  expect(of(0)).toEqual([0.5, undefined]);
  expect(of(99.99)).toEqual([null, "utilization of less than 10% was measured"]);
  expect(of(100)).toEqual([null, "utilization was not measured"]);
});

test("a file for Excel has numbers, percentages and dates, and no cell that it runs", () => {
  const question = questionOf(at({ by: "namespace", then: "cluster", measure: "waste_usd" }));
  const whole = { currency: "EUR", start: "2026-11-01T06:00:00Z", end: "2026-11-02T00:00:00Z" } as CostsResponse;
  const figures = {
    ...{ allocated_gpu_hours: 10, effective_gpu_hours: 2, unmeasured_gpu_hours: 5 },
    ...{ allocated_usd: 20, effective_usd: 4, waste_usd: 6.1234567, unmeasured_usd: 10 },
  };
  const rows = [
    row({ ...figures, group: { namespace: "=1&<\u0001", cluster: "a,b" } }),
    row({ ...figures, unmeasured_gpu_hours: 10, effective_gpu_hours: 0, waste_usd: 0, effective_usd: 0, group: {} }),
  ];
  const cells = (xml: string) => [...xml.matchAll(/<c\/>|<c .*?<\/c>/g)].map(([cell]) => cell.replace(/<[^>]*>/g, ""));
  const [, header = "", first = "", second = ""] = sheetOf(cellsOf(question, whole), rows).split("<row>");
  expect(cells(header)).toEqual([
    ...["Namespace", "Cluster", "Start (UTC)", "End (UTC)", "Allocated cost (EUR)", "Effective cost (EUR)"],
    ...["Waste (EUR)", "Unmeasured cost (EUR)", "GPU-hours", "Effective GPU-hours", "Unmeasured GPU-hours"],
    ...["Utilization", "Waste %"],
  ]);
  const period = ["46327.25", "46328"]; // days since 30 December 1899
  const amounts = ["20", "4", "6.123457", "10", "10", "2", "5", "0.4", "0.306173"];
  expect(cells(first)).toEqual(["=1&amp;&lt;", "a,b", ...period, ...amounts]);
  expect(cells(second)).toEqual(["", "", ...period, "20", "", "", "10", "10", "", "10", "", ""]); // unknown, not zero
  expect(first).toContain('<c t="inlineStr" s="0">');
  expect(first.match(/<c s="\d"/g)).toEqual([
    ...Array<string>(2).fill('<c s="4"'),
    ...Array<string>(7).fill('<c s="2"'),
    ...Array<string>(2).fill('<c s="3"'),
  ]);
});

test("a table says of which part a share of waste is, if not of all", () => {
  const { remark } = wasteColumn<CostRow>(({ waste_usd }) => waste_usd);
  const of = (unmeasured_gpu_hours: number) => remark?.(row({ allocated_gpu_hours: 100, unmeasured_gpu_hours }));
  expect(of(10)).toMatch(/^≥: .* of the measured part$/);
  expect([of(0), of(100)]).toEqual([undefined, undefined]); // all of it, and nothing
});

test.each([
  [true, "Tap the chart."],
  [false, "Point at the chart, or focus it and use the arrow keys."],
])("a hint is for the device: without a mouse %s", (matches, hint) => {
  vi.stubGlobal("window", { matchMedia: () => ({ matches }) });
  expect(hintOf("the chart")).toBe(hint);
  vi.unstubAllGlobals();
});
