import { expect, test } from "vitest";
import {
  hardwareOf,
  HOUR,
  axisMoney,
  axisTime,
  change,
  changeWord,
  clockOf,
  counted,
  dayOf,
  exactMoney,
  gpuHours,
  instanceType,
  instant,
  isMeasured,
  knownFigure,
  knownParts,
  moment,
  money,
  percent,
  ratio,
  readClock,
  roundMoney,
  shortNode,
  stepName,
  utcDay,
  utilization,
  utilizationText,
  wastePercent,
  wasteText,
  writeClock,
} from "../src/format";

test("unknown figures are dashes, not zeros", () => {
  for (const shown of [money(null), exactMoney(undefined), gpuHours(null), percent(null), change(null)]) {
    expect(shown).toBe("–");
  }
  expect(money(0)).toBe("$0.00");
});

test("clocks are those of the selected zone, also of one with half hours", () => {
  expect(Intl.DateTimeFormat().resolvedOptions().timeZone, "npm run test sets it").toMatch(/Kolkata|Calcutta/);
  const time = Date.UTC(2026, 10, 20, 3, 4);
  expect([clockOf(time, "utc"), clockOf(time, "local")]).toEqual(["03:04", "08:34"]);
});

test("small changes are not zero", () => {
  const changes = [0.0004, -0.0004, 0.003, -0.0095, 0.0099, 0.01, -1.256, 0];
  expect(changes.map(change)).toEqual(["+<0.1%", "-<0.1%", "+0.3%", "-1%", "+1%", "+1%", "-126%", "0%"]);
});

test("small amounts are not zero, and explanations have their digits", () => {
  expect([money(1234.567), money(0.00232), money(-0.00232), money(3.428571, "EUR")]).toEqual([
    "$1,234.57",
    "<$0.01",
    ">-$0.01",
    "€3.43",
  ]);
  expect([axisMoney(60000), axisMoney(0), axisMoney(2.5), axisMoney(1250000)]).toEqual([
    "$60k",
    "$0",
    "$2.50",
    "$1.25M",
  ]);
  expect(exactMoney(3.428571428571)).toBe("$3.428571");
  expect(exactMoney(0.00232)).toBe("$0.00232");
});

test("a ratio is unknown if a part is unknown or the whole is zero", () => {
  expect([ratio(1, 4), ratio(null, 4), ratio(1, 0), ratio(1, null)]).toEqual([0.25, null, null, null]);
  const row = { allocated_gpu_hours: 4, effective_gpu_hours: 1, unmeasured_gpu_hours: 2 };
  expect(utilization(row)).toBe(0.5);
  expect(utilization({ ...row, unmeasured_gpu_hours: 4, effective_gpu_hours: 0 })).toBeNull();
});

test("times name their zone and look the same in all browsers", () => {
  const midnight = Date.parse("2026-11-19T00:00:00Z");
  expect(utcDay(midnight)).toBe("Thu 19 Nov (UTC day)");
  expect(dayOf(midnight)).toBe("Thu 19 Nov");
  expect([axisTime(midnight / 1000, "utc"), axisTime(midnight / 1000 + 3600, "utc")]).toEqual(["19 Nov", "01:00"]);
  expect([counted(1, "hour"), counted(1200, "hour"), counted(2, "party", "parties")]).toEqual([
    "1 hour",
    "1,200 hours",
    "2 parties",
  ]);
  expect(
    ["ip-10-0-1-2.ec2.internal", "ip-10-0-1-2.eu-west-1.compute.internal", "gpu1.example.com"].map(shortNode),
  ).toEqual(["ip-10-0-1-2", "ip-10-0-1-2", "gpu1.example.com"]);
  expect(moment("2026-11-19T10:00:00Z", "utc")).toBe("Thu 19 Nov, 10:00 UTC");
  expect(instant(Date.parse("2026-11-19T10:00:00Z"))).toBe("2026-11-19T10:00:00Z");
});

test("titles say that days, weeks and months are those of UTC", () => {
  expect((["hour", "day", "week", "month"] as const).map(stepName)).toEqual([
    "hour",
    "UTC day",
    "UTC week",
    "UTC month",
  ]);
});

test("the hour field reads back what it shows, in UTC and in local time", () => {
  const hour = "2026-11-18T05:00:00Z";
  expect(writeClock(hour, "utc")).toBe("2026-11-18T05:00");
  for (const zone of ["utc", "local"] as const) expect(readClock(writeClock(hour, zone), zone)).toBe(Date.parse(hour));
  expect(readClock("2026-11-18T05:40", "utc")).toBe(Date.parse(hour));
  expect(readClock("", "utc")).toBeNull();
  expect(Date.parse(hour) % HOUR).toBe(0);
});

test("a row is measured if a part of its GPU-hours is", () => {
  expect(isMeasured({ allocated_gpu_hours: 2, unmeasured_gpu_hours: 2 })).toBe(false);
  expect(isMeasured({ allocated_gpu_hours: 2, unmeasured_gpu_hours: 1 })).toBe(true);
  expect(isMeasured({ allocated_gpu_hours: 0, unmeasured_gpu_hours: 0 })).toBe(true);
});

test("a utilization of too small a measured part is not shown", () => {
  const row = { allocated_gpu_hours: 100, unmeasured_gpu_hours: 99.8, effective_gpu_hours: 0 };
  expect(utilization(row)).toBeNull();
  expect(utilizationText(row)).toBe("– (0.2% measured)");
  expect(utilizationText({ ...row, unmeasured_gpu_hours: 100 })).toBe("–");
  expect(utilizationText({ ...row, unmeasured_gpu_hours: 60, effective_gpu_hours: 10 })).toBe("25%");
});

test("the wasted share of a hardly measured cost is a dash with what was measured", () => {
  const row = (unmeasured: number, waste_usd = 0.1) =>
    wasteText({ allocated_gpu_hours: 48, unmeasured_gpu_hours: unmeasured, allocated_usd: 46, waste_usd });
  expect(row(47.9)).toBe("– (0.2% measured)");
  expect(row(48, 0)).toBe("–");
  expect(row(0, 23)).toBe("50%");
});

test("the wasted share of a partly measured cost is the least", () => {
  const row = (unmeasured_gpu_hours: number, waste_usd: number) =>
    wasteText({ allocated_gpu_hours: 48, unmeasured_gpu_hours, allocated_usd: 48, waste_usd });
  expect([row(24, 12), row(24, 0), row(24, 0.01), row(0.01, 47.99)]).toEqual(["≥25%", "≥0%", "≥0%", ">99.9%"]);
});

test("what follows from utilization is unknown if nothing was measured", () => {
  const hours = { allocated_gpu_hours: 48, unmeasured_gpu_hours: 48, effective_gpu_hours: 0 };
  const row = { ...hours, allocated_usd: 46, effective_usd: 0, waste_usd: 0, unmeasured_usd: 46 };
  expect([
    knownFigure(row, "waste_usd"),
    knownFigure(row, "effective_usd"),
    knownFigure(row, "effective_gpu_hours"),
  ]).toEqual([null, null, null]);
  expect([knownFigure(row, "allocated_usd"), knownFigure(row, "unmeasured_usd")]).toEqual([46, 46]);
  expect(knownParts(row)).toMatchObject({ effective_usd: null, waste_usd: null, unmeasured_usd: 46 });
  const hardly = { ...row, unmeasured_gpu_hours: 47.9, waste_usd: 0.1, unmeasured_usd: 45.9 };
  expect(knownFigure(hardly, "waste_usd")).toBe(0.1);
  expect(knownFigure({ allocated_gpu_hours: 0, unmeasured_gpu_hours: 0, waste_usd: 0 }, "waste_usd")).toBe(0);
});

test("headlines have no cents from a thousand on", () => {
  expect([999.99, 999.996, 70662.84, -1234.5, 0.002].map((usd) => roundMoney(usd))).toEqual([
    "$999.99",
    "$1,000",
    "$70,663",
    "-$1,235",
    "<$0.01",
  ]);
  expect(roundMoney(null)).toBe("–");
});

test("shares have a decimal where it says something, and only all is 100%", () => {
  expect([0, 0.0001, 0.002, 0.081, 0.0994, 0.0996, 0.398, 0.99, 0.9912, 0.9999, 1, 1.127].map(percent)).toEqual([
    "0%",
    "<0.1%",
    "0.2%",
    "8.1%",
    "9.9%",
    "10%",
    "40%",
    "99%",
    "99.1%",
    ">99.9%",
    "100%",
    "113%",
  ]);
});

test("an amount next to one of a thousand or more has no cents", () => {
  const neighbors = [1234.5, 12.3];
  expect(roundMoney(12.3)).toBe("$12.30");
  expect(roundMoney(12.3, "USD", neighbors)).toBe("$12");
  expect(roundMoney(-0.2, "USD", neighbors)).toBe(">-$1");
  expect([0, null].map((usd) => roundMoney(usd, "USD", neighbors))).toEqual(["$0", "–"]);
  expect(roundMoney(12.3, "USD", [999])).toBe("$12.30");
});

test("an instance type that no label says is marked", () => {
  expect(instanceType({ instance_type: "p5.48xlarge" })).toBe("p5.48xlarge");
  expect(instanceType({ instance_type: "p5.48xlarge", instance_type_source: "hardware" })).toBe(
    "p5.48xlarge (inferred)",
  );
  expect(instanceType({ instance_type: "p5.48xlarge", instance_type_source: "karpenter" })).toBe(
    "p5.48xlarge (from karpenter)",
  );
  expect(instanceType({ instance_type: "" })).toBe("unknown type");
});

test("hardware of which a part is unknown has no stray comma", () => {
  const type = "p4d.24xlarge";
  expect(
    [
      { instance_type: type, capacity_type: "" },
      { instance_type: type, capacity_type: "on-demand" },
      { instance_type: type, capacity_type: "spot" },
      { instance_type: "", capacity_type: "spot" },
    ].map(hardwareOf),
  ).toEqual([type, type, `${type}, spot`, "spot"]);
});

test("a headline without a change is a word", () => {
  expect([null, 0, -0.0004, 0.0004, 0.02].map(changeWord)).toEqual([
    "not yet",
    "unchanged",
    "unchanged",
    "unchanged",
    "+2%",
  ]);
});

test("the least share of waste is not rounded up", () => {
  const row = { allocated_gpu_hours: 10, unmeasured_gpu_hours: 1 };
  const shares = [0.601, 0.609, 0.0567, 0.0001, 0.99, 0.9958, 0.99996, 1];
  expect(shares.map((share) => wastePercent(row, share))).toEqual([
    "≥60%",
    "≥60%",
    "≥5.6%",
    "≥0%",
    "≥99%",
    "≥99.5%",
    ">99.9%",
    "≥100%",
  ]);
});
