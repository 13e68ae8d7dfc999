// Firing alerts by cost, with the pending ones and the latest events below.

import { useEffect, useRef } from "preact/hooks";
import type { Alert, AlertEvent, AlertsOfDay } from "../api";
import { type Column, Decision, Empty, Name, Table } from "../parts";
import { money, moment } from "../format";
import { useIsNarrow, useRoute, useZone } from "../hooks";
import { filterQuery } from "../explore";
import { unitCostOf } from "../identity";
import { linkTo, type Route } from "../route";

/** The waste or unallocated cost that an alert is about, per hour. Other kinds of alerts have none. */
export function costPerHour({ notification }: Pick<Alert, "notification">): number | null {
  const { waste_usd_per_hour: waste, unallocated_usd_per_hour: unallocated } = notification?.figures ?? {};
  return waste ?? unallocated ?? null;
}

/** Below the start of an alert that may be older. */
const OR_BEFORE = "or before";
const COST_TITLE = "Waste or unallocated cost per hour";

/** Where to look: the node pool, the business unit with the alert marked, or the data of the cluster. */
function linkOf(route: Route, { subject, id }: Alert | AlertEvent): string {
  const cluster = subject.cluster ?? "";
  if (subject.business_unit !== null) return linkTo(route, "unit", subject.business_unit, { alert: id });
  if (subject.node_pool !== null) return linkTo(route, "nodes", "", { pool: subject.node_pool, cluster });
  return linkTo(route, "health", "", { cluster });
}

/** What an alert without a notification is about. */
function subjectOf({ subject }: Alert | AlertEvent): string {
  const { workload, namespace, business_unit, node_pool, cluster, detail } = subject;
  const about = workload === null ? (business_unit ?? node_pool ?? "") : `${namespace ?? ""}/${workload}`;
  return [about, cluster, detail].filter(Boolean).join(", ");
}

/** Of an alert on the cost of tokens: where Models has the same unit cost, next to the other ones. */
function UnitCost({ alert: { subject, notification } }: { alert: Alert }) {
  const route = useRoute();
  const name = unitCostOf(notification?.figures);
  if (name === null || subject.detail === null) return null;
  const unit = { dimension: "business_unit", name: subject.business_unit ?? "", isExcluded: false };
  return (
    <>
      {" "}
      · <a href={linkTo(route, "model", subject.detail, filterQuery([unit], []))}>{name} and other unit costs</a>
    </>
  );
}

/** Whether an alert may be older than its `since`, the first evaluated hour of the breach: no rule of its cluster is known
 * to have been evaluated before. Hours from before alerting was set up, or backfilled ones, are not evaluated. */
export function maybeOlder({ since, subject, notification }: Alert, evaluated: AlertsOfDay["evaluated"]): boolean {
  return notification?.kind !== "external" && since <= (evaluated.get(subject.cluster) ?? since);
}

function conditionOf({ notification }: Alert): string {
  return notification?.threshold ?? "no notification was sent";
}

/** Empty if no notification was sent. */
const severityOf = ({ notification }: Alert): string => notification?.severity ?? "";

function Severity({ phase, severity }: { phase: string; severity: string }) {
  return severity === "" ? <>–</> : <span class={`phase ${phase} ${severity}`}>{severity}</span>;
}

export function Alerts(props: Pick<AlertsOfDay, "active" | "history" | "evaluated">) {
  const route = useRoute();
  const { active, evaluated } = props;
  const history = props.history.filter(({ event }) => event !== "digest"); // a report, and about no alert
  const marked = route.query["alert"];
  const firing = active.filter(({ phase }) => phase === "firing");
  const pending = active.filter(({ phase }) => phase === "pending");
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    box.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
  }, [marked, active]);
  return (
    <div ref={box}>
      {firing.length === 0 ? <Empty>No alert fires.</Empty> : <AlertTable {...{ alerts: firing, evaluated }} />}
      {pending.length > 0 && (
        <details open={pending.some(({ id }) => id === marked)}>
          <summary>{pending.length} pending: the condition holds, but not for long enough to notify</summary>
          <AlertTable {...{ alerts: pending, evaluated }} isPending />
        </details>
      )}
      {history.length > 0 && (
        <details open={marked !== undefined && active.every(({ id }) => id !== marked)}>
          <summary>Last 24 hours: {eventsText(history)}</summary>
          <History events={history} />
        </details>
      )}
    </div>
  );
}

const EVENTS: Readonly<Record<string, string>> = { firing: "fired", resolved: "resolved", repeat: "repeated" };

/** How many alerts fired, resolved and were repeated: "2 fired, 1 resolved". */
export function eventsText(events: readonly Pick<AlertEvent, "event">[]): string {
  const count = (name: string) => events.filter(({ event }) => event === name).length;
  return Object.entries(EVENTS)
    .filter(([event]) => count(event) > 0)
    .map(([event, text]) => `${count(event)} ${text}`)
    .join(", ");
}

function History({ events }: { events: readonly AlertEvent[] }) {
  const route = useRoute();
  const zone = useZone();
  const isNarrow = useIsNarrow();
  const columns: Column<AlertEvent>[] = [
    {
      key: "alert",
      title: "Alert",
      cell: (event) => (
        <span class="wide full" aria-current={event.id === route.query["alert"] ? "true" : undefined}>
          <a href={linkOf(route, event)}>
            <Name>{subjectOf(event) || event.rule}</Name>
          </a>
          <span class="note below">
            {isNarrow && `${EVENTS[event.event]} ${moment(event.hour, zone)} · `}
            {event.rule}: {event.threshold}
          </span>
        </span>
      ),
    },
    { key: "event", title: "Event", cell: ({ event }) => EVENTS[event], by: ({ event }) => event },
    { key: "hour", title: "Hour", cell: ({ hour }) => moment(hour, zone), by: ({ hour }) => hour },
    {
      key: "cost",
      title: COST_TITLE,
      isFigure: true,
      cell: (event) => money(costPerHour({ notification: event }), event.currency),
      by: (event) => costPerHour({ notification: event }),
    },
  ];
  return (
    <Table<AlertEvent>
      name="alert-events"
      caption="Events of alerts, newest first"
      sort="-hour"
      most={20}
      rows={events}
      rowKey={(event) => `${event.id} ${event.event} ${event.hour}`}
      columns={shownOn(columns, isNarrow)}
    />
  );
}

/** Phones have room for a sentence and an amount: the sentence's cell has the rest. */
function shownOn<Row>(columns: readonly Column<Row>[], isNarrow: boolean): Column<Row>[] {
  return columns.filter(({ key }) => !isNarrow || key === "alert" || key === "cost");
}

function AlertTable(props: { alerts: readonly Alert[]; evaluated: AlertsOfDay["evaluated"]; isPending?: boolean }) {
  const { alerts, evaluated, isPending = false } = props;
  const route = useRoute();
  const zone = useZone();
  const isNarrow = useIsNarrow();
  const since = (alert: Alert) => (
    <>
      {moment(alert.since, zone)}
      {maybeOlder(alert, evaluated) && <span class={isNarrow ? undefined : "note below"}> {OR_BEFORE}</span>}
    </>
  );
  const columns: Column<Alert>[] = [
    {
      key: "alert",
      title: "Alert",
      cell: (alert) => (
        <span class="wide full" aria-current={alert.id === route.query["alert"] ? "true" : undefined}>
          <a href={linkOf(route, alert)}>
            <Name>{alert.summary ?? subjectOf(alert)}</Name>
          </a>
          {isNarrow && (
            <span class="below">
              {!isPending && <Severity phase={alert.phase} severity={severityOf(alert)} />} since {since(alert)}
            </span>
          )}
          <span class="note below">
            {isPending ? alert.rule : `${alert.rule}: ${conditionOf(alert)}`}
            <UnitCost alert={alert} />
            {alert.acknowledged_by !== null && (
              <>
                {" "}
                · acknowledged by <Name>{alert.acknowledged_by}</Name>
              </>
            )}
            {alert.phase === "firing" && alert.acknowledged_by === null && (
              <>
                {" "}
                <Decision title="Acknowledge" path={`alerts/${alert.id}/acknowledge`} />
              </>
            )}
            {alert.silenced_by.length > 0 && " · silenced"}
          </span>
        </span>
      ),
    },
    {
      key: "cost",
      title: COST_TITLE,
      isFigure: true,
      cell: (alert) => money(costPerHour(alert), alert.notification?.currency),
      by: costPerHour,
    },
    {
      key: "severity",
      title: "Severity",
      cell: (alert) => <Severity phase={alert.phase} severity={severityOf(alert)} />,
      by: severityOf,
    },
    { key: "since", title: "Since", cell: since, by: (alert) => alert.since },
  ];
  const areMaybeOlder = alerts.some((alert) => maybeOlder(alert, evaluated));
  return (
    <Table
      name={isPending ? "pending" : "alerts"}
      caption={[
        isPending ? "Pending alerts, newest first" : "Firing alerts by waste or unallocated cost per hour",
        ...(areMaybeOlder ? [`“${OR_BEFORE}”: the condition held in the first hour that was evaluated`] : []),
      ].join(". ")}
      sort={isPending ? "-since" : "-cost"}
      mostOnPhones={3}
      rows={alerts}
      rowKey={(alert) => alert.id}
      columns={shownOn(
        columns.filter(({ key }) => !isPending || key === "alert" || key === "since"),
        isNarrow,
      )}
    />
  );
}
