// Colours that the colour-blind can tell apart (tests/colours.test.ts measures it): of parts, Okabe and Ito's hues, moved
// so that any two differ however they meet, and in lightness where they always meet; cividis for utilization.

import type { PartKey } from "../identity";

export const PART_COLOURS: Record<PartKey, string> = {
  effective_usd: "#03a379",
  waste_usd: "#bf3e07",
  unmeasured_usd: "#ffe111",
  unallocated_usd: "#3ed4fa",
  stranded_usd: "#af78a3",
  unobserved_usd: "#d1d1d1",
  host_usd: "#2864d8",
  residual_usd: "#e87b00",
};

/** Lines around parts: dark enough beside each of them, and where paper has no colours. */
export const OUTLINE = "#1b2025";

const CIVIDIS = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [166, 156, 117],
  [195, 179, 105],
  [225, 204, 85],
  [254, 232, 56],
] as const;

/** Of a utilization, 0 to 1. */
export function useColour(value: number): string {
  const at = Math.min(1, Math.max(0, value)) * (CIVIDIS.length - 1);
  const low = CIVIDIS[Math.floor(at)] ?? CIVIDIS[0];
  const high = CIVIDIS[Math.ceil(at)] ?? CIVIDIS[9];
  const mixed = low.map((one, place) => Math.round(one + ((high[place] ?? one) - one) * (at % 1)));
  return `rgb(${mixed.join(",")})`;
}

/** A custom property of the style sheet, which knows light from dark. */
export function styleColour(element: Element, name: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

const hatches = new Map<string, CanvasPattern>();

/** Diagonal lines: missing data. */
export function hatch(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const known = hatches.get(colour);
  if (known !== undefined) return known;
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  if (pen === null) return colour;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  if (pattern === null) return colour;
  hatches.set(colour, pattern);
  return pattern;
}
