// The hours of nodes from which the page derives which node to remove.

import { fetchAll, MAX_DETAIL_HOURS, type NodeRow } from "./api";
import { DAY, HOUR, instant } from "./format";
import { MOST_DAYS } from "./periods";

const MAX_PAGES = 10;
const PAGE_ROWS = 2000;

export interface NodeHours {
  start: string;
  end: string;
  /** Whether only the last part of the selected period is shown. */
  isCut: boolean;
  /** Not all hours were loaded, because the fleet is too large for the period. */
  isPartial: boolean;
  rows: NodeRow[];
}

/** The last week of a period, or its last day if the fleet is too large for more. */
export async function fetchNodeHours(period: {
  start: string;
  end: string;
  cluster: string | undefined;
}): Promise<NodeHours> {
  const { start, end, cluster } = period;
  const newest = await fetchRows(Math.max(Date.parse(start), Date.parse(end) - MAX_DETAIL_HOURS * HOUR), end, cluster);
  const week = Math.max(Date.parse(start), Date.parse(end) - MOST_DAYS.nodes * DAY);
  const parts = Math.ceil((Date.parse(end) - week) / (MAX_DETAIL_HOURS * HOUR));
  const isWeek = parts > 1 && newest.rows.length * parts <= MAX_PAGES * PAGE_ROWS;
  const first = parts === 1 || isWeek ? week : Date.parse(end) - DAY;
  const earlier = isWeek
    ? await Promise.all(
        Array.from({ length: parts - 1 }, (_, part) => {
          const until = Date.parse(end) - (part + 1) * MAX_DETAIL_HOURS * HOUR;
          return fetchRows(Math.max(week, until - MAX_DETAIL_HOURS * HOUR), instant(until), cluster);
        }),
      )
    : [];
  const all = [...earlier.reverse(), newest];
  return {
    start: instant(first),
    end,
    isCut: first > Date.parse(start),
    isPartial: all.some(({ cursor }) => cursor !== null),
    rows: all.flatMap(({ rows }) => rows).filter(({ hour }) => Date.parse(hour) >= first),
  };
}

function fetchRows(start: number, end: string, cluster: string | undefined) {
  return fetchAll("v1/nodes", { start: instant(start), end, cluster, limit: `${PAGE_ROWS}` }, MAX_PAGES);
}
