// Colors that color-blind people can distinguish (measured in tests/colors.test.ts): for parts, adjusted Okabe-Ito hues.
// Those of utilization depend on the color scheme: --use in style.css, from 0 to 100%.

import type { Part, PartKey } from "../identity";

export type Color = `#${string}` | `rgb(${string})`;

export const PART_COLORS: Record<PartKey, Color> = {
  effective_usd: "#03a379",
  waste_usd: "#bf3e07",
  unmeasured_usd: "#ffe111",
  unallocated_usd: "#9ca8fc",
  stranded_usd: "#af78a3",
  unobserved_usd: "#d1d1d1",
  host_usd: "#2864d8",
  residual_usd: "#e87b00",
};

/** Colors of groups, which people with any color blindness can distinguish, and apart from those of the parts, which mean
 * something else. */
export const GROUP_COLORS: readonly string[] = [
  "#e69b9b",
  "#a51ee1",
  "#6e6e14",
  "#8cd7f5",
  "#c8e632",
  "#b9416e",
  "#329baa",
  "#9b9b23",
  "#f5d7aa",
  "#b469ff",
  "#aa7d5f",
  "#507d7d",
  "#f5419b",
  "#9bc85f",
];
/** Most groups that a chart names: half of the colors, so that two of a chart rarely stand for the same one. */
export const MOST_GROUPS = 7;
/** Color of the groups that a chart does not name. */
export const OTHERS_COLOR = PART_COLORS.unobserved_usd;
/** Color of the idle cost: that of its largest part. */
export const IDLE_COLOR = PART_COLORS.unallocated_usd;

/** Colors of the groups that a chart names, at most as many as there are colors; no two have the same.
 *
 * Nothing else than the names decides: first all `known` ones, in order, choose the color that their name stands for, or
 * the next free one. So a business unit has one color in all charts, periods and browsers as long as the settings have
 * the same units. Of more units than colors, and of other groups, some share a color; in a chart, those later in order
 * have the next free one. */
export function groupColors(names: readonly string[], known: readonly string[] = []): ReadonlyMap<string, string> {
  const preferred = new Map<string, string>();
  [...new Set(known)].sort().forEach((name, at) => {
    const round = [...preferred.values()].slice(at - (at % GROUP_COLORS.length));
    preferred.set(name, firstFree(name, round));
  });
  const colors = new Map<string, string>();
  const taken: string[] = [];
  const take = (name: string, color: string) => {
    colors.set(name, color);
    taken.push(color);
  };
  const sorted = [...new Set(names)].sort();
  for (const name of sorted) {
    const color = preferred.get(name);
    if (color !== undefined && !taken.includes(color)) take(name, color);
  }
  for (const name of sorted) if (!colors.has(name)) take(name, firstFree(name, taken));
  return colors;
}

/** The color that a name stands for, or the next one that is not taken. */
function firstFree(name: string, taken: readonly string[]): string {
  const first = hashOf(name);
  const choices = GROUP_COLORS.map((_, at) => GROUP_COLORS[(first + at) % GROUP_COLORS.length] ?? OTHERS_COLOR);
  return choices.find((color) => !taken.includes(color)) ?? OTHERS_COLOR;
}

function hashOf(name: string): number {
  let hash = 0;
  for (const character of name) hash = (hash * 31 + (character.codePointAt(0) ?? 0)) % 1_000_003;
  return hash;
}

/** Parts of the node cost with their colors, for a chart. */
export function colored(parts: readonly Part[]): (Part & { color: string })[] {
  return parts.map((part) => ({ ...part, color: PART_COLORS[part.key] }));
}

/** How areas are drawn: light, with a thin line in a stronger shade of their color. */
export interface Shades {
  fill: (color: string) => string;
  line: (color: string) => string;
}

/** The shades on the ground of an element. */
export function shadesOf(element: Element): Shades {
  const [panel, ink] = [styleToken(element, "--panel"), styleToken(element, "--ink")];
  const [fill, line] = ["--fill-share", "--line-share"].map((name) => parseFloat(styleToken(element, name)) / 100);
  return {
    fill: (color) => mixed(color, panel, fill ?? 1),
    line: (color) => mixed(color, ink, line ?? 1),
  };
}

/** A color of which a share, 0 to 1, is the first one, as CSS's color-mix computes it. */
export function mixed(color: string, other: string, share: number): string {
  const [own, ground] = [channelsOf(color), channelsOf(other)];
  return `rgb(${own.map((channel, at) => Math.round(channel * share + (ground[at] ?? channel) * (1 - share))).join(",")})`;
}

function channelsOf(color: string): number[] {
  const long = color.replace(/^#(.)(.)(.)$/, "#$1$1$2$2$3$3");
  return [1, 3, 5].map((at) => parseInt(long.slice(at, at + 2), 16));
}

/** Names on cells of any color. */
export const PLATE = "rgb(0 0 0 / 75%)";
export const PLATE_TEXT = "#fff";

/** The colors of a scale, as the style sheet lists them: #00224e, #123570. */
export function scaleOf(list: string): number[][] {
  return list.split(",").map((color) => channelsOf(color.trim()));
}

/** The color of a utilization, 0 to 1, on a scale from 0 to 100%. */
export function useColor(scale: readonly (readonly number[])[], value: number): string {
  const at = Math.min(1, Math.max(0, value)) * (scale.length - 1);
  const [low = [], high = []] = [scale[Math.floor(at)], scale[Math.ceil(at)]];
  const mixed = low.map((channel, index) => Math.round(channel + ((high[index] ?? channel) - channel) * (at % 1)));
  return `rgb(${mixed.join(",")})`;
}

/** Statuses of hours, apart from the parts of the cost, which mean something else: an alarm color only where figures are
 * missing. */
export const STATUS_COLORS = {
  complete: "#507d7d",
  provisional: "#8cd7f5",
  restated: "#6e50e6",
  pending: "#f5d7aa",
  incomplete: "#b9416e",
} as const;

/** The share of an hour's scrapes that may be missing without a finding. */
export const NEGLIGIBLE = 0.01;

/** The color of a coverage, 0 to 1: that of complete hours if nothing is missing, and an alarm color the more is. */
export function coverageColor(share: number): Color {
  const [light, dark] = COVERAGE_LOST;
  const lost = Math.min(1, Math.max(0, 1 - share));
  if (lost < NEGLIGIBLE) return STATUS_COLORS.complete;
  return `rgb(${light.map((channel, index) => Math.round(channel + ((dark[index] ?? channel) - channel) * lost)).join(",")})`;
}

/** From a little missing to everything missing. */
export const COVERAGE_LOST = [
  [243, 190, 208],
  [185, 65, 110],
] as const;

/** Reads a token of the style sheet, which depends on the color scheme. */
export function styleToken(element: Element, name: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

/** How much larger than usual the text is, on screens of 4K. */
export function textScale(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
}

/** Height, in pixels, of the mark for a bar or day of which a small part is missing. */
export const GAP_MARK = 8;

const hatches = new Map<string, CanvasPattern>();

/** The diagonal pattern of missing data. */
export function hatch(context: CanvasRenderingContext2D, color: string): CanvasPattern | string {
  const cached = hatches.get(color);
  if (cached !== undefined) return cached;
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  if (pen === null) return color;
  pen.strokeStyle = color;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  if (pattern === null) return color;
  hatches.set(color, pattern);
  return pattern;
}
