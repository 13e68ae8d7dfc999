// The probable causes of GPU-hours without a measurement.

import type { HourRow, Line } from "../api";
import { money, roundHours } from "../format";
import { useRoute } from "../hooks";
import { Help, Name } from "../parts";
import { linkTo } from "../route";
import { causesOf } from "../unmeasured";

const MOST_PODS = 3;

/** Whether pods have GPU-hours without a measurement. */
export function hasCauses(lines: readonly Line[]): boolean {
  return causesOf(lines, []).length > 0;
}

export function Causes({ lines, hours }: { lines: readonly Line[]; hours: readonly HourRow[] }) {
  const route = useRoute();
  return (
    <>
      <ul class="notes" data-testid="causes">
        {causesOf(lines, hours).map(({ cause, check, lines: pods, gpuHours, usd }) => {
          const names = [...new Set(pods.map(({ pod }) => pod))];
          return (
            <li key={cause}>
              <strong>{money(usd, pods[0]?.currency)}</strong>, {roundHours(gpuHours)} GPU-hours: {cause}. Pods:{" "}
              {names.slice(0, MOST_PODS).map((name, index) => (
                <span key={name}>
                  {index > 0 && ", "}
                  <Name>{name}</Name>
                </span>
              ))}
              {names.length > MOST_PODS && ` and ${names.length - MOST_PODS} others`}. The doctor's check:{" "}
              <strong>{check}</strong>.
            </li>
          );
        })}
      </ul>
      <p class="note">
        These causes follow from the hour's pods and scrapes. <a href={linkTo(route, "health")}>Data health</a> has the
        notes; <code class="command">gpucost doctor --settings FILE</code> checks the metrics now <Help term="doctor" />
        .
      </p>
    </>
  );
}
