import { expect, test } from "vitest";
import { understood } from "../src/address";
import { periodOf, readRoute } from "../src/route";

const after = (fragment: string) => {
  const { route, ignored } = understood(readRoute(fragment));
  return { route, why: ignored.map(({ key, text, why }) => `${key}=${text}: ${why}`) };
};

test("an address without mistakes is left as it is", () => {
  for (const fragment of [
    "#/explore?window=30d&by=label:team&then=cluster&measure=waste_usd&vs=week&grain=week&zone=utc",
    "#/explore?start=2026-11-01T00:00:00Z&end=2026-11-02T00:00:00Z&window=24h&by=&grain=",
    "#/models?by=consumer&window=lastmonth&unknown=x",
    "#/unit/a",
  ]) {
    const route = readRoute(fragment);
    expect(understood(route)).toEqual({ route, ignored: [] });
    expect(understood(route).route).toBe(route);
  }
});

test.each([
  ["window=5y", "window=5y: not a period, so the period is: Last 24 hours", { window: "24h" }],
  ["window=0d", "window=0d: not a period, so the period is: Last 24 hours", { window: "24h" }],
  [
    "start=2026-11-01T00:00:00Z",
    "start=2026-11-01T00:00:00Z: needs both start and end, so the period is: Last 24 hours",
    { window: "24h" },
  ],
  [
    "window=7d&start=2026-11-02T00:00:00Z&end=2026-11-01T00:00:00Z",
    "start=2026-11-02T00:00:00Z: the end is not after the start, so the period is: 7 days, incl. today (UTC)",
    { window: "7d" },
  ],
  [
    "window=x&start=2026-11-01T00:00:00Z&end=2026-11-02T00:00:00Z",
    "window=x: not a period, so the period is: that of start and end",
    { start: "2026-11-01T00:00:00Z", end: "2026-11-02T00:00:00Z" },
  ],
  [
    "start=monday&end=2026-11-01T00:00:00Z",
    "start=monday: not a time, so the period is: Last 24 hours",
    { window: "24h" },
  ],
] as const)("a period that is none is named, and the default one shown: %s", (query, why, period) => {
  const { route, why: reasons } = after(`#/overview?${query}`);
  expect(reasons[0]).toBe(why);
  expect(periodOf(route)).toEqual(period);
});

test("other parameters that the page does not have are named, and left out", () => {
  const { route, why } = after(
    "#/explore?by=model&then=node-pool&measure=profit&zone=mars&grain=year&vs=never&window=7d",
  );
  expect(route.query).toEqual({ window: "7d" });
  expect(why).toEqual([
    "zone=mars: not a time zone of the page, so times are local",
    "grain=year: not a granularity, so it is chosen by the period",
    "vs=never: nothing to compare with, so that is chosen by the period",
    "by=model: not a dimension of costs, so they are grouped by business unit",
    "then=node-pool: not a dimension of costs, so they are grouped by one",
    "measure=profit: not a measure, so allocated cost is shown",
  ]);
});

test("a state or kind that no recommendation has is named, and left out", () => {
  const { route, why } = after("#/savings?state=done&kind=magic");
  expect(route.query).toEqual({});
  expect(why).toEqual([
    "state=done: not a state of recommendations, so open ones are shown",
    "kind=magic: not a kind of recommendations, so all kinds are shown",
  ]);
  expect(after("#/savings?state=all&kind=idle").why).toEqual([]);
});
