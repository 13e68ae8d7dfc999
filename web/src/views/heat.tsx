// A heat map of utilization by business unit and hour. Large maps have pages of business units, most waste first, which
// are loaded when they are shown.

import { fetchJson, fetchAll, type CostRow, type CostsResponse, type FleetResponse, type HoursResponse } from "../api";
import { useColour } from "../charts/colours";
import { Grid, type Pages } from "../charts/grid";
import { Scale } from "../charts/scale";
import { gpuHours, HOUR, money, moment, percent, tick, utcDay, utilization } from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { Empty, Name, Loaded } from "../parts";
import { rowsOfPage, UNITS_PER_REQUEST } from "../pages";
import { exactly, linkTo } from "../route";
import { align, bucketsOf, endOf, type Grain, isWhole, completeShare, ticksOf } from "../series";
import { openAt } from "./over-time";
import { byUnit, unitOf } from "./units";

interface Props {
  units: CostsResponse;
  byTime: CostsResponse;
  timeGrain: Grain;
  fleet: FleetResponse;
  grain: Grain;
  hours: HoursResponse | null;
}

const MAX_HOURS = 35 * 24;

export function Heat(props: Props) {
  const route = useRoute();
  const { units, byTime, timeGrain, fleet, grain, hours } = props;
  const names = units.rows.map(unitOf);
  const count = (Date.parse(units.end) - Date.parse(units.start)) / HOUR;
  if (names.length === 0) return <Empty>No GPUs were allocated in this period.</Empty>;
  const own: Grain = route.query["grain"] === "day" || count > MAX_HOURS ? "day" : "hour";
  if (own !== timeGrain)
    return <Paged units={units} names={names} hours={hours} perPage={rowsOfPage(count, names.length)} />;
  const page = { names, grain: own, rows: byTime.rows, fleet: grain === own ? fleet.rows : null, hours };
  return <HeatMap units={units} page={page} />;
}

interface Page {
  names: readonly string[];
  grain: Grain;
  rows: readonly CostRow[];
  /** Null if it is not needed or has another granularity. */
  fleet: FleetResponse["rows"] | null;
  hours: HoursResponse | null;
}

function Paged(props: { units: CostsResponse; names: readonly string[]; hours: HoursResponse | null; perPage: number }) {
  const route = useRoute();
  const { units, names, hours, perPage } = props;
  const pages = Math.ceil(names.length / perPage);
  const wanted = Math.trunc(Number(route.query["page"] ?? 1)) || 1;
  const place = Math.min(pages, Math.max(1, wanted)) - 1;
  const shown = names.slice(place * perPage, (place + 1) * perPage);
  const cluster = route.query["cluster"];
  const question = JSON.stringify([units.start, units.end, cluster, shown]);
  const asked = useFetch(question, () => fetchPage(units, shown, cluster, hours));
  const turn = (by: number) => go(changed(route, { page: String(place + by + 1) }));
  return (
    <>
      {pages > 1 && (
        <p class="pages">
          <button type="button" disabled={place === 0} onClick={() => turn(-1)}>
            ↑ Previous
          </button>{" "}
          <button type="button" disabled={place === pages - 1} onClick={() => turn(1)}>
            ↓ Next
          </button>{" "}
          <span role="status" data-testid="heat-page">
            {place * perPage + 1} to {place * perPage + shown.length} of {names.length}, most waste first
          </span>
        </p>
      )}
      <Loaded asked={asked}>
        {(page) => <HeatMap units={units} page={page} pages={{ place, count: pages, turn }} />}
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
  const questions: string[] = [];
  for (let from = 0; from < names.length; from += UNITS_PER_REQUEST) {
    questions.push(
      names
        .slice(from, from + UNITS_PER_REQUEST)
        .map(exactly)
        .join(","),
    );
  }
  const asked = { start, end, cluster, granularity: "hour" };
  const [fleet, ...viewData] = await Promise.all([
    hours === null && !isWhole(coverage) ? fetchJson<FleetResponse>("v1/fleet", asked) : null,
    ...questions.map((units) =>
      fetchAll<CostRow, CostsResponse>("v1/costs", { ...asked, business_unit: units, group_by: "business_unit" }),
    ),
  ]);
  return { names, grain: "hour", rows: viewData.flatMap((answer) => answer.rows), fleet: fleet?.rows ?? null, hours };
}

function HeatMap({ units, page, pages }: { units: CostsResponse; page: Page; pages?: Pages }) {
  const route = useRoute();
  const zone = useZone();
  const { names, grain } = page;
  const buckets = bucketsOf(units.start, units.end, grain);
  const series = byUnit(page.rows);
  const rows = names.map((name) => align(buckets, series.get(name) ?? []));
  const fleet = page.fleet === null ? [] : align(buckets, page.fleet);
  const known = completeShare(buckets, page.hours?.rows ?? null, fleet, isWhole(units.coverage));
  return (
    <>
      <Scale />
      <Grid
        label={`Utilization of business units by ${grain}`}
        rows={names.length}
        columns={buckets.starts.length}
        rowHeight={names.length > 40 ? 16 : 22}
        dataKey={page}
        hint="Point at a cell, or focus the map and use the arrow keys."
        labels={names.map((name) => (
          <a key={name} href={linkTo(route, "unit", name)}>
            <Name>{name}</Name>
          </a>
        ))}
        {...(pages === undefined ? {} : { pages })}
        ticks={(most) => ticksOf(buckets, (start) => tick(start, buckets.step, zone), most)}
        paint={(row, column) => {
          const one = rows[row]?.[column];
          if (one === undefined) return { fill: (known[column] ?? 1) < 1 ? "missing" : null };
          const use = utilization(one);
          return { fill: use === null ? "missing" : useColour(use), isHatched: (known[column] ?? 1) < 1 };
        }}
        describe={(row, column) => {
          const one = rows[row]?.[column];
          const start = buckets.starts[column] ?? 0;
          return (
            <>
              <strong>
                <Name>{names[row] ?? ""}</Name>
              </strong>{" "}
              {grain === "day" ? utcDay(start) : moment(start, zone)}:{" "}
              {one === undefined
                ? (known[column] ?? 1) < 1
                  ? "missing or incomplete"
                  : "no GPUs allocated"
                : `${percent(utilization(one))} of ${gpuHours(one.allocated_gpu_hours)} GPU-hours used, ${money(one.waste_usd, units.currency)} wasted`}
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
