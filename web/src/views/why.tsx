// Shows how a line's cost was calculated.

import type { HourRow, Line } from "../api";
import { type Amounts, answerOf, type FigureKey, notesOn, queriesOf } from "../explain";
import { joinPriced } from "../health";
import { exactMoney, gpuHours, HOUR, instanceType, moment, percent } from "../format";
import { useZone } from "../hooks";
import { AMOUNTS } from "../identity";
import { Dialog, Name, SplitPolicy } from "../parts";
import { didNotRun } from "../unmeasured";

const UTILIZATION_SOURCES: Record<string, string> = {
  pod: "the pod's own GPUs",
  process: "the shared GPU's utilization, split by what the pods' processes use",
  shared: "the shared GPU's utilization, split among its pods by replicas",
  node: "the mean of the node's GPUs without a pod (estimate)",
  cluster: "the mean of the cluster's GPUs (estimate)",
  none: "no measurement",
};

export function lineKey(line: Line): string {
  return `${line.hour} ${line.uid} ${line.resource} ${line.business_unit}`;
}

export function Why(props: {
  line: Line;
  /** The figure that was selected. */
  figure: FigureKey;
  hour: HourRow | undefined;
  closeName?: string;
  close: () => void;
}) {
  const { line, figure, hour, close, closeName } = props;
  const zone = useZone();
  const usd = (value: number | null) => exactMoney(value, line.currency);
  const whole = line.units * line.gpu_share;
  const notes = joinPriced(notesOn(hour?.notes ?? [], new Set([line.instance_type])));
  const held = whole > 0 ? line.allocated_gpu_hours / whole : null;
  return (
    <Dialog
      id="why"
      title={`How the ${AMOUNTS[figure]} of ${usd((line as Amounts)[figure] ?? null)} was calculated`}
      close={close}
      closeName={closeName}
    >
      <p data-testid="why-answer">{answerOf(figure, line)}</p>
      <p>
        Pod <Name>{line.pod}</Name> of {line.workload_kind} <Name>{line.workload}</Name> in namespace{" "}
        <Name>{line.namespace}</Name>, business unit <Name>{line.business_unit}</Name>, on node <Name>{line.node}</Name>{" "}
        ({[instanceType(line), line.gpu_model, line.capacity_type].filter(Boolean).join(", ")}) of cluster{" "}
        <Name>{line.cluster}</Name>, {moment(line.hour, zone)}.
      </p>
      <ol>
        <li>
          <strong>Allocated time:</strong> {line.units} × {line.resource}, each {gpuHours(line.gpu_share, 3)} of a
          physical GPU (source: {line.gpu_share_source}), for {gpuHours(held)} h:{" "}
          <b>{gpuHours(line.allocated_gpu_hours)} GPU-hours</b>.
        </li>
        <li>
          <strong>Price:</strong>{" "}
          {line.gpu_hourly_usd === null ? (
            "none"
          ) : (
            <>
              <b>{usd(line.gpu_hourly_usd)}</b> per GPU-hour
            </>
          )}
          , source {line.price_source || "none"}, <SplitPolicy name={line.split_policy} />.
        </li>
        <li>
          <strong>Allocated cost:</strong> {gpuHours(line.allocated_gpu_hours)} × {usd(line.gpu_hourly_usd)} ={" "}
          <b data-testid="why-allocated">{usd(line.allocated_usd)}</b>.
        </li>
        <li>
          <strong>Utilization:</strong> {percent(line.utilization)} on average, from{" "}
          {didNotRun(line)
            ? "the pod did not run, for example because its image was being pulled"
            : (UTILIZATION_SOURCES[line.utilization_source] ?? line.utilization_source)}{" "}
          (source: {line.utilization_source}): {gpuHours(line.effective_gpu_hours)} GPU-hours,{" "}
          <b>{usd(line.effective_usd)}</b> effective cost
          {line.unmeasured_gpu_hours > 0 && (
            <>
              ; {gpuHours(line.unmeasured_gpu_hours)} GPU-hours unmeasured, {usd(line.unmeasured_usd)} unmeasured cost
            </>
          )}
          .
        </li>
        <li>
          <strong>Waste:</strong> {answerOf("waste_usd", line)}
        </li>
        {line.shared_from !== "" && (
          <li>
            This is this business unit's share of the cost of <Name>{line.shared_from}</Name>.
          </li>
        )}
      </ol>
      <h3>Samples</h3>
      <p>
        The ledger keeps hourly figures, not samples. To see the samples, run these queries in the Prometheus of cluster{" "}
        <Name>{line.cluster}</Name>, from {moment(line.hour, zone)} to {moment(Date.parse(line.hour) + HOUR, zone)}:
      </p>
      <ul>
        {queriesOf(line).map(({ title, query }) => (
          <li key={title}>
            {title}: <code class="command">{query}</code>
          </li>
        ))}
      </ul>
      {hour !== undefined && hour.version !== null && (
        <p>
          Figures: version {hour.version} of the hour ({hour.status}), settings version {hour.settings_version}
          {hour.published_at !== null && `, published ${moment(hour.published_at, zone)}`}.
        </p>
      )}
      {notes.length > 0 && (
        <>
          <h3>Notes on this hour</h3>
          <ul>
            {notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        </>
      )}
    </Dialog>
  );
}
