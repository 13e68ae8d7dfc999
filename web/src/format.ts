// Figures and times as people read them. What is not known is a dash, never a zero.

export const UNKNOWN = "–";
export type Figure = number | null | undefined;
export type Zone = "local" | "utc";

const formats = new Map<string, Intl.NumberFormat>();

export function money(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  const digits = value !== 0 && Math.abs(value) < 0.01 ? 6 : 2;
  return number(value, { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: digits });
}

/** With every digit that matters to how it was worked out. */
export function exactMoney(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: 6 });
}

export function gpuHours(value: Figure, digits = 3): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { minimumFractionDigits: digits, maximumFractionDigits: Math.max(digits, 6) });
}

export function hours(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

export function percent(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

export function change(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { style: "percent", maximumFractionDigits: 0, signDisplay: "exceptZero" });
}

/** part ÷ whole; null where one of them is not known, or there is nothing to divide by. */
export function ratio(part: Figure, whole: Figure): number | null {
  if (part === null || part === undefined || whole === null || whole === undefined || whole === 0) return null;
  return part / whole;
}

/** Observed use of what was held while somebody looked; null where nobody did. */
export function utilization(row: {
  allocated_gpu_hours: Figure;
  effective_gpu_hours: Figure;
  unmeasured_gpu_hours: Figure;
}): number | null {
  const observed = (row.allocated_gpu_hours ?? 0) - (row.unmeasured_gpu_hours ?? 0);
  return observed > 1e-9 ? ratio(row.effective_gpu_hours, observed) : null;
}

function number(value: number, options: Intl.NumberFormatOptions): string {
  const key = JSON.stringify(options);
  let format = formats.get(key);
  if (format === undefined) {
    format = new Intl.NumberFormat("en-US", options);
    formats.set(key, format);
  }
  return format.format(value);
}

function timeZone(zone: Zone): { timeZone?: string } {
  return zone === "utc" ? { timeZone: "UTC" } : {};
}

export function moment(instant: string | number | Date, zone: Zone): string {
  const parts = new Intl.DateTimeFormat("en-GB", {
    ...timeZone(zone),
    weekday: "short",
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
  }).format(new Date(instant));
  return `${parts} ${zoneName(zone, new Date(instant))}`;
}

/** Days are UTC days, as the bill's are, whatever the zone. */
export function utcDay(instant: string | number | Date): string {
  return `${new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", weekday: "short", day: "numeric", month: "short" }).format(new Date(instant))} (UTC day)`;
}

export function zoneName(zone: Zone, at: Date): string {
  const parts = new Intl.DateTimeFormat("en-GB", { ...timeZone(zone), timeZoneName: "short" }).formatToParts(at);
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

export const HOUR = 3_600_000;

/** As the API writes instants. */
export function instant(time: number | Date): string {
  return new Date(time).toISOString().replace(".000Z", "Z");
}

/** On an axis: the hour, or the day where one begins. */
export function axisTime(seconds: number, zone: Zone): string {
  const at = new Date(seconds * 1000);
  const hour = new Intl.DateTimeFormat("en-GB", { ...timeZone(zone), hour: "2-digit", minute: "2-digit" }).format(at);
  const day = new Intl.DateTimeFormat("en-GB", { ...timeZone(zone), day: "numeric", month: "short" }).format(at);
  return hour === "00:00" ? day : hour;
}

/** Below a column: the hour, or the UTC day. */
export function tick(start: number, step: number, zone: Zone): string {
  const shown: Intl.DateTimeFormatOptions =
    step > HOUR
      ? { timeZone: "UTC", day: "numeric", month: "short" }
      : { ...timeZone(zone), weekday: "short", hour: "2-digit", minute: "2-digit" };
  return new Intl.DateTimeFormat("en-GB", shown).format(new Date(start));
}
