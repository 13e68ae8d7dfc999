import { expect, test } from "vitest";
import { budgetNote, burnOf, intervalOf, type Month, projectionOf } from "../src/views/budget";

const HOURS = 24 * 4;
const at = (hour: number) => new Date(Date.UTC(2026, 10, 1, hour)).toISOString().replace(".000Z", "Z");
const day = (number: number, usd: number | null, unpriced = 0, cluster = "west") => ({
  group: { cluster },
  start: at(24 * number),
  end: at(24 * (number + 1)),
  allocated_gpu_hours: 24,
  unpriced_gpu_hours: unpriced,
  allocated_usd: usd,
});

function month(rows: ReturnType<typeof day>[], unknown: number, missing: number[] | null): Month {
  const hours = Array.from({ length: HOURS }, (_, hour) => ({
    cluster: "west",
    hour: at(hour),
    status: missing?.includes(hour) ? "missing" : "complete",
  }));
  return {
    costs: { start: at(0), end: at(HOURS), rows },
    forecast: { start: at(0), end: at(30 * 24), known_until: at(HOURS), hours_unknown: unknown },
    hours: missing === null ? null : { rows: hours },
  } as unknown as Month;
}

test("a day without a row is zero if all hours are known", () => {
  const { points, gaps } = burnOf(month([day(0, 5), day(2, 7)], 0, null));
  expect(points.map(({ spent }) => spent)).toEqual([5, 5, 12, 12]);
  expect(gaps).toEqual([]);
});

test("a day without a row is a gap, and half a gap if half of its hours are known", () => {
  const first = Array.from({ length: 24 }, (_, hour) => hour);
  const half = Array.from({ length: 12 }, (_, hour) => 48 + hour);
  const { points, gaps } = burnOf(month([day(2, 7)], 36, [...first, ...half]));
  expect(points.map(({ spent }) => spent)).toEqual([0, 7, 7]);
  expect(gaps.map(({ from, coverage }) => [new Date(from).getUTCDate(), coverage])).toEqual([
    [1, 0],
    [3, 0.5],
  ]);
});

test("without hour statuses, buckets with rows count as complete", () => {
  const { gaps } = burnOf(month([day(0, 5), day(1, 5)], 48, null));
  expect(gaps.map(({ from }) => new Date(from).getUTCDate())).toEqual([3, 4]);
});

test("days are sums of clusters, and only hours of the clusters that the unit uses can be missing", () => {
  const rows = [day(0, 5), day(1, 5), day(2, 5), day(3, 5), day(1, 2, 0, "east")];
  const west = month(rows, 24, [50, 51]);
  const others = ["east", "north"].flatMap((cluster) =>
    (month([], 0, [30]).hours?.rows ?? []).map((row) => ({ ...row, cluster })),
  );
  const hours = { rows: [...(west.hours?.rows ?? []), ...others] };
  const { points, gaps, hoursKnown } = burnOf({ ...west, hours } as Month);
  expect(points.map(({ spent }) => spent)).toEqual([5, 12, 17, 22]);
  expect(gaps.map(({ from, coverage }) => [new Date(from).getUTCDate(), coverage])).toEqual([
    [2, 47 / 48], // of west and east; north's hour 30 is missing too
    [3, 46 / 48],
  ]);
  expect(hoursKnown).toBe(HOURS - 1.5); // three of west's and east's cluster-hours
});

test("costs without a price are not zero", () => {
  const { points, gaps } = burnOf(month([day(0, null, 24), day(1, 6, 12), day(2, 7), day(3, 1)], 0, null));
  expect(gaps.map(({ coverage }) => coverage)).toEqual([0, 0.5]);
  expect(points.map(({ spent }) => spent)).toEqual([6, 13, 14]);
});

test("the projection rises at the mean rate, and begins with an estimate for the unknown hours", () => {
  const forecast = (unknown: number, usd: number | null) => ({
    ...month([], unknown, null).forecast,
    estimated_usd: usd === null ? null : (usd / 30 / 24) * unknown,
    run_rate_usd: usd,
  });
  const points = [{ from: Date.parse(at(0)), at: Date.parse(at(HOURS)), spent: 20 }];
  const { projection, estimate } = projectionOf(forecast(48, 300), points); // 10 a day
  expect(estimate).toBeCloseTo(20);
  const [spent, from, end] = projection;
  expect(spent).toEqual({ at: Date.parse(at(HOURS)), amount: 20 });
  expect(((end?.amount ?? 0) - (from?.amount ?? 0)) / 26).toBeCloseTo(10);
  expect(end).toEqual({ at: Date.parse(at(30 * 24)), amount: 300 });
  expect(projectionOf(forecast(0, 150), points)).toMatchObject({ estimate: 0 });
  expect(projectionOf(forecast(48, null), points)).toEqual({ projection: [], estimate: 0 });
});

test("a share of the budget without a projection names the hours that it is known for", () => {
  const forecast = { spent_usd: 117, budget_usd: 1000, run_rate_usd: null, currency: "USD", hours_known: 71 };
  const note = (fields: object) => budgetNote({ ...forecast, ...fields } as Month["forecast"]);
  expect(note({ hours_unknown: 527 })).toBe("12% of it used in the 71 of 598 hours known of all clusters");
  expect(note({ hours_unknown: 0 })).toBe("12% of it used");
  expect(note({ hours_unknown: 527, run_rate_usd: 900 })).toBe("12% of it used; the run rate is $100.00 under");
});

test("a forecast is an interval with its record, and says if the run rate is outside of it", () => {
  const forecast = { low_usd: 5800, high_usd: 6400, run_rate_usd: 6000, interval_percent: 80, currency: "USD" };
  const interval = (fields: object) =>
    intervalOf({ ...forecast, backtest: { evaluated: 19, covered: 17 }, ...fields } as Month["forecast"]);
  const note = "80% interval by the pattern of past weeks; 17 of 19 past ones were right";
  expect(interval({})).toEqual({ range: "$5,800 to $6,400", note });
  expect(interval({ run_rate_usd: 6500 })?.note).toBe(
    `${note}; the run rate, which does not know weekdays, is above it`,
  );
  expect(interval({ run_rate_usd: 5700 })?.note).toMatch(/is below it$/);
  expect(interval({ run_rate_usd: null, backtest: null })?.note).toMatch(/not tested yet: the history is short$/);
  expect(interval({ low_usd: 5800.2, high_usd: 5800.3 })?.range).toBe("$5,800");
  expect(interval({ low_usd: null, high_usd: null })).toBeNull();
});
