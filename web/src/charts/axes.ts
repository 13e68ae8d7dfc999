// What axes of uPlot share. Colors are read when they are drawn: paper is light.

import type uPlot from "uplot";
import { styleToken, textScale } from "./colors";

export function axisOf(element: Element) {
  const ink = () => styleToken(element, "--ink");
  const grid = () => styleToken(element, "--grid");
  const font = `${Math.round(12 * textScale())}px ${styleToken(element, "--font")}`;
  return { font, stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
}

/** An axis of time, as high as its labels. */
export function timeAxisOf(element: Element) {
  return { ...axisOf(element), size: Math.round(32 * textScale()), space: Math.round(60 * textScale()) };
}

/** Room around the plot: above for a half of the highest label, and to the right for a half of the last time. */
export function plotPadding(scale: number): [number, number, number, number] {
  return [Math.round(10 * scale), Math.round(28 * scale), 0, 0];
}

/** Room for the longest label next to an axis. */
export function sizeOf(_plot: uPlot, labels: readonly string[] | null): number {
  return 18 + 7 * textScale() * Math.max(5, ...(labels ?? []).map((label) => label.length));
}
