// What axes of uPlot share. Colors are read when they are drawn: paper is light.

import type uPlot from "uplot";
import { styleToken } from "./colors";

export function axisOf(element: Element) {
  const ink = () => styleToken(element, "--ink");
  const grid = () => styleToken(element, "--grid");
  return { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
}

/** Height of a time axis. */
export const TIME_AXIS = 32;

/** Room for the longest label next to an axis. */
export function sizeOf(_plot: uPlot, labels: readonly string[] | null): number {
  return 18 + 7 * Math.max(5, ...(labels ?? []).map((label) => label.length));
}
