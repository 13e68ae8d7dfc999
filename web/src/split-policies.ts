// What each split policy would charge for the same hours, added up over the pages of the API's answer.

import type { SplitPolicyRow } from "./api";
import { DAY, type Figure, instant } from "./format";
import { MOST_DAYS } from "./periods";
import type { Priced } from "./series";

/** Days of a request: rating a week of a large fleet with all policies takes a minute, and weeks are rated side by side. */
const DAYS_AT_ONCE = 7;

/** The last days of a period that is longer than what is compared. */
export function comparedPeriod({ start, end }: { start: string; end: string }): { start: string; end: string } {
  const first = Date.parse(end) - MOST_DAYS.splits * DAY;
  return Date.parse(start) < first ? { start: instant(first), end } : { start, end };
}

/** The weeks of a period, in order. */
export function weeksOf({ start, end }: { start: string; end: string }): { start: string; end: string }[] {
  const weeks = [];
  for (let from = Date.parse(start); from < Date.parse(end); from += DAYS_AT_ONCE * DAY)
    weeks.push({ start: instant(from), end: instant(Math.min(Date.parse(end), from + DAYS_AT_ONCE * DAY)) });
  return weeks;
}

export interface UnitCharges {
  unit: string;
  /** By policy; null where nothing of the unit has a price. */
  charges: Readonly<Record<string, number | null>>;
}

/** The parts of the node cost that no business unit bears. */
export const IDLE_PARTS = ["unallocated_usd", "stranded_usd", "unobserved_usd", "residual_usd", "host_usd"] as const;
type IdleKey = (typeof IDLE_PARTS)[number];

export interface PolicySums extends Priced {
  policy: string;
  isInForce: boolean;
  hours: number;
  /** The node cost and its parts; unknown if any hour's is. */
  nodeCost: Figure;
  idle: Readonly<Record<IdleKey, Figure>>;
  allocatedCost: Figure;
  notes: readonly string[];
}

const total = (figures: readonly Figure[]): number | null =>
  figures.reduce<number | null>((sum, figure) => (sum === null || figure == null ? null : sum + figure), 0);

const known = (figures: readonly Figure[]): number | null => {
  const present = figures.filter((figure) => figure != null);
  return present.length === 0 ? null : present.reduce((sum, figure) => sum + figure, 0);
};

/** The policies, that of the settings first. */
export function policySums(rows: readonly SplitPolicyRow[]): PolicySums[] {
  const names = [...new Set(rows.map((row) => row.split_policy))];
  const sums = names.map((policy) => {
    const pages = rows.filter((row) => row.split_policy === policy);
    const withHours = pages.filter(({ hours }) => hours > 0);
    const capacity = (key: keyof NonNullable<SplitPolicyRow["capacity"]>) =>
      total(withHours.map((page) => page.capacity?.[key]));
    const units = pages.flatMap((page) => page.business_units);
    return {
      policy,
      isInForce: pages.some((page) => page.is_in_force),
      hours: withHours.reduce((sum, { hours }) => sum + hours, 0),
      nodeCost: capacity("node_cost_usd"),
      idle: Object.fromEntries(IDLE_PARTS.map((key) => [key, capacity(key)])) as Record<IdleKey, Figure>,
      allocatedCost: total(units.map((unit) => unit.allocated_usd)),
      allocated_gpu_hours: total(units.map((unit) => unit.allocated_gpu_hours)),
      unpriced_gpu_hours: total(units.map((unit) => unit.unpriced_gpu_hours)),
      notes: [...new Set(pages.flatMap((page) => page.notes))],
    };
  });
  return sums.sort((left, right) => Number(right.isInForce) - Number(left.isInForce));
}

/** What the units would be charged. */
export function unitCharges(rows: readonly SplitPolicyRow[]): UnitCharges[] {
  const charges = new Map<string, Record<string, number | null>>();
  for (const { split_policy: policy, business_units: units } of rows)
    for (const { business_unit: unit, allocated_usd: usd } of units) {
      const ofUnit = charges.get(unit) ?? {};
      charges.set(unit, { ...ofUnit, [policy]: known([ofUnit[policy], usd]) });
    }
  return [...charges].map(([unit, ofUnit]) => ({ unit, charges: ofUnit }));
}

export interface Change {
  unit: string;
  policy: string;
  from: number;
  to: number;
}

/** The unit and policy whose charge differs most from that of the policy in force. */
export function largestChange(units: readonly UnitCharges[], inForce: string): Change | undefined {
  const changes = units.flatMap(({ unit, charges }) => {
    const from = charges[inForce];
    if (from == null) return [];
    return Object.entries(charges).flatMap(([policy, to]) => (to === null ? [] : [{ unit, policy, from, to }]));
  });
  const size = ({ from, to }: Change) => Math.abs(to - from);
  const largest = changes.reduce<Change | undefined>(
    (most, change) => (most === undefined || size(change) > size(most) ? change : most),
    undefined,
  );
  return largest !== undefined && size(largest) > 0 ? largest : undefined;
}
