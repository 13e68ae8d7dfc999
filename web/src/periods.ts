// The periods that the page offers. tests/functions/test_every_period.py asks the API about each.

import { counted, DAY, HOUR } from "./format";

/** By the API's window. */
export const PERIODS: Readonly<Record<string, string>> = {
  "24h": "Last 24 hours",
  "48h": "Last 48 hours",
  "7d": "7 days, incl. today (UTC)",
  "30d": "30 days, incl. today (UTC)",
  "35d": "35 days, incl. today (UTC)",
  "90d": "90 days, incl. today (UTC)",
  today: "Today (UTC)",
  yesterday: "Yesterday (UTC)",
  week: "This week (UTC)",
  lastweek: "Last week (UTC)",
  month: "This month (UTC)",
  lastmonth: "Last month (UTC)",
};

const OTHER = /^([1-9]\d{0,3})([hd])$/;

/** Whether the API has this window. */
export const isWindow = (window: string) => Object.hasOwn(PERIODS, window) || OTHER.test(window);

/** The name of a window that only an address has, such as 30d. */
export function windowName(window: string): string {
  if (Object.hasOwn(PERIODS, window)) return PERIODS[window] ?? window;
  const [, count = "", unit] = OTHER.exec(window) ?? [];
  if (count === "") return window;
  return unit === "h"
    ? `Last ${counted(Number(count), "hour")}`
    : `${counted(Number(count), "day")}, incl. today (UTC)`;
}

/** The most days that a view shows, of a longer period the last ones: each weekday once, and what the API compares. */
export const MOST_DAYS = { nodes: 7, splits: 31 };

/** How long a window is, in milliseconds, at a time. */
export function lengthOf(window: string, now: number): number {
  const at = new Date(now);
  if (window === "month") return at.getUTCDate() * DAY;
  if (window === "lastmonth") return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth(), 0)).getUTCDate() * DAY;
  const [, count = "7", unit] = OTHER.exec(window) ?? []; // weeks and days have at most a week
  return Number(count) * (unit === "h" ? HOUR : DAY);
}

/** The name of a period as a view shows it: of a long one, its last days. */
export function shownPeriod(view: string, name: string, length: number): string {
  const most = view in MOST_DAYS ? MOST_DAYS[view as keyof typeof MOST_DAYS] : Infinity;
  return length <= most * DAY ? name : `${name}: its last ${most} days`;
}
