import { expect, test } from "vitest";
import { type Alert, type AlertEvent, firstEvaluated } from "../src/api";
import { unitCostOf } from "../src/identity";
import { costPerHour, eventsText, maybeOlder } from "../src/views/alerts";

const about = (figures: Record<string, number> | null) =>
  ({ notification: figures && { figures } }) as Pick<Alert, "notification">;

test("an alert costs what it wastes or leaves unallocated, and otherwise no known amount", () => {
  expect(costPerHour(about({ waste_usd_per_hour: 4.65, allocated_usd_per_hour: 5 }))).toBe(4.65);
  expect(costPerHour(about({ unallocated_usd_per_hour: 13 }))).toBe(13);
  expect(costPerHour(about({ hours: 3 }))).toBeNull();
  expect(costPerHour(about(null))).toBeNull();
});

test("events are counted by what happened", () => {
  const events = ["firing", "resolved", "firing", "repeat"].map((event) => ({ event }) as Pick<AlertEvent, "event">);
  expect(eventsText(events)).toBe("2 fired, 1 resolved, 1 repeated");
});

test("an alert on the cost of tokens names the unit cost that it is about as Models does", () => {
  const tokens = { prompt_tokens: 3, generated_tokens: 1, budget_usd_per_million_tokens: 6 };
  expect(unitCostOf({ ...tokens, usd_per_million_generated_tokens: 6.47 })).toBe("Cost per 1M generated tokens");
  expect(unitCostOf({ ...tokens, usd_per_million_tokens: 1.2 })).toBe("Cost per 1M prompt and generated tokens");
  expect(unitCostOf({ ...tokens, usd_per_million_prompt_tokens: null })).toBe("Cost per 1M prompt tokens, not cached");
  expect(unitCostOf({ waste_usd_per_hour: 4 })).toBeNull();
});

test("an alert may be older than the first hour in which its cluster's rules are known to have been evaluated", () => {
  const alert = (cluster: string, since: string, kind = "waste") =>
    ({ subject: { cluster }, since, notification: { kind } }) as unknown as Alert;
  const ended = (cluster: string, since: string, event = "resolved") =>
    ({ subject: { cluster }, since, kind: "waste", event }) as unknown as AlertEvent;
  const older = (active: Alert[], history: AlertEvent[]) => {
    const evaluated = firstEvaluated({ active, history });
    return active.map((row) => maybeOlder(row, evaluated));
  };
  const [first, later] = ["2026-11-24T21:00:00Z", "2026-11-26T05:00:00Z"];
  expect(older([alert("west", first), alert("west", first), alert("west", later)], [])).toEqual([true, true, false]);
  expect(older([alert("west", later), alert("east", first)], [])).toEqual([true, true]);
  expect(older([alert("west", later)], [ended("west", first)])).toEqual([false]);
  expect(older([alert("west", later)], [ended("east", first), ended("west", first, "digest")])).toEqual([true]);
  expect(older([alert("west", later, "external"), alert("west", later)], [])).toEqual([false, true]);
});
