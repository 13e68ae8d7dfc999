// Business units by waste, compared with an earlier period.

import type { CostRow, CostsResponse, FleetResponse, HoursResponse } from "../api";
import { figureColumn, groupColumn, gpuHoursColumn, moneyColumn, wasteColumn } from "../columns";
import { type Compared, comparisonOf, earlierText, relativeChange } from "../compare";
import { change, type Figure, isMeasured, isRepresentative, knownFigure, ratio, UNKNOWN } from "../format";
import { useRoute, useZone } from "../hooks";
import { Empty, Spark, Table } from "../parts";
import { linkTo } from "../route";
import { align, type Buckets, bucketsOf, cutOf, type Grain, hoursIn, isWhole, completeShare } from "../series";

interface Props {
  units: CostsResponse;
  before: Compared<{ fleet: FleetResponse; units: CostsResponse }>;
  byTime: CostsResponse;
  timeGrain: Grain;
  hours: HoursResponse | null;
  clusters: UnitClusters | null;
  inOrder: { current: readonly CostRow[] };
}

/** Clusters by business unit. */
export type UnitClusters = ReadonlyMap<string, ReadonlySet<string>>;

export function Units({ units, before, byTime, timeGrain, hours, clusters, inOrder }: Props) {
  const route = useRoute();
  const zone = useZone();
  const { body: earlier } = before;
  const wasted = new Map(earlier.units.rows.map((row) => [unitOf(row), row.waste_usd]));
  const buckets = bucketsOf(units.start, units.end, timeGrain);
  const series = byUnit(byTime.rows);
  const { currency } = units;
  const comparison = comparisonOf(units.coverage, earlier.units.coverage);
  const against = (row: CostRow): Figure =>
    isRepresentative(row) ? relativeChange(row.waste_usd, wasted.get(unitOf(row)), comparison) : null;
  const coverageOf = coverageByUnit(buckets, hours, clusters, [], isWhole(units.coverage));
  // In buckets with data, a missing row means that the unit held nothing: a zero, not a gap.
  // A cut day would look like a drop.
  const trend = (row: CostRow) => {
    const coverage = coverageOf(unitOf(row));
    return align(buckets, series.get(unitOf(row)) ?? [])
      .map((bucket, index) => {
        if (bucket === undefined) return coverage[index] === 1 ? 0 : null;
        return knownFigure(bucket, "waste_usd") ?? null;
      })
      .filter((_, index) => buckets.starts.length < 3 || cutOf(buckets, index) === null);
  };
  if (units.rows.length === 0) return <Empty>No GPUs were allocated in this period. Select another period.</Empty>;
  return (
    <Table
      name="units"
      inOrder={inOrder}
      mostOnPhones={6}
      caption={`Costs by business unit. Waste change: ${
        comparison === null ? "not shown, because too many hours have no figures" : `vs ${earlierText(before, zone)}`
      }`}
      sort="-waste_usd"
      rows={units.rows}
      rowKey={unitOf}
      columns={[
        groupColumn("business_unit", "Business unit", (row: CostRow) => linkTo(route, "unit", unitOf(row))),
        moneyColumn("waste_usd", currency),
        wasteColumn((row: CostRow) => ratio(row.waste_usd, row.allocated_usd)),
        { ...figureColumn("change", "Waste change", against, change), isChange: true },
        moneyColumn("allocated_usd", currency),
        moneyColumn("effective_usd", currency),
        moneyColumn("unmeasured_usd", currency),
        gpuHoursColumn(),
        {
          key: "trend",
          title: "Waste trend",
          cell: (row) =>
            isMeasured(row) ? <Spark label={`Waste of ${unitOf(row)} over time`} values={trend(row)} /> : UNKNOWN,
        },
      ]}
    />
  );
}

/** Share of each bucket's hours with figures, in the clusters that a unit uses. */
export function coverageByUnit(
  buckets: Buckets,
  hours: HoursResponse | null,
  clusters: UnitClusters | null,
  rows: readonly (object | undefined)[],
  isPeriodComplete: boolean,
): (unit: string) => readonly number[] {
  const computed = new Map<string, readonly number[]>(); // many units use the same clusters
  return (unit) => {
    const used = clusters?.get(unit) ?? null;
    const key = used === null ? "" : [...used].sort().join("\n");
    const coverage =
      computed.get(key) ?? completeShare(buckets, hoursIn(hours, used)?.rows ?? null, rows, isPeriodComplete);
    computed.set(key, coverage);
    return coverage;
  };
}

export function unitOf(row: CostRow): string {
  return row.group["business_unit"] ?? "";
}

export function byUnit(rows: readonly CostRow[]): Map<string, CostRow[]> {
  const rowsByUnit = new Map<string, CostRow[]>();
  for (const row of rows) {
    const unitRows = rowsByUnit.get(unitOf(row));
    if (unitRows === undefined) rowsByUnit.set(unitOf(row), [row]);
    else unitRows.push(row);
  }
  return rowsByUnit;
}
