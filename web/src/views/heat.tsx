// A heat map of utilization by business unit and hour. Large maps have pages of business units, most waste first, which
// are loaded when they are shown.

import { fetchJson, fetchAll, type CostRow, type CostsResponse, type FleetResponse, type HoursResponse } from "../api";
import { Grid, type Pages } from "../charts/grid";
import { NothingSwatch, Scale } from "../charts/scale";
import {
  HOUR,
  isMeasured,
  isRepresentative,
  measuredShare,
  money,
  moment,
  percent,
  roundHours,
  stepName,
  utcDay,
  utilization,
} from "../format";
import { changed, go, useFetch, useIsNarrow, useRoute, useZone } from "../hooks";
import { Empty, Name, Loaded, useFolded } from "../parts";
import { rowsOfPage, UNITS_PER_REQUEST } from "../pages";
import { exactly, linkTo } from "../route";
import { align, bucketsOf, endOf, type Grain, isWhole, timeTicks } from "../series";
import { openAt } from "./over-time";
import { byUnit, coverageByUnit, type UnitClusters, unitOf } from "./units";

interface Props {
  units: CostsResponse;
  byTime: CostsResponse;
  timeGrain: Grain;
  fleet: FleetResponse;
  grain: Grain;
  hours: HoursResponse | null;
  clusters: UnitClusters | null;
}

/** Business units that a phone shows at first. */
const MOST_ON_PHONES = 6;
/** Letters of a name that fit in a line on a phone, and the height of the line in pixels. */
const LETTERS = 15;
const LINE = 17;

/** Height of a row in pixels. On a phone, names have as many lines as they need. */
export function rowHeightOf(names: readonly string[], isNarrow: boolean): number {
  const lines = isNarrow ? Math.ceil(Math.max(...names.map(({ length }) => length)) / LETTERS) : 1;
  return Math.max(names.length > 40 ? 16 : 22, lines * LINE);
}

export function Heat(props: Props) {
  const { units, byTime, timeGrain, fleet, grain, hours, clusters } = props;
  const all = units.rows.map(unitOf);
  const [names, button] = useFolded(all, Infinity, MOST_ON_PHONES);
  const isNarrow = useIsNarrow();
  const count = (Date.parse(units.end) - Date.parse(units.start)) / HOUR;
  if (names.length === 0) return <Empty>No GPUs were allocated in this period. Select another period.</Empty>;
  const perPage = rowsOfPage(count, all.length);
  if (grain !== timeGrain)
    return (
      <Paged
        units={units}
        names={all}
        hours={hours}
        clusters={clusters}
        perPage={isNarrow ? Math.min(MOST_ON_PHONES, perPage) : perPage}
      />
    );
  const page = { names, grain, rows: byTime.rows, fleet: fleet.rows, hours };
  return (
    <>
      <HeatMap units={units} page={page} clusters={clusters} />
      {button}
    </>
  );
}

interface Page {
  names: readonly string[];
  grain: Grain;
  rows: readonly CostRow[];
  /** Null if it is not needed. */
  fleet: FleetResponse["rows"] | null;
  hours: HoursResponse | null;
}

function Paged(props: {
  units: CostsResponse;
  names: readonly string[];
  hours: HoursResponse | null;
  clusters: UnitClusters | null;
  perPage: number;
}) {
  const route = useRoute();
  const { units, names, hours, perPage } = props;
  const pages = Math.ceil(names.length / perPage);
  const requested = Math.trunc(Number(route.query["page"] ?? 1)) || 1;
  const index = Math.min(pages, Math.max(1, requested)) - 1;
  const shown = names.slice(index * perPage, (index + 1) * perPage);
  const cluster = route.query["cluster"];
  const requestKey = JSON.stringify([units.start, units.end, cluster, shown]);
  const request = useFetch(requestKey, () => fetchPage(units, shown, cluster, hours));
  const turn = (by: number) => go(changed(route, { page: String(index + by + 1) }));
  return (
    <>
      {pages > 1 && (
        <p class="pages">
          <button type="button" disabled={index === 0} onClick={() => turn(-1)}>
            ↑ Previous
          </button>{" "}
          <button type="button" disabled={index === pages - 1} onClick={() => turn(1)}>
            ↓ Next
          </button>{" "}
          <span role="status" data-testid="heat-page">
            {index * perPage + 1} to {index * perPage + shown.length} of {names.length}, most waste first
          </span>
        </p>
      )}
      <Loaded request={request}>
        {(page) => (
          <HeatMap units={units} page={page} clusters={props.clusters} pages={{ index, count: pages, turn }} />
        )}
      </Loaded>
    </>
  );
}

async function fetchPage(
  { start, end, coverage }: CostsResponse,
  names: readonly string[],
  cluster: string | undefined,
  hours: HoursResponse | null,
): Promise<Page> {
  const unitFilters: string[] = [];
  for (let from = 0; from < names.length; from += UNITS_PER_REQUEST) {
    unitFilters.push(
      names
        .slice(from, from + UNITS_PER_REQUEST)
        .map(exactly)
        .join(","),
    );
  }
  const request = { start, end, cluster, granularity: "hour" } as const;
  const [fleet, ...viewData] = await Promise.all([
    hours === null && !isWhole(coverage) ? fetchJson("v1/fleet", request) : null,
    ...unitFilters.map((units) =>
      fetchAll("v1/costs", { ...request, business_unit: units, group_by: "business_unit" }),
    ),
  ]);
  return {
    names,
    grain: "hour",
    rows: viewData.flatMap((response) => response.rows),
    fleet: fleet?.rows ?? null,
    hours,
  };
}

/** A cell in words. What was not measured is neither used nor wasted. */
export function useText(cell: CostRow, currency: string): string {
  const { allocated_gpu_hours: allocated, unmeasured_gpu_hours: unmeasured } = cell;
  const wasted = `${money(cell.waste_usd, currency)} wasted`;
  if (unmeasured <= 1e-9) return `${percent(utilization(cell))} of ${roundHours(allocated)} GPU-hours used, ${wasted}`;
  const unknown = `${roundHours(unmeasured)} GPU-hours unmeasured (${money(cell.unmeasured_usd, currency)})`;
  if (!isMeasured(cell)) return unknown;
  if (!isRepresentative(cell)) return `${unknown}, too much for a utilization; ${wasted} of the rest`;
  const measured = `${roundHours(allocated - unmeasured)} measured GPU-hours`;
  return `${percent(utilization(cell))} of the ${measured} used, ${wasted}; ${unknown}`;
}

function HeatMap(props: { units: CostsResponse; page: Page; clusters: UnitClusters | null; pages?: Pages }) {
  const { units, page, clusters, pages } = props;
  const route = useRoute();
  const zone = useZone();
  const { names, grain } = page;
  const buckets = bucketsOf(units.start, units.end, grain);
  const series = byUnit(page.rows);
  const rows = names.map((name) => align(buckets, series.get(name) ?? []));
  const fleet = page.fleet === null ? [] : align(buckets, page.fleet);
  const coverageOf = coverageByUnit(buckets, page.hours, clusters, fleet, isWhole(units.coverage));
  const coverages = names.map(coverageOf);
  const isLacking = (row: number, column: number) => (coverages[row]?.[column] ?? 1) < 1;
  return (
    <>
      <Scale>
        <span>
          <NothingSwatch /> no GPUs allocated
        </span>
      </Scale>
      <Grid
        label={`Utilization of business units by ${stepName(grain)}`}
        rows={names.length}
        columns={buckets.starts.length}
        rowHeight={rowHeightOf(names, useIsNarrow())}
        dataKey={page}
        hint="a cell of the map"
        labels={names.map((name) => (
          <a key={name} href={linkTo(route, "unit", name)}>
            <Name>{name}</Name>
          </a>
        ))}
        {...(pages === undefined ? {} : { pages })}
        ticks={(most) => timeTicks(buckets, zone, most)}
        paint={(row, column) => {
          const cell = rows[row]?.[column];
          if (cell === undefined) return { fill: isLacking(row, column) ? "missing" : null };
          const use = utilization(cell);
          if (use === null) return { fill: "unmeasured" };
          return { fill: use, unmeasured: 1 - measuredShare(cell), isHatched: isLacking(row, column) };
        }}
        describe={(row, column) => {
          const cell = rows[row]?.[column];
          const start = buckets.starts[column] ?? 0;
          return (
            <>
              <strong>
                <Name>{names[row] ?? ""}</Name>
              </strong>{" "}
              {grain === "day" ? utcDay(start) : moment(start, zone)}:{" "}
              {cell === undefined
                ? isLacking(row, column)
                  ? "missing or incomplete"
                  : "no GPUs allocated"
                : useText(cell, units.currency)}
              {cell !== undefined &&
                isLacking(row, column) &&
                `; ${percent(coverages[row]?.[column])} of hours complete`}
            </>
          );
        }}
        onOpen={(row, column) => {
          const start = buckets.starts[column] ?? 0;
          go(openAt(route, buckets, start, endOf(buckets, column), { unit: names[row] ?? "" }));
        }}
      />
    </>
  );
}
