// The periods that the page offers. tests/functions/test_every_period.py asks the API about each.

import { counted } from "./format";

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
