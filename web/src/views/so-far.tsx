// Clusters without a whole hour: figures of the time so far, which only `gpucost serve` has.

import { useEffect } from "preact/hooks";
import { fetchServed } from "../api";
import { figureColumn, knownColumn, moneyColumn, nameColumn, wasteColumn } from "../columns";
import { counted, isMeasured, knownFigure, moment, money, NOT_MEASURED, roundHours, wastePercent } from "../format";
import { useFetch, useRoute, useZone } from "../hooks";
import { amountTitle } from "../identity";
import { Empty, ErrorMessage, Name, Section, Stat, Table, UnpricedNote } from "../parts";
import { type ClusterSoFar, clustersOf, type SoFarResponse, type UnitSoFar, wastedShare } from "../so-far";

/** Milliseconds until the figures are read again. */
const PAUSE = 60_000;

export function SoFar() {
  const route = useRoute();
  const { response, error, again } = useFetch("so-far", () => fetchServed<SoFarResponse>("so-far"));
  useEffect(() => {
    const timer = setTimeout(again, PAUSE);
    return () => clearTimeout(timer);
  }, [response, error]);
  if (error !== undefined) return <ErrorMessage error={error} again={again} />;
  const clusters = response === undefined ? [] : clustersOf(response, route.query["cluster"]);
  if (clusters.length === 0) return null;
  return (
    <Section title="So far">
      <p class="note">
        These clusters have no whole hour yet. Each figure is of the minutes that it names, not of an hour, and no other
        figure of the page contains it.
      </p>
      {clusters.map((answer) => (
        <article class="node" key={answer.cluster} data-testid="so-far">
          <h3>
            Cluster <Name>{answer.cluster}</Name>
            {"minutes" in answer && `: ${counted(answer.minutes, "minute")} so far`}
          </h3>
          {"error" in answer ? <Empty>Unknown: {answer.error}</Empty> : <Figures {...answer} />}
        </article>
      ))}
    </Section>
  );
}

function Figures(answer: ClusterSoFar) {
  const { cluster, minutes, totals, business_units: units, currency, notes } = answer;
  const zone = useZone();
  const inMinutes = `in ${counted(minutes, "minute")}`;
  const ofCost = totals.allocated_usd !== null;
  const ofUse = isMeasured(totals) ? inMinutes : NOT_MEASURED;
  return (
    <>
      <p>
        From {moment(answer.start, zone)} to {moment(answer.end, zone)}. The first whole hour ends at{" "}
        <strong>{moment(answer.first_whole_hour_end, zone)}</strong>, and is on the page five minutes later.
      </p>
      <dl class="stats">
        <Stat name="GPU-hours of pods" value={roundHours(totals.allocated_gpu_hours)} note={inMinutes} testId="held" />
        <Stat
          name="GPU-hours of nodes"
          value={roundHours(totals.capacity_gpu_hours)}
          note={`${roundHours(totals.unallocated_gpu_hours)} of them without a pod`}
          testId="capacity"
        />
        <Stat
          name="Waste %"
          value={wastePercent(totals, wastedShare(totals, ofCost))}
          note={ofCost ? "of the allocated cost" : "of the GPU-hours of pods"}
          testId="wasted"
        />
        <Stat
          name={amountTitle("node_cost_usd")}
          value={money(totals.node_cost_usd, currency)}
          note={inMinutes}
          testId="node-cost"
        />
        <Stat
          name={amountTitle("waste_usd")}
          value={money(knownFigure(totals, "waste_usd"), currency)}
          note={ofUse}
          testId="waste"
        />
      </dl>
      <UnpricedNote totals={totals} />
      {units.length === 0 ? (
        <Empty>No pod held GPUs in this time.</Empty>
      ) : (
        <Table
          name="so-far-units"
          caption={`Business units of cluster ${cluster} ${inMinutes}`}
          sort="-waste_usd"
          rows={units}
          rowKey={(row) => row.business_unit}
          columns={[
            nameColumn("business_unit", "Business unit", (row: UnitSoFar) => row.business_unit),
            moneyColumn("waste_usd", currency),
            wasteColumn((row: UnitSoFar) => wastedShare(row, ofCost), ofCost ? "Waste %" : "Waste % of GPU-hours"),
            moneyColumn("allocated_usd", currency),
            figureColumn("allocated_gpu_hours", "GPU-hours", (row: UnitSoFar) => row.allocated_gpu_hours, roundHours),
            knownColumn("effective_gpu_hours", "Effective GPU-hours", roundHours),
            figureColumn(
              "unmeasured_gpu_hours",
              "Unmeasured GPU-hours",
              (row: UnitSoFar) => row.unmeasured_gpu_hours,
              roundHours,
            ),
          ]}
        />
      )}
      {notes.length > 0 && (
        <ul class="notes">
          {notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </>
  );
}
