// Components shared by all views.

import type { ComponentChildren } from "preact";
import { useContext, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { download, type Parameters, Problem, type Settled, type TablePath } from "./api";
import { PART_COLORS } from "./charts/colors";
import { counted, percent, UNKNOWN } from "./format";
import { GLOSSARY, type Term } from "./glossary";
import {
  changed,
  type DecisionProps,
  DecisionsContext,
  type FetchState,
  go,
  ServeContext,
  useIsNarrow,
  useRoute,
  useWidth,
} from "./hooks";
import { keyOf, orderAfter, orderMark, type Sortable, sorted } from "./order";
import { clusterOf, linkTo } from "./route";
import { type Priced, pricedShare } from "./series";

export function Section(props: { title: string; aside?: ComponentChildren; children: ComponentChildren }) {
  const id = `section-${props.title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

/** Sections in two columns on very wide screens, and one after the other elsewhere. */
export function Columns({ left, right }: { left: ComponentChildren; right: ComponentChildren }) {
  return (
    <div class="columns">
      <div>{left}</div>
      <div>{right}</div>
    </div>
  );
}

/** Shows a response, its outline or an error. While the next response loads, the previous one becomes an outline. */
export function Loaded<Body>(props: {
  request: FetchState<Body> & { again: () => void };
  /** The content begins with figures. */
  hasStats?: boolean;
  children: (response: Body) => ComponentChildren;
}) {
  const { response, error, isLoading, again } = props.request;
  if (error !== undefined) return <ErrorMessage error={error} again={again} />;
  if (response === undefined) return <Skeleton hasStats={props.hasStats ?? false} />;
  return (
    <div class={isLoading ? "stale" : ""} aria-busy={isLoading}>
      {props.children(response)}
    </div>
  );
}

/** The outline of what is loading. */
function Skeleton({ hasStats }: { hasStats: boolean }) {
  return (
    <div class="loading" role="status">
      <span class="hidden">Loading…</span>
      {hasStats && (
        <div class="stats">
          {[0, 1, 2, 3].map((index) => (
            <div key={index} class="bone" />
          ))}
        </div>
      )}
      <div class="bone tall" />
    </div>
  );
}

/** Shows an optional response, or its error. */
export function Optional<Body>(props: { side: Settled<Body>; children: (response: Body) => ComponentChildren }) {
  const { side } = props;
  return "error" in side ? <ErrorMessage error={side.error} /> : <>{props.children(side.response)}</>;
}

/** A note if amounts exclude GPU-hours without a price. */
export function UnpricedNote({ totals }: { totals: Priced }) {
  const share = 1 - pricedShare(totals);
  if (share <= 0) return null;
  return <p class="note unpriced">{percent(share)} of these GPU-hours have no price yet. Amounts exclude them.</p>;
}

export function ErrorMessage({ error, again }: { error: Error; again?: () => void }) {
  const status = error instanceof Problem && error.status > 0 ? ` (${error.status})` : "";
  return (
    <div class="failed" role="alert">
      <p>
        {error.message}
        {status}
      </p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** What the URL names, and does not exist, with ways back. */
export function NotFound({ children }: { children: ComponentChildren }) {
  const route = useRoute();
  return (
    <div class="empty" data-testid="not-found">
      <p>{children}</p>
      <p>
        <a href={linkTo(route, "overview")}>Overview</a> · <a href={linkTo(route, "nodes")}>Nodes</a> ·{" "}
        <a href={linkTo(route, "hour")}>Latest hour</a>
      </p>
    </div>
  );
}

export function Stat(props: { name: string; value: string; note?: ComponentChildren; testId?: string }) {
  return (
    <div class="stat">
      <dt>{props.name}</dt>
      <dd>
        <strong data-testid={props.testId}>{props.value}</strong>
        {props.note !== undefined && <span>{props.note}</span>}
      </dd>
    </div>
  );
}

export interface Column<Row> extends Sortable<Row> {
  title: string;
  /** Content of the cell. */
  cell: (row: Row) => ComponentChildren;
  isFigure?: boolean;
  /** What stands before the figure, also before an unknown one. */
  mark?: (row: Row) => ComponentChildren;
  /** Why the row's figure is unknown; undefined if it is known. The caption says it. */
  unknown?: (row: Row) => string | undefined;
  /** What the figure leaves out, if anything. The caption says it. */
  remark?: (row: Row) => string | undefined;
}

/** A table that can be sorted by its headers. The URL contains the order, under the table's name. */
export function Table<Row>(props: {
  name: string;
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  sort: string;
  rowKey: (row: Row) => string;
  most?: number;
  /** Rows that a phone shows at first. */
  mostOnPhones?: number;
  /** Gets the rows in the order in which they are shown, for a file of them. */
  inOrder?: { current: readonly Row[] };
  /** The rows that a row consists of, shown below it when it is opened. */
  within?: (row: Row) => readonly Row[];
}) {
  const route = useRoute();
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const order = route.query[`${props.name}-sort`] ?? props.sort;
  const rows = sorted(props.rows, props.columns, order);
  if (props.inOrder !== undefined) props.inOrder.current = rows;
  const [shown, button] = useFolded(rows, props.most ?? 50, props.mostOnPhones);
  const [scroller, width] = useWidth();
  const [hidden, setHidden] = useState(0);
  useLayoutEffect(() => {
    if (width === 0) return; // not laid out yet: to measure now would force a layout
    const ends = [...(scroller.current?.querySelectorAll("th") ?? [])].map(
      (head) => head.offsetLeft + head.offsetWidth,
    );
    setHidden(hiddenColumns(ends, width));
  }, [width, props.columns.length, shown.length]);
  const orders = props.columns.flatMap(({ key }) => (keyOf(order) === key ? (orderMark(order).text ?? []) : []));
  const reasons = new Set(shown.flatMap((row) => props.columns.flatMap(({ unknown }) => unknown?.(row) ?? [])));
  const remarks = new Set(shown.flatMap((row) => props.columns.flatMap(({ remark }) => remark?.(row) ?? [])));
  return (
    <div class="scroller" ref={scroller} tabIndex={0} role="region" aria-label={props.caption}>
      <table data-testid={props.name}>
        <caption>
          <span>
            {props.caption}
            {[...orders, ...[...reasons].map((reason) => `${UNKNOWN}: ${reason}`), ...remarks].map(
              (text) => `. ${text}`,
            )}
            {hidden > 0 && <span class="more-columns">. {counted(hidden, "more column")} →</span>}
          </span>
        </caption>
        <thead>
          <tr>
            {props.columns.map((column) => {
              const mark = keyOf(order) === column.key ? orderMark(order) : undefined;
              const next = orderAfter(column, order);
              return (
                <th key={column.key} scope="col" class={headClass(column)} aria-sort={mark?.aria}>
                  {column.by === undefined ? (
                    column.title
                  ) : (
                    <button
                      type="button"
                      title={mark?.text}
                      onClick={() => go(changed(route, { [`${props.name}-sort`]: next }))}
                    >
                      {column.title}
                      <span aria-hidden="true">{mark === undefined ? "" : ` ${mark.arrow}`}</span>
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {shown.flatMap((row) => {
            const key = props.rowKey(row);
            const parts = props.within?.(row) ?? [];
            const isOpen = opened.has(key);
            const toggle = () =>
              setOpened(isOpen ? new Set([...opened].filter((name) => name !== key)) : new Set([...opened, key]));
            const opener = parts.length > 0 && (
              <button type="button" class="plain" aria-expanded={isOpen} aria-label={`Rows of ${key}`} onClick={toggle}>
                {isOpen ? "▾" : "▸"}
              </button>
            );
            return [
              <Cells key={key} row={row} columns={props.columns} opener={opener} />,
              ...(isOpen ? sorted(parts, props.columns, order) : []).map((part) => (
                <Cells key={`${key}\n${props.rowKey(part)}`} row={part} columns={props.columns} isPart />
              )),
            ];
          })}
        </tbody>
      </table>
      {button}
    </div>
  );
}

/** Letters of a title that needs several lines on a phone. */
const LONG_TITLE = 15;

function headClass<Row>({ title, isFigure }: Column<Row>): string {
  return [isFigure && "figure", title.length > LONG_TITLE && "long"].filter(Boolean).join(" ");
}

/** How many columns a table continues with beyond the width of its room. */
export function hiddenColumns(ends: readonly number[], width: number): number {
  return width === 0 ? 0 : ends.filter((end) => end > width + 1).length;
}

/** Rows that a phone shows at first. */
const MOST_ON_PHONES = 10;

/** The first rows of a long list, and the button that shows all. */
export function useFolded<Row>(
  rows: readonly Row[],
  most: number,
  mostOnPhones = MOST_ON_PHONES,
): [readonly Row[], ComponentChildren] {
  const [all, setAll] = useState(false);
  const count = useIsNarrow() ? Math.min(most, mostOnPhones) : most;
  const button = rows.length > count && (
    <button type="button" onClick={() => setAll(!all)}>
      {all ? `Show the first ${count}` : `Show all ${rows.length}`}
    </button>
  );
  return [all ? rows : rows.slice(0, count), button];
}

function Cells<Row>(props: {
  row: Row;
  columns: readonly Column<Row>[];
  opener?: ComponentChildren;
  isPart?: boolean;
}) {
  return (
    <tr class={props.isPart ? "part" : ""}>
      {props.columns.map((column, index) => (
        <td key={column.key} class={column.isFigure ? "figure" : ""}>
          {index === 0 && props.opener}
          {shownIn(column, props.row)}
        </td>
      ))}
    </tr>
  );
}

function shownIn<Row>(column: Column<Row>, row: Row): ComponentChildren {
  const reason = column.unknown?.(row);
  return (
    <>
      {column.mark?.(row)}
      {reason === undefined ? column.cell(row) : <span title={`Unknown: ${reason}`}>{UNKNOWN}</span>}
    </>
  );
}

/** The command that checks metrics, or its page, which only `gpucost serve` has. */
export function DoctorCommand() {
  const route = useRoute();
  return useContext(ServeContext) ? (
    <a href={linkTo(route, "doctor")}>gpucost doctor</a>
  ) : (
    <code class="command">gpucost doctor --settings FILE</code>
  );
}

/** A name, or "none" if it is empty. */
export function Name({ children }: { children: string }) {
  return children === "" ? <span class="unknown">none</span> : <bdi>{children}</bdi>;
}

/** A note on hours. The names in which several notes differ are folded. */
export function NoteText({ note, names }: { note: string; names: readonly string[] }) {
  if (names.length === 0) return <>{note}</>;
  return (
    <>
      {note}
      <details>
        <summary>{names.length} of these</summary>
        {names.join("; ")}
      </details>
    </>
  );
}

/** A mark next to a term. It opens the glossary's sentence, above everything else, so that no table cuts it off. */
export function Help({ term }: { term: Term }) {
  const route = useRoute();
  const id = useId();
  const mark = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLSpanElement>(null);
  const [isOpen, setIsOpen] = useState(false);
  useLayoutEffect(() => {
    if (!isOpen) return; // before a layout is forced
    const [from, to] = [mark.current?.getBoundingClientRect(), box.current];
    if (from === undefined || to === null) return;
    const { clientWidth, clientHeight } = document.documentElement;
    to.style.left = `${Math.max(8, Math.min(from.left, clientWidth - to.offsetWidth - 8))}px`;
    to.style.top = `${from.bottom + to.offsetHeight > clientHeight ? from.top - to.offsetHeight : from.bottom}px`;
  }, [isOpen]);
  return (
    <span class="help">
      <button type="button" ref={mark} popoverTarget={id} aria-label={`What does ${term} mean?`} />
      <span
        id={id}
        ref={box}
        popover="auto"
        role="note"
        onToggle={(event) => setIsOpen(event.newState === "open")}
        data-testid="help"
      >
        {isOpen && (
          <>
            <strong>{term}</strong>: {GLOSSARY[term]} <a href={linkTo(route, "glossary", term)}>All terms</a>
          </>
        )}
      </span>
    </span>
  );
}

/** What a split policy gives to the GPUs of a node; custom weights are called "own". */
export const SPLIT_POLICIES: Readonly<Record<string, string>> = {
  "gpu-bears-all": "the GPUs bear the node's whole price",
  datadog: "the GPUs bear 95% of the node's price",
  scad: "the GPUs' part by AWS's weights of GPU, CPU and memory",
  opencost: "the GPUs' part by OpenCost's weights of GPU, CPU and memory",
  own: "the GPUs' part by the settings' weights of GPU, CPU and memory",
};

/** The split policy of a price, with what it means. */
export function SplitPolicy({ name }: { name: string }) {
  const meaning = SPLIT_POLICIES[name];
  return (
    <>
      split policy {name || "none"}
      {meaning !== undefined && ` (${meaning})`}
      <Help term="split policy" />
    </>
  );
}

/** A view: its title, what selects its content, and the response. */
export function View<Body>(props: {
  title: ComponentChildren;
  controls?: ComponentChildren;
  request: FetchState<Body> & { again: () => void };
  children: (response: Body) => ComponentChildren;
}) {
  return (
    <>
      <h1>
        {props.title}
        <ClusterSuffix />
        {props.request.isLoading && props.request.response !== undefined && (
          <span class="hidden" role="status">
            Loading…
          </span>
        )}
      </h1>
      {props.controls}
      <Loaded request={props.request} hasStats>
        {props.children}
      </Loaded>
    </>
  );
}

/** A dialog that is open as long as it is shown. The button comes first, so that it opens at its beginning. */
export function Dialog(props: {
  id: string;
  title: ComponentChildren;
  close: () => void;
  /** What the button is called; by default Close. */
  closeName?: string | undefined;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Open before the first paint, so that keys pressed when it becomes visible reach it.
  useLayoutEffect(() => {
    const element = dialog.current;
    if (element !== null && !element.open) element.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={props.id} onClose={props.close} data-testid={props.id}>
      <header>
        <h2 id={props.id}>{props.title}</h2>
        <button type="button" onClick={() => dialog.current?.close()}>
          {props.closeName ?? "Close"}
        </button>
      </header>
      {props.children}
    </dialog>
  );
}

/** The cluster of the view, which is otherwise not visible in print. A drill-down's cluster can be left. */
function ClusterSuffix() {
  const route = useRoute();
  const cluster = clusterOf(route);
  if (cluster === undefined || cluster === "") return null;
  return (
    <>
      , cluster <Name>{cluster}</Name>
      {route.query["in"] !== undefined && (
        <a class="leave" href={changed(route, { in: "" })}>
          {route.query["cluster"] === undefined ? "All clusters" : "Selected cluster"}
        </a>
      )}
    </>
  );
}

/** Downloads a response as CSV. The file name contains the content's name and the period in UTC. */
export function DownloadButton<Route extends TablePath>(props: {
  path: Route;
  parameters: Parameters<Route> & { start: string; end: string };
  name: string;
}) {
  const [failed, setFailed] = useState<Error>();
  const { start, end } = props.parameters;
  const file = `${props.name.replace(/[^A-Za-z0-9-]+/g, "-")}_${start.slice(0, 13)}Z_${end.slice(0, 13)}Z.csv`;
  const begin = () => {
    setFailed(undefined);
    download(props.path, { ...props.parameters, format: "csv" }, file).catch((reason: unknown) => {
      setFailed(reason instanceof Error ? reason : new Error(UNKNOWN));
    });
  };
  return (
    <span class="download">
      <button type="button" onClick={begin}>
        Download CSV
      </button>
      {failed && <ErrorMessage error={failed} />}
    </span>
  );
}

/** Saves the rows of a table in their order, in a file for Excel. What writes it is loaded on demand. */
export function ExcelButton({ save }: { save: (writer: typeof import("./spreadsheet")) => void }) {
  const [hasFailed, setFailed] = useState(false);
  const begin = () => {
    setFailed(false);
    import("./spreadsheet").then(save).catch(() => setFailed(true));
  };
  return (
    <span class="download">
      <button type="button" onClick={begin}>
        Download for Excel
      </button>
      {hasFailed && <ErrorMessage error={new Error("The file could not be written. Reload the page.")} />}
    </span>
  );
}

/** Legend symbol of an area, or of cells if `isSolid`. */
export function Swatch({ color, isSolid = false }: { color: string; isSolid?: boolean }) {
  return (
    <svg class={isSolid ? "swatch solid" : "swatch"} viewBox="0 0 10 10" aria-hidden="true" style={{ color }}>
      <rect x="0.5" y="0.5" width="9" height="9" />
    </svg>
  );
}

/** Legend symbol of missing data, or of what was not measured. Lines, because printers omit small gradients. */
export function HatchSwatch({ isUnmeasured = false }: { isUnmeasured?: boolean }) {
  return (
    <svg
      class={isUnmeasured ? "swatch hatched unmeasured" : "swatch hatched"}
      viewBox="0 0 10 10"
      aria-hidden="true"
      style={{ color: PART_COLORS.unmeasured_usd }}
    >
      {isUnmeasured && <rect x="0.5" y="0.5" width="9" height="9" />}
      <path d="M0 3L3 0M0 8L8 0M2 10L10 2M7 10L10 7" />
    </svg>
  );
}

/** A sparkline. Unknown values are gaps. */
export function Spark({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const highest = Math.max(...values.map((value) => value ?? 0), 1e-12);
  const step = 100 / Math.max(1, values.length - 1);
  let isDrawing = false;
  const path = values
    .map((value, index) => {
      if (value === null) {
        isDrawing = false;
        return "";
      }
      const to = `${isDrawing ? "L" : "M"}${(index * step).toFixed(1)} ${(22 - (20 * value) / highest).toFixed(1)}`;
      isDrawing = true;
      return to;
    })
    .join("");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}>
      <path d={path} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** A button that takes a decision. Nothing where the API only reads. */
export function Decision(props: DecisionProps) {
  const decisions = useContext(DecisionsContext);
  return decisions === null ? null : <decisions.Button {...props} />;
}
