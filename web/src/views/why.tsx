// "Why is this $3.43?": a line's figures with everything they were worked out from.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Line } from "../api";
import { exactMoney, gpuHours, moment, percent } from "../format";
import { useZone } from "../hooks";
import { Name } from "../parts";

const RUNGS: Record<string, string> = {
  pod: "the pod's own device",
  shared: "the shared device's use, split by the replicas held on it",
  node: "the mean of the node's devices that no pod claims: a guess",
  cluster: "the mean of the cluster's devices: a guess",
  none: "nobody observed it",
};

export function lineKey(line: Line): string {
  return `${line.hour} ${line.uid} ${line.resource} ${line.business_unit}`;
}

export function Why({ line, notes, close }: { line: Line; notes: string[] | null; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const zone = useZone();
  // Before anything is painted: a key that is pressed when it is seen must find it open.
  useLayoutEffect(() => {
    const element = dialog.current;
    if (element !== null && !element.open) element.showModal();
  }, []);
  const usd = (value: number | null) => exactMoney(value, line.currency);
  const whole = line.units * line.gpu_share;
  const held = whole > 0 && line.allocated_gpu_hours !== null ? line.allocated_gpu_hours / whole : null;
  return (
    <dialog ref={dialog} aria-labelledby="why" onClose={close} data-testid="why">
      <h2 id="why">Why is this {usd(line.allocated_usd)}?</h2>
      <p>
        Pod <Name>{line.pod}</Name> of {line.workload_kind} <Name>{line.workload}</Name> in namespace{" "}
        <Name>{line.namespace}</Name>, business unit <Name>{line.business_unit}</Name>, on node <Name>{line.node}</Name>{" "}
        ({line.instance_type}, {line.gpu_model}, {line.capacity_type}) of cluster <Name>{line.cluster}</Name>,{" "}
        {moment(line.hour, zone)}.
      </p>
      <ol>
        <li>
          <strong>Held:</strong> {line.units} × {line.resource}, each {gpuHours(line.gpu_share, 3)} of a physical GPU
          (found by {line.gpu_share_source}), for {gpuHours(held)} h:{" "}
          <b>{gpuHours(line.allocated_gpu_hours)} GPU-hours</b>.
        </li>
        <li>
          <strong>Price:</strong>{" "}
          {line.gpu_hourly_usd === null ? (
            "nobody knows one"
          ) : (
            <>
              <b>{usd(line.gpu_hourly_usd)}</b> for a GPU-hour
            </>
          )}
          , source {line.price_source || "none"}, split policy {line.split_policy || "none"}.
        </li>
        <li>
          <strong>Allocated:</strong> {gpuHours(line.allocated_gpu_hours)} × {usd(line.gpu_hourly_usd)} ={" "}
          <b data-testid="why-allocated">{usd(line.allocated_usd)}</b>.
        </li>
        <li>
          <strong>Used:</strong> {percent(line.utilization)} on average, by{" "}
          {RUNGS[line.utilization_source] ?? line.utilization_source} (rung {line.utilization_source}):{" "}
          {gpuHours(line.effective_gpu_hours)} GPU-hours, <b>{usd(line.effective_usd)}</b> effective
          {(line.unmeasured_gpu_hours ?? 0) > 0 && (
            <>
              ; {gpuHours(line.unmeasured_gpu_hours)} GPU-hours went unmeasured, {usd(line.unmeasured_usd)}
            </>
          )}
          .
        </li>
        <li>
          <strong>Waste:</strong> {usd(line.allocated_usd)} − {usd(line.effective_usd)} − {usd(line.unmeasured_usd)} ={" "}
          <b>{usd(line.waste_usd)}</b>.
        </li>
        {line.shared_from !== "" && (
          <li>
            It is this business unit's part of what <Name>{line.shared_from}</Name> cost.
          </li>
        )}
      </ol>
      {notes !== null && notes.length > 0 && (
        <>
          <h3>Notes of the hour</h3>
          <ul>
            {notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        </>
      )}
      <button type="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  );
}
