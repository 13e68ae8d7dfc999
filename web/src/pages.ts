// A map that is too large for one look is shown a page of rows at a time.

/** Figures that one page of the map holds at most. */
export const MOST_FIGURES = 20_000;
/** Business units that the API reads one by one; of more, it would read everybody's. */
export const UNITS_OF_A_QUESTION = 5;

/** Rows of the map that one page shows. */
export function rowsOfPage(hours: number, units: number): number {
  if (hours * units <= MOST_FIGURES) return Math.max(1, units);
  const fitting = Math.floor(MOST_FIGURES / hours / UNITS_OF_A_QUESTION) * UNITS_OF_A_QUESTION;
  return Math.max(UNITS_OF_A_QUESTION, fitting);
}
