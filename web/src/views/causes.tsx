// The probable causes of GPU-hours without a measurement.

import { fetchAll, type HourRow, type Line } from "../api";
import { counted, HOUR, instant, money, moment, roundHours, shortNode } from "../format";
import { useRoute, useZone } from "../hooks";
import { DoctorCommand, Help, Name } from "../parts";
import { linkTo } from "../route";
import { type Cause, causesOf, questionOf, type Unmeasured } from "../unmeasured";

const MOST_NAMES = 3;

/** Whether pods have GPU-hours without a measurement. */
export function hasCauses(lines: readonly Line[]): boolean {
  return causesOf(lines, []).length > 0;
}

/** All pods of the hours in which pods of a filter are unmeasured. The others show whether an exporter was silent. */
export async function fetchNeighbors(
  period: { start: string; end: string },
  cluster: string | undefined,
  lines: readonly Line[],
): Promise<Line[]> {
  if (!hasCauses(lines)) return [...lines];
  return (await fetchAll("v1/lines", { ...period, cluster, limit: "2000" }, 10)).rows;
}

interface Props {
  lines: readonly Line[];
  hours: readonly HourRow[];
  /** With the pods of the same hours that a filter leaves out. */
  all?: readonly Line[];
}

export function Causes({ lines, hours, all = lines }: Props) {
  const route = useRoute();
  const areSeveral = new Set(lines.map(({ hour }) => hour)).size > 1;
  return (
    <>
      <ul class="cards" data-testid="causes">
        {causesOf(lines, hours, all).map((cause) => (
          <CauseItem key={`${cause.cluster} ${cause.hour} ${cause.cause}`} cause={cause} hasHour={areSeveral} />
        ))}
      </ul>
      <p class="note">
        These causes follow from the hour's pods and scrapes. <a href={linkTo(route, "health")}>Data health</a> has the
        other hours; <DoctorCommand /> checks the metrics now <Help term="doctor" />.
      </p>
    </>
  );
}

interface ItemProps {
  cause: Cause;
  /** What the cause adds up to in the period; without it, the figures are those of its hours. */
  period?: Unmeasured;
  hasHour: boolean;
}

/** An item of a list, the same in every view: the amount, what happened on which nodes, the pods, and the check. */
export function CauseItem(props: ItemProps) {
  const { cause, period = cause } = props;
  return (
    <li class="item">
      <div class="amount">
        <strong>{money(period.usd, cause.lines[0]?.currency)}</strong>
      </div>
      <div>
        <CauseText {...props} />
      </div>
    </li>
  );
}

function CauseText({ cause, period, hasHour }: ItemProps) {
  const route = useRoute();
  const zone = useZone();
  const { cluster, nodes, hour, lines, isOfHour } = cause;
  const { gpuHours } = period ?? cause;
  const pods = [...new Set(lines.map(({ pod }) => pod))].sort();
  const hours = new Set(lines.map((line) => line.hour)).size;
  return (
    <>
      {roundHours(gpuHours)} GPU-hours
      {hasHour && (
        <>
          {" "}
          {period !== undefined && !isOfHour
            ? "in the period, for example in "
            : `in ${hours > 1 ? `${counted(hours, "hour")}, among them ` : ""}`}
          <a href={linkTo(route, "hour", hour, { cluster, "lines-sort": "-unmeasured_usd" })}>{moment(hour, zone)}</a>
        </>
      )}
      , cluster <Name>{cluster}</Name>
      {nodes.length > 0 && (
        <>
          , {nodes.length === 1 ? "node" : "nodes"}{" "}
          {nodes.slice(0, MOST_NAMES).map((node, index) => (
            <span key={node}>
              {index > 0 && ", "}
              <a href={linkTo(route, "nodes", "", { node, cluster })} title={node}>
                <Name>{shortNode(node)}</Name>
              </a>
            </span>
          ))}
          {nodes.length > MOST_NAMES && ` and ${counted(nodes.length - MOST_NAMES, "other")}`}
        </>
      )}
      : {cause.cause}.{" "}
      {pods.length > MOST_NAMES ? (
        `${counted(pods.length, "pod")}.`
      ) : (
        <>
          Pods:{" "}
          {pods.map((name, index) => (
            <span key={name}>
              {index > 0 && ", "}
              <Name>{name}</Name>
            </span>
          ))}
          .
        </>
      )}{" "}
      <Check name={cause.check} cluster={cluster} hour={hour} />
    </>
  );
}

/** What to check, in plain words and linked to what Data health knows of the cluster, with the names of the doctor's
 * checks. An hour's view need not be in the period. */
export function Check({ name, cluster, hour }: { name: string; cluster: string; hour?: string }) {
  const route = useRoute();
  const period =
    route.view === "hour" && hour !== undefined
      ? { start: hour, end: instant(Date.parse(hour) + HOUR), window: "" }
      : {};
  const question = questionOf(name);
  return (
    <>
      To check:{" "}
      <strong>
        {route.view === "health" ? (
          question
        ) : (
          <a href={linkTo(route, "health", "", { cluster, ...period })}>{question}</a>
        )}
      </strong>{" "}
      <small>(doctor: {name})</small>
    </>
  );
}
