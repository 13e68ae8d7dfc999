// Formats figures and times. Unknown figures are dashes, never zeros.

export const HOUR = 3_600_000;
export const UNKNOWN = "–";
export type Figure = number | null | undefined;
export type Zone = "local" | "utc";

const formats = new Map<string, Intl.NumberFormat>();

export function money(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  const isTiny = value !== 0 && Math.abs(value) < 0.005;
  const text = number(isTiny ? 0.01 * Math.sign(value) : value, { style: "currency", currency, ...CENTS });
  return isTiny ? `${value < 0 ? ">" : "<"}${text}` : text;
}

const CENTS = { minimumFractionDigits: 2, maximumFractionDigits: 2 };

/** An amount that stands for itself, such as a headline or an estimate: without cents from 1,000 on, and next to such
 * an amount. */
export function roundMoney(value: Figure, currency = "USD", neighbors: readonly Figure[] = []): string {
  const isRound = [value, ...neighbors].some((amount) => Math.abs(amount ?? 0) >= 999.995);
  if (value === null || value === undefined || !isRound) return money(value, currency);
  const isTiny = value !== 0 && Math.abs(value) < 0.5;
  const text = number(isTiny ? Math.sign(value) : value, { style: "currency", currency, ...WHOLE });
  return isTiny ? `${value < 0 ? ">" : "<"}${text}` : text;
}

/** An amount at an axis: "$60k". */
export function axisMoney(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Math.abs(value) < 1000)
    return number(value, { style: "currency", currency, ...(value % 1 === 0 ? WHOLE : CENTS) });
  return number(value, {
    style: "currency",
    currency,
    notation: "compact",
    minimumFractionDigits: 0,
    maximumFractionDigits: 2,
  }).replace("K", "k");
}

const WHOLE = { maximumFractionDigits: 0 };

/** A price per unit, with four decimals below 10, so that small prices can be compared. */
export function unitPrice(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 0.00005) return `<${unitPrice(0.0001, currency)}`;
  const digits = value !== 0 && Math.abs(value) < 10 ? 4 : 2;
  return number(value, { style: "currency", currency, minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A price per unit at an axis. */
export function axisPrice(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined || Math.abs(value) >= 1000) return axisMoney(value, currency);
  return number(value, { style: "currency", currency, ...(value % 1 === 0 ? WHOLE : { maximumFractionDigits: 4 }) });
}

/** A count of tokens or requests, from 10,000 on with three digits: "3.48M". */
export function tokenCount(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Math.abs(value) < 10_000) return number(value, WHOLE);
  return number(value, { notation: "compact", minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
}

/** Tokens per second or per kWh. */
export function tokenRate(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  return Math.abs(value) < 10_000
    ? number(value, { minimumFractionDigits: 1, maximumFractionDigits: 1 })
    : tokenCount(value);
}

/** With up to six decimals, for calculations. */
export function exactMoney(value: Figure, currency = "USD"): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: 6 });
}

export function gpuHours(value: Figure, digits = 3): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { minimumFractionDigits: digits, maximumFractionDigits: Math.max(digits, 6) });
}

/** With two decimals, so that a column's figures can be compared. Small figures keep more. */
export function roundHours(figure: Figure): string {
  if (figure === null || figure === undefined) return UNKNOWN;
  const digits = figure !== 0 && Math.abs(figure) < 0.01 ? 6 : 2;
  return number(figure, { minimumFractionDigits: 2, maximumFractionDigits: digits });
}

export function hours(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  return number(value, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
}

/** A share: with one decimal below 10% and above 99%, where it says something. Neither a little nor almost all is
 * rounded away. */
export function percent(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (value > 0 && value < 0.0005) return "<0.1%";
  if (value > 0.9995 && value < 1) return ">99.9%";
  const digits = digitsOf(value);
  return number(value, { style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** The decimals of a share. */
function digitsOf(share: number): number {
  const size = Math.abs(share);
  return share % 1 !== 0 && (size < 0.0995 || (size > 0.99 && size < 1)) ? 1 : 0;
}

/** A relative change as a headline, which is a word where there is none. */
export function changeWord(value: Figure): string {
  if (value === null || value === undefined) return "not yet";
  return Math.abs(value) < 0.0005 ? "unchanged" : change(value);
}

/** A relative change, with its sign; a small one has a decimal, because it is not zero. */
export function change(value: Figure): string {
  if (value === null || value === undefined) return UNKNOWN;
  const size = Math.abs(value);
  if (size > 0 && size < 0.0005) return `${value < 0 ? "-" : "+"}<0.1%`;
  const digits = size < 0.00995 ? 1 : 0;
  return number(value, { style: "percent", maximumFractionDigits: digits, signDisplay: "exceptZero" });
}

/** A formatted difference, with its sign. */
export function signed(figure: Figure, show: (figure: Figure) => string): string {
  if (figure === null || figure === undefined) return UNKNOWN;
  return `${figure > 0 ? "+" : ""}${show(figure)}`;
}

/** A number with its noun, for example "1 hour" or "3 hours". */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${number(count, {})} ${count === 1 ? noun : plural}`;
}

/** A node's name without the domain that AWS gives to all nodes of a region. */
export function shortNode(name: string): string {
  return name.replace(/\.(ec2|[a-z0-9-]+\.compute)\.internal$/, "");
}

/** A name as the title of a column. */
export function capitalized(name: string): string {
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** part ÷ whole; null if one of them is unknown or whole is 0. */
export function ratio(part: Figure, whole: Figure): number | null {
  if (part === null || part === undefined || whole === null || whole === undefined || whole === 0) return null;
  return part / whole;
}

export interface GpuHours {
  allocated_gpu_hours: Figure;
  unmeasured_gpu_hours: Figure;
}

const measuredHours = (row: Partial<GpuHours>) => (row.allocated_gpu_hours ?? 0) - (row.unmeasured_gpu_hours ?? 0);

/** Least measured share of GPU-hours for a utilization or a share of waste. Less says nothing about the others. */
const MIN_MEASURED_SHARE = 0.1;

/** Whether enough of the GPU-hours is measured for a ratio. */
export function isRepresentative(row: GpuHours): boolean {
  return measuredHours(row) > 1e-9 && measuredHours(row) >= MIN_MEASURED_SHARE * (row.allocated_gpu_hours ?? 0);
}

/** Measured share of the allocated GPU-hours, 0 to 1. */
export function measuredShare(row: GpuHours): number {
  return ratio(measuredHours(row), row.allocated_gpu_hours) ?? 0;
}

/** Effective ÷ measured GPU-hours; null if too few were measured. */
export function utilization(row: GpuHours & { effective_gpu_hours: Figure }): number | null {
  return isRepresentative(row) ? ratio(row.effective_gpu_hours, measuredHours(row)) : null;
}

/** The utilization, or which share was measured if that is too little. */
export function utilizationText(row: GpuHours & { effective_gpu_hours: Figure }): string {
  const share = measuredShare(row);
  return isRepresentative(row) || share <= 1e-9 ? percent(utilization(row)) : `${UNKNOWN} (${percent(share)} measured)`;
}

/** A share of waste. What is unmeasured may be waste, too: then the share is the least. */
export function wastePercent(row: GpuHours, share: Figure): string {
  const text = percent(share);
  if (share === null || share === undefined || (row.unmeasured_gpu_hours ?? 0) <= 1e-9) return text;
  if (text.startsWith(">")) return text;
  const digits = digitsOf(share); // rounded down, because it is the least
  const least = Math.floor(share * 100 * 10 ** digits + 1e-9) / 10 ** digits;
  return `≥${least > 0 ? least.toFixed(digits) : 0}%`;
}

/** Wasted share of the allocated cost, or which share of GPU-hours was measured if that is too little. */
export function wasteText(row: GpuHours & { waste_usd: Figure; allocated_usd: Figure }): string {
  const share = measuredShare(row);
  if (isRepresentative(row)) return wastePercent(row, ratio(row.waste_usd, row.allocated_usd));
  return share > 1e-9 ? `${UNKNOWN} (${percent(share)} measured)` : UNKNOWN;
}

/** Figures that follow from utilization. */
const OF_UTILIZATION: ReadonlySet<string> = new Set(["effective_usd", "waste_usd", "effective_gpu_hours"]);

/** Why such a figure is unknown. */
export const NOT_MEASURED = "utilization was not measured";
/** Why a ratio is unknown although a little was measured. */
export const HARDLY_MEASURED = `utilization of less than ${100 * MIN_MEASURED_SHARE}% was measured`;

/** The figure of a row; null if it follows from utilization and nothing was measured, where the API's sums have zeros. */
export function knownFigure<Key extends string>(row: Partial<GpuHours & Record<Key, Figure>>, key: Key): Figure {
  return isUnmeasured(row, key) ? null : row[key];
}

/** Whether a figure follows from utilization, and nothing was measured. */
export function isUnmeasured(row: Partial<GpuHours>, key: string): boolean {
  return OF_UTILIZATION.has(key) && !isMeasured(row);
}

/** A row whose figures that follow from utilization are null if nothing was measured. */
export function knownParts<Row extends GpuHours>(row: Row): Row {
  return isMeasured(row) ? row : { ...row, effective_usd: null, waste_usd: null };
}

/** Whether a utilization measurement exists for a part of the allocated GPU-hours, or nothing was allocated. */
export function isMeasured(row: Partial<GpuHours>): boolean {
  return measuredHours(row) > 1e-9 || (row.allocated_gpu_hours ?? 0) <= 1e-9;
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

const clocks = new Map<string, Intl.DateTimeFormat>();

/** The parts of a formatted time by type. Browser versions join them differently. */
function clockParts(at: string | number | Date, options: Intl.DateTimeFormatOptions): Record<string, string> {
  const key = JSON.stringify(options);
  let clock = clocks.get(key);
  if (clock === undefined) {
    clock = new Intl.DateTimeFormat("en-GB", options);
    clocks.set(key, clock);
  }
  return Object.fromEntries(clock.formatToParts(new Date(at)).map((part) => [part.type, part.value]));
}

const DATE = { weekday: "short", day: "numeric", month: "short" } as const;
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;

export function moment(instant: string | number | Date, zone: Zone): string {
  const at = clockParts(instant, { ...timeZone(zone), ...DATE, ...CLOCK, timeZoneName: "short" });
  return `${at["weekday"]} ${at["day"]} ${at["month"]}, ${at["hour"]}:${at["minute"]} ${at["timeZoneName"]}`;
}

/** A day, under a title that says that it is a UTC day, as all days are, and those of the AWS bill. */
export function dayOf(instant: string | number | Date): string {
  const at = clockParts(instant, { timeZone: "UTC", ...DATE });
  return `${at["weekday"]} ${at["day"]} ${at["month"]}`;
}

/** A day that stands alone. */
export function utcDay(instant: string | number | Date): string {
  return `${dayOf(instant)} (UTC day)`;
}

/** A granularity in titles: days, weeks and months are those of UTC in every time zone of the page. */
export function stepName(step: "hour" | "day" | "week" | "month"): string {
  return step === "hour" ? "hour" : `UTC ${step}`;
}

export const DAY = 24 * HOUR;
/** Hours of a month in monthly amounts. */
export const HOURS_PER_MONTH = 730;

/** Formats a time as the API does. */
export function instant(time: number | Date): string {
  return new Date(time).toISOString().replace(".000Z", "Z");
}

/** A time for a field with date and clock, which has no time zone. */
export function writeClock(time: string, zone: Zone): string {
  const at = new Date(time);
  const shift = zone === "utc" ? 0 : at.getTimezoneOffset() * 60_000;
  return new Date(at.getTime() - shift).toISOString().slice(0, 16);
}

/** The full hour, in milliseconds, of such a field; null if it is empty. */
export function readClock(text: string, zone: Zone): number | null {
  const time = Date.parse(zone === "utc" ? `${text}Z` : text);
  return Number.isNaN(time) ? null : Math.floor(time / HOUR) * HOUR;
}

/** Axis label: the hour, or the day at midnight. */
export function axisTime(seconds: number, zone: Zone): string {
  const clock = clockOf(seconds * 1000, zone);
  return clock === "00:00" ? dateOf(seconds * 1000, zone) : clock;
}

export function clockOf(time: number, zone: Zone): string {
  const at = new Date(time); // ten times as fast as a format, for the labels of hundreds of hours
  const [hour, minute] = zone === "utc" ? [at.getUTCHours(), at.getUTCMinutes()] : [at.getHours(), at.getMinutes()];
  return [hour, minute].map((part) => `${part}`.padStart(2, "0")).join(":");
}

/** The day of the month, without the year. */
export function dateOf(time: number, zone: Zone): string {
  const at = clockParts(time, { ...timeZone(zone), ...DATE });
  return `${at["day"]} ${at["month"]}`;
}

/** Names a bucket of a chart. A cut week or month begins at the period's start. */
export function bucketName(start: number, step: string, zone: Zone): string {
  if (step === "hour") return moment(start, zone);
  return step === "day" ? utcDay(start) : `${step} from ${utcDay(start)}`;
}

/** What a table says of a node's hardware. */
export function hardwareOf(node: { instance_type: string; capacity_type: string }): string {
  return [node.instance_type, ...(node.capacity_type === "on-demand" ? [] : [node.capacity_type])]
    .filter(Boolean)
    .join(", ");
}

/** A node's instance type, marked where no label says it. */
export function instanceType(node: { instance_type: string; instance_type_source?: string }): string {
  if (node.instance_type === "") return "unknown type";
  switch (node.instance_type_source ?? "") {
    case "":
      return node.instance_type;
    case "hardware":
      return `${node.instance_type} (inferred)`;
    default:
      return `${node.instance_type} (from ${node.instance_type_source})`;
  }
}
