// Splits a large heat map into pages of rows.

/** Most figures on one page of the heat map. */
export const MAX_FIGURES = 20_000;
/** Most business units that the API reads separately. For more, it reads the records of all units. */
export const UNITS_PER_REQUEST = 5;

/** Rows per page. */
export function rowsOfPage(hours: number, units: number): number {
  if (hours * units <= MAX_FIGURES) return Math.max(1, units);
  const fitting = Math.floor(MAX_FIGURES / hours / UNITS_PER_REQUEST) * UNITS_PER_REQUEST;
  return Math.max(UNITS_PER_REQUEST, fitting);
}
