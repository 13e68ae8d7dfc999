import { expect, test } from "vitest";
import type { Alert } from "../src/api";
import { costPerHour } from "../src/views/alerts";

const about = (figures: Record<string, number> | null) =>
  ({ notification: figures && { figures } }) as Pick<Alert, "notification">;

test("an alert costs what it wastes or leaves unallocated, and otherwise no known amount", () => {
  expect(costPerHour(about({ waste_usd_per_hour: 4.65, allocated_usd_per_hour: 5 }))).toBe(4.65);
  expect(costPerHour(about({ unallocated_usd_per_hour: 13 }))).toBe(13);
  expect(costPerHour(about({ hours: 3 }))).toBeNull();
  expect(costPerHour(about(null))).toBeNull();
});
