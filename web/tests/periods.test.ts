import { expect, test } from "vitest";
import { DAY, HOUR } from "../src/format";
import { lengthOf, shownPeriod } from "../src/periods";

const at = (text: string) => Date.parse(text);

test.each([
  ["month", "2026-11-29T23:30:00Z", 29 * DAY],
  ["month", "2026-11-02T00:30:00Z", 2 * DAY],
  ["lastmonth", "2026-11-29T23:30:00Z", 31 * DAY],
  ["lastmonth", "2027-03-01T00:00:00Z", 28 * DAY],
  ["35d", "2026-11-29T00:00:00Z", 35 * DAY],
  ["48h", "2026-11-29T00:00:00Z", 48 * HOUR],
])("window %s has its length at %s", (window, now, length) => {
  expect(lengthOf(window, at(now))).toBe(length);
});

test("a view that shows the end of a long period has it in the name of the period", () => {
  const name = (view: string, days: number) => shownPeriod(view, "This month (UTC)", days * DAY);
  expect(name("nodes", 29)).toBe("This month (UTC): its last 7 days");
  expect(name("nodes", 7)).toBe("This month (UTC)");
  expect(name("splits", 29)).toBe("This month (UTC)");
  expect(name("splits", 35)).toBe("This month (UTC): its last 31 days");
  expect(name("overview", 90)).toBe("This month (UTC)");
});
