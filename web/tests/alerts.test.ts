import { expect, test } from "vitest";
import type { Alert, AlertEvent } from "../src/api";
import { costPerHour, eventsText } from "../src/views/alerts";

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
