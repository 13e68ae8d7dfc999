// Stacked chart of cost parts over time (uPlot). Buckets without data are hatched. Dragging selects a period.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { HourRow, Mark } from "../api";
import { bucketName, counted, type Figure, HOUR, percent, ratio, type Zone } from "../format";
import { useAppearance, useRedrawForPrint, useWidth } from "../hooks";
import { HatchSwatch, Swatch } from "../parts";
import { type Buckets, cutOf, endOf, lackingClusters, pricedShare, stack, timeTicks } from "../series";
import { axisOf, plotPadding, sizeOf, timeAxisOf } from "./axes";
import { hintOf } from "./grid";
import { GAP_MARK, hatch, PLATE, PLATE_TEXT, shadesOf, styleToken, textScale } from "./colors";

/** One color of the stack. */
export interface Series {
  key: string;
  name: string;
  meaning: string;
  color: string;
  /** A view that explains it. */
  href?: string;
}

/** Figures by key of a series. */
type Figures = object;

function figureIn(figures: Figures | undefined, key: string): Figure {
  return (figures as Record<string, Figure> | undefined)?.[key];
}

interface Props {
  label: string;
  buckets: Buckets;
  /** One per bucket; undefined without data. */
  rows: readonly (Figures | undefined)[];
  coverage: readonly number[];
  /** Share of each bucket's GPU-hours that have a price; by default that of the row. */
  priced?: readonly number[];
  parts: readonly Series[];
  /** Totals of an earlier period by bucket, drawn as a dashed line. */
  earlier?: { name: string; figures: readonly (number | null)[] } | undefined;
  /** Sums of the parts over the period. */
  totals: Figures;
  /** Total of the parts. */
  whole: Figure;
  /** What the total is called; null if there is a single part. */
  wholeName?: string | null;
  /** Share of each bucket's figures that is known, if something else than hours or prices is missing. */
  known?: readonly number[];
  /** What a reader should know about a bucket, in place of figures that it does not have. */
  notes?: readonly (string | undefined)[];
  /** What happened in the period. */
  marks?: readonly Mark[];
  /** Formats a figure. */
  show: (figure: Figure) => string;
  /** Formats a figure of the axis; by default as the others. */
  axis?: (figure: Figure) => string;
  /** Statuses of the period's hours, for the names of clusters without figures. */
  hours?: readonly HourRow[] | undefined;
  zone: Zone;
  /** A bucket was selected, by click or with Enter. */
  onOpen: (start: number, end: number) => void;
  /** A period was selected by dragging. */
  onSelect: (start: number, end: number) => void;
}

export function StackedChart(props: Props) {
  const [box, width] = useWidth();
  const plot = useRef<uPlot | null>(null);
  const latestRef = useRef(props);
  latestRef.current = props;
  const [at, setAt] = useState<number | null>(null);
  const appearance = useAppearance();
  const { buckets, rows, parts, zone, wholeName = "total", earlier, marks = NO_MARKS } = props;
  const height = Math.round(Math.min(520 * textScale(), Math.max(260, width / 4.5)));
  const most = Math.floor(width / (110 * textScale()));
  const labels = new Map(
    timeTicks(buckets, zone, most).map(({ column, text }) => [(buckets.starts[column] ?? 0) / 1000, text]),
  );
  useEffect(() => {
    const element = box.current;
    if (element === null || width === 0) return;
    const times = buckets.starts.map((start) => start / 1000);
    const columns = parts.map((part) => rows.map((row) => figureIn(row, part.key) ?? null));
    const axis = axisOf(element);
    const made = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        padding: plotPadding(textScale()),
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 6 } },
        scales: {
          x: { time: true, range: () => [(buckets.starts[0] ?? 0) / 1000, buckets.end / 1000] },
          y: { range: (_plot, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] },
        },
        axes: [
          {
            ...timeAxisOf(element),
            splits: () => [...labels.keys()],
            values: (_plot, splits) => splits.map((split) => labels.get(split) ?? ""),
          },
          {
            ...axis,
            size: sizeOf,
            values: (_plot, splits) => splits.map((split) => (latestRef.current.axis ?? latestRef.current.show)(split)),
          },
        ],
        series: [
          {},
          ...[...parts].reverse().map((part) => ({
            fill: () => shadesOf(element).fill(part.color), // read when it is drawn: paper is light
            width: 0,
            paths: (drawn: uPlot, index: number) => bars(drawn, index, latestRef.current.buckets),
            points: { show: false },
          })),
          // Extends the scale; drawn as the bars are, by bucket.
          ...(earlier === undefined ? [] : [{ paths: () => null, points: { show: false } }]),
        ],
        hooks: {
          drawClear: [(drawn) => hatchGaps(drawn, latestRef.current, styleToken(element, "--missing"))],
          draw: [
            (drawn) => drawLines(drawn, latestRef.current),
            (drawn) => markCut(drawn, latestRef.current),
            (drawn) => drawMarks(drawn, latestRef.current),
            (drawn) =>
              drawEarlier(drawn, latestRef.current, styleToken(element, "--ink"), styleToken(element, "--panel")),
          ],
          // Without an event it is the first drawing, which must not end a selection made with the keyboard.
          setCursor: [(drawn) => drawn.cursor.event && setAt(bucketAt(latestRef.current.buckets, drawn))],
          setSelect: [(drawn) => choose(drawn, latestRef.current)],
        },
      },
      [times, ...stack(columns), ...(earlier === undefined ? [] : [[...earlier.figures]])],
      element,
    );
    plot.current = made;
    const open = () => {
      const index = bucketAt(latestRef.current.buckets, made);
      const start = index === null ? undefined : latestRef.current.buckets.starts[index];
      if (index !== null && start !== undefined && made.select.width === 0) {
        latestRef.current.onOpen(start, endOf(latestRef.current.buckets, index));
      }
    };
    made.over.addEventListener("click", open);
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, height, appearance, zone, buckets, rows, parts, earlier, marks]);
  useRedrawForPrint(() => plot.current?.redraw(false, true));

  const move = (event: KeyboardEvent) => {
    const last = buckets.starts.length - 1;
    const from = at ?? (event.key === "ArrowLeft" ? last + 1 : -1);
    const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: last }[event.key];
    const start = at === null ? undefined : buckets.starts[at];
    if (to !== undefined) {
      event.preventDefault();
      setAt(Math.min(last, Math.max(0, to)));
    } else if (event.key === "Enter" && at !== null && start !== undefined) {
      props.onOpen(start, endOf(buckets, at));
    } else if (event.key === "Escape") {
      setAt(null);
    }
  };
  return (
    <figure class="chart">
      <ul class="legend">
        {parts.map((part) => (
          <li key={part.key} title={part.meaning}>
            <Swatch color={part.color} />
            {part.href === undefined ? part.name : <a href={part.href}>{part.name}</a>}{" "}
            {props.show(figureIn(props.totals, part.key))}
          </li>
        ))}
        {wholeName !== null && (
          <li>
            {wholeName} {props.show(props.whole)}
          </li>
        )}
        {earlier !== undefined && (
          <li>
            <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">
              <path d="M0 5H4M6 5H10" stroke="currentColor" stroke-width="2" />
            </svg>
            {earlier.name}
          </li>
        )}
        {marks.length > 0 && (
          <li>
            <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">
              <path d="M5 1L9 9H1Z" fill="currentColor" />
            </svg>
            {counted(marks.length, "event")}
          </li>
        )}
        <li>
          <HatchSwatch />
          missing
        </li>
      </ul>
      <div class="plot-box">
        <div
          class="plot"
          ref={box}
          role="application"
          tabIndex={0}
          aria-label={`${props.label}. Arrow keys move through time, Enter opens the hour or day.`}
          onKeyDown={move}
          onBlur={() => setAt(null)}
        />
        <div
          class={at === null ? "readout" : "readout tip"}
          role="status"
          data-testid="readout"
          style={tipStyle(plot.current, buckets, at)}
        >
          {at !== null && <Readout {...props} at={at} />}
        </div>
      </div>
      <p class="note hint">{hintOf("the chart")}</p>
    </figure>
  );
}

const NO_MARKS: readonly Mark[] = [];

/** Next to the bucket, on the side that has room. */
function tipStyle(plot: uPlot | null, buckets: Buckets, at: number | null): Record<string, string> {
  if (plot === null || at === null) return {};
  const [left, right] = [buckets.starts[at] ?? 0, endOf(buckets, at)].map((time) => plot.valToPos(time / 1000, "x"));
  const { width } = plot.over.getBoundingClientRect();
  const frame = plot.root.getBoundingClientRect().width;
  const offset = plot.bbox.left / window.devicePixelRatio;
  return (left ?? 0) > width / 2
    ? { right: `${Math.max(0, frame - offset - (left ?? 0) + TIP_DISTANCE)}px` }
    : { left: `${offset + (right ?? 0) + TIP_DISTANCE}px` };
}

const TIP_DISTANCE = 6;

function Readout(props: Props & { at: number }) {
  const { at, buckets, rows, parts, coverage, wholeName = "total" } = props;
  const row = rows[at];
  const start = buckets.starts[at] ?? buckets.end;
  const when = bucketName(start, buckets.step, props.zone);
  const share = coverage[at] ?? 1;
  const priced = pricedAt(props, at);
  const cut = cutOf(buckets, at);
  const figures = parts.map((part) => figureIn(row, part.key));
  const total = figures.reduce<Figure>((sum, figure) => (sum == null || figure == null ? sum : sum + figure), 0);
  const note = props.notes?.[at];
  const hasFigures = note === undefined || figures.some((figure) => figure != null);
  const lacking = share < 1 ? lackingClusters(buckets, at, props.hours ?? []) : [];
  return (
    <>
      <strong>{when}</strong>
      {cut !== null && (
        <span>
          a part of it: {cut.hours} of {cut.of} hours
        </span>
      )}
      {note !== undefined && <span>{note}</span>}
      {row === undefined && note === undefined && <span> no data: missing or incomplete</span>}
      {(props.marks ?? NO_MARKS)
        .filter((mark) => mark.at >= start && mark.at < endOf(buckets, at))
        .map((mark) => (
          <span key={mark.text}>▲ {mark.text}</span>
        ))}
      {row !== undefined && hasFigures && (
        <>
          {parts.map((part, index) => (
            <span key={part.key}>
              <Swatch color={part.color} />
              {part.name} {props.show(figures[index])}
              {wholeName !== null && ` (${percent(ratio(figures[index], total))})`}
            </span>
          ))}
          {wholeName !== null && (
            <span>
              {wholeName} {props.show(total)}
            </span>
          )}
        </>
      )}
      {props.earlier !== undefined && (
        <span>
          {props.earlier.name} {props.show(props.earlier.figures[at])}
        </span>
      )}
      {row !== undefined && share < 1 && <span>{percent(share)} of hours complete</span>}
      {lacking.length > 0 && <span>without figures: {lacking.join(", ")}</span>}
      {row !== undefined && priced < 1 && <span>{percent(1 - priced)} of GPU-hours without a price</span>}
    </>
  );
}

function pricedAt({ priced, rows }: Props, index: number): number {
  const row = rows[index];
  return priced?.[index] ?? (row === undefined ? 1 : pricedShare(row));
}

function bucketAt(buckets: Buckets, plot: uPlot): number | null {
  const { left } = plot.cursor;
  if (left === undefined || left < 0) return null;
  const time = plot.posToVal(left, "x") * 1000;
  const after = buckets.starts.findIndex((start) => start > time);
  return after < 0 ? buckets.starts.length - 1 : Math.max(0, after - 1);
}

function choose(plot: uPlot, { buckets, onSelect }: Props): void {
  const { left, width } = plot.select;
  if (width < 1) return;
  const [from, to] = [left, left + width].map((index) => plot.posToVal(index, "x") * 1000);
  const hour = HOUR;
  const start = Math.max(buckets.starts[0] ?? 0, Math.floor((from ?? 0) / hour) * hour);
  const end = Math.min(buckets.end, Math.ceil((to ?? 0) / hour) * hour);
  if (end > start) onSelect(start, end);
}

/** Share of a bucket with figures and prices, 0 to 1. */
function knownShare(props: Props, index: number): number {
  const known = props.known?.[index] ?? 1;
  return props.rows[index] === undefined ? 0 : (props.coverage[index] ?? 1) * pricedAt(props, index) * known;
}

/** Strength of the hatching of a bucket of which almost nothing is missing. */
const LEAST_STRENGTH = 0.35;
/** Known share from which a day, week or month has only a mark above its bar. */
const ALMOST_KNOWN = 0.9;

/** Hatches buckets from the axis to the top, behind their bars: fully without figures, more lightly the more is known. A
 * few missing hours of a long bucket are a mark above its bar. */
function hatchGaps(plot: uPlot, props: Props, color: string): void {
  const { ctx: pen, bbox } = plot;
  const { buckets } = props;
  pen.save();
  pen.fillStyle = hatch(pen, color);
  buckets.starts.forEach((start, index) => {
    const share = knownShare(props, index);
    if (share >= 1) return;
    const [from, to] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
    pen.globalAlpha = LEAST_STRENGTH + (1 - LEAST_STRENGTH) * (1 - share);
    const sum = plot.data[1]?.[index];
    const isMark = buckets.step !== "hour" && share >= ALMOST_KNOWN && sum != null;
    const floor = isMark ? plot.valToPos(sum, "y", true) : bbox.top + bbox.height;
    const top = isMark ? Math.max(bbox.top, floor - GAP_MARK * window.devicePixelRatio) : bbox.top;
    pen.fillRect(from ?? 0, top, (to ?? 0) - (from ?? 0), floor - top);
  });
  pen.restore();
}

/** Writes above the bar of a cut day, week or month how long it is, so that its height is no drop; without room there, at
 * the top of the chart. */
function markCut(plot: uPlot, { buckets }: Props): void {
  const { ctx: pen } = plot;
  const scale = window.devicePixelRatio;
  pen.save();
  pen.font = `${Math.round(11 * textScale() * scale)}px ${styleToken(plot.root, "--font")}`;
  const ink = styleToken(plot.root, "--ink");
  pen.fillStyle = ink;
  pen.textAlign = "center";
  buckets.starts.forEach((start, index) => {
    const cut = cutOf(buckets, index);
    const sum = plot.data[1]?.[index];
    if (cut === null || sum == null) return;
    const [from = 0, to = 0] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
    const texts = [`${cut.hours} of ${cut.of} h`, `${cut.hours} h`];
    const text = texts.find((candidate) => pen.measureText(candidate).width <= to - from);
    if (text !== undefined) {
      const size = pen.measureText(text).width; // on a plate, because the earlier period's line can cross it
      pen.fillStyle = styleToken(plot.root, "--panel");
      pen.fillRect(
        (from + to - size) / 2,
        plot.valToPos(sum, "y", true) - 16 * textScale() * scale,
        size,
        13 * textScale() * scale,
      );
      pen.fillStyle = ink;
      pen.fillText(text, (from + to) / 2, plot.valToPos(sum, "y", true) - 4 * scale);
      return;
    }
    const [long = ""] = texts;
    const { left, top, width } = plot.bbox;
    const room = pen.measureText(long).width;
    const middle = Math.min(
      left + width - room / 2 - 4 * scale,
      Math.max(left + room / 2 + 4 * scale, (from + to) / 2),
    );
    pen.fillStyle = PLATE; // it can cover bars of any color
    pen.fillRect(middle - room / 2 - 4 * scale, top, room + 8 * scale, 16 * textScale() * scale);
    pen.fillStyle = PLATE_TEXT;
    pen.fillText(long, middle, top + 12 * textScale() * scale);
    pen.fillStyle = ink;
  });
  pen.restore();
}

/** A triangle at the axis, at each time at which something happened. */
function drawMarks(plot: uPlot, { marks = NO_MARKS }: Props): void {
  const { ctx: pen, bbox } = plot;
  const size = 5 * textScale() * window.devicePixelRatio;
  const floor = bbox.top + bbox.height;
  pen.save();
  pen.fillStyle = styleToken(plot.root, "--ink");
  pen.strokeStyle = styleToken(plot.root, "--panel"); // an edge, on bars of any color
  pen.lineWidth = window.devicePixelRatio;
  for (const { at } of marks) {
    const middle = plot.valToPos(at / 1000, "x", true);
    pen.beginPath();
    pen.moveTo(middle, floor - 2 * size);
    pen.lineTo(middle + size, floor);
    pen.lineTo(middle - size, floor);
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
  pen.restore();
}

/** Bars from zero, each as wide as its bucket. uPlot's bars are all as wide as the narrowest. */
function bars(plot: uPlot, series: number, buckets: Buckets): uPlot.Series.Paths {
  const fill = new Path2D();
  const floor = plot.valToPos(0, "y", true);
  plot.data[series]?.forEach((sum, index) => {
    if (sum == null) return;
    const [from, to] = [buckets.starts[index] ?? 0, endOf(buckets, index)].map((time) =>
      Math.round(plot.valToPos(time / 1000, "x", true)),
    );
    fill.rect(from ?? 0, floor, (to ?? 0) - (from ?? 0), plot.valToPos(sum, "y", true) - floor);
  });
  return { fill, stroke: null };
}

/** A dashed line at the total that an earlier period had, over each bucket. */
function drawEarlier(plot: uPlot, { buckets, earlier }: Props, color: string, ground: string): void {
  if (earlier === undefined) return;
  const { ctx: pen } = plot;
  const scale = window.devicePixelRatio;
  pen.save();
  pen.beginPath();
  buckets.starts.forEach((start, index) => {
    const figure = earlier.figures[index];
    if (figure == null) return;
    const [from = 0, to = 0] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
    const height = plot.valToPos(figure, "y", true);
    pen.moveTo(from, height);
    pen.lineTo(to, height);
  });
  pen.setLineDash([6 * scale, 4 * scale]);
  // With an edge, because the line crosses light and dark parts.
  for (const [stroke, width] of [
    [ground, 5],
    [color, 2],
  ] as const) {
    pen.strokeStyle = stroke;
    pen.lineWidth = width * scale;
    pen.stroke();
  }
  pen.restore();
}

/** A line at the top of each part, in a stronger shade of its color. */
function drawLines(plot: uPlot, { buckets, parts }: Props): void {
  const { ctx: pen } = plot;
  const { line } = shadesOf(plot.root);
  const top = (sums: uPlot.AlignedData[number] | undefined, index: number) =>
    Math.round(plot.valToPos(sums?.[index] ?? 0, "y", true)) + 0.5;
  pen.save();
  pen.lineWidth = 1; // of the canvas: thin also on dense screens
  [...parts].reverse().forEach((part, at) => {
    const [sums, below] = [plot.data[at + 1], at + 1 < parts.length ? plot.data[at + 2] : undefined];
    pen.strokeStyle = line(part.color);
    pen.beginPath();
    let isDrawing = false;
    buckets.starts.forEach((start, index) => {
      const height = top(sums, index);
      if (sums?.[index] == null || height === top(below, index)) {
        isDrawing = false;
        return;
      }
      const [from = 0, to = 0] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
      if (isDrawing) pen.lineTo(from, height);
      else pen.moveTo(from, height);
      pen.lineTo(to, height);
      isDrawing = true;
    });
    pen.stroke();
  });
  pen.restore();
}
