// Stacked chart of cost parts over time (uPlot). Buckets without data are hatched. Dragging selects a period.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisTime, bucketName, type Figure, HOUR, percent, type Zone } from "../format";
import { useAppearance, useRedrawForPrint, useWidth } from "../hooks";
import { HatchSwatch, Swatch } from "../parts";
import { type Buckets, endOf, pricedShare, stack } from "../series";
import { axisOf, sizeOf, timeAxisOf } from "./axes";
import { hatch, OUTLINE, styleToken } from "./colors";

/** One color of the stack. */
export interface Series {
  key: string;
  name: string;
  meaning: string;
  color: string;
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
  /** Sums of the parts over the period. */
  totals: Figures;
  /** Total of the parts. */
  whole: Figure;
  /** Formats a figure. */
  show: (figure: Figure) => string;
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
  const { buckets, rows, parts, zone } = props;
  const height = Math.round(Math.min(520, Math.max(260, width / 6)));
  useEffect(() => {
    const element = box.current;
    if (element === null || width === 0) return;
    const times = buckets.starts.map((start) => start / 1000);
    const columns = parts.map((part) => rows.map((row) => figureIn(row, part.key) ?? null));
    const axis = axisOf(element);
    const isDaily = buckets.step !== "hour"; // days are UTC days
    const made = new uPlot(
      {
        width,
        height,
        legend: { show: false },
        padding: [8, 28, 0, 0],
        tzDate: (seconds) =>
          zone === "utc" || isDaily ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000),
        cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 6 } },
        scales: {
          x: { time: true, range: () => [(buckets.starts[0] ?? 0) / 1000, buckets.end / 1000] },
          y: { range: (_plot, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] },
        },
        axes: [
          {
            ...timeAxisOf(element),
            values: (_plot, splits) => splits.map((split) => axisTime(split, isDaily ? "utc" : zone)),
          },
          { ...axis, size: sizeOf, values: (_plot, splits) => splits.map((split) => latestRef.current.show(split)) },
        ],
        series: [
          {},
          ...[...parts].reverse().map((part) => ({
            fill: part.color,
            stroke: part.color,
            width: 0,
            paths: (drawn: uPlot, index: number) => bars(drawn, index, latestRef.current.buckets),
            points: { show: false },
          })),
        ],
        hooks: {
          drawClear: [(drawn) => hatchGaps(drawn, latestRef.current, styleToken(element, "--missing"))],
          draw: [(drawn) => outline(drawn, latestRef.current)],
          // Without an event it is the first drawing, which must not end a selection made with the keyboard.
          setCursor: [(drawn) => drawn.cursor.event && setAt(bucketAt(latestRef.current.buckets, drawn))],
          setSelect: [(drawn) => choose(drawn, latestRef.current)],
        },
      },
      [times, ...stack(columns)],
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
  }, [width, height, appearance, zone, buckets, rows, parts]);
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
            {part.name} {props.show(figureIn(props.totals, part.key))}
          </li>
        ))}
        <li>total {props.show(props.whole)}</li>
        <li>
          <HatchSwatch />
          missing
        </li>
      </ul>
      <div
        class="plot"
        ref={box}
        role="application"
        tabIndex={0}
        aria-label={`${props.label}. Arrow keys move through time, Enter opens the hour or day.`}
        onKeyDown={move}
        onBlur={() => setAt(null)}
      />
      <div class="readout" role="status" data-testid="readout">
        {at === null ? "Point at the chart, or focus it and use the arrow keys." : <Readout {...props} at={at} />}
      </div>
    </figure>
  );
}

function Readout(props: Props & { at: number }) {
  const { at, buckets, rows, parts, coverage } = props;
  const row = rows[at];
  const start = buckets.starts[at] ?? buckets.end;
  const when = bucketName(start, buckets.step, props.zone);
  const share = coverage[at] ?? 1;
  const priced = pricedAt(props, at);
  return (
    <>
      <strong>{when}</strong>
      {row === undefined
        ? " no data: missing or incomplete"
        : parts.map((part) => (
            <span key={part.key}>
              <Swatch color={part.color} />
              {part.name} {props.show(figureIn(row, part.key))}
            </span>
          ))}
      {row !== undefined && share < 1 && <span>{percent(share)} of hours complete</span>}
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
  return props.rows[index] === undefined ? 0 : (props.coverage[index] ?? 1) * pricedAt(props, index);
}

/** Least height of hatching, in pixels. The scale leaves as much above the largest bar. */
const LEAST_HATCHED = 8;

function hatchGaps(plot: uPlot, props: Props, color: string): void {
  const { ctx: pen, bbox } = plot;
  const { buckets } = props;
  pen.save();
  pen.fillStyle = hatch(pen, color);
  buckets.starts.forEach((start, index) => {
    const share = knownShare(props, index);
    if (share >= 1) return;
    const [from, to] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
    // For partial days, the hatched part of the height is the part without data or price.
    const tall = Math.max(bbox.height * (1 - share), LEAST_HATCHED * window.devicePixelRatio);
    pen.fillRect(from ?? 0, bbox.top, (to ?? 0) - (from ?? 0), tall);
  });
  pen.restore();
}

/** Columns narrower than this, in pixels, have an outline only at the top. */
const NARROW = 8;

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

function outline(plot: uPlot, { buckets }: Props): void {
  const { ctx: pen } = plot;
  pen.save();
  pen.strokeStyle = OUTLINE;
  pen.lineWidth = Math.max(1, window.devicePixelRatio);
  pen.beginPath();
  const floor = plot.valToPos(0, "y", true);
  for (const sums of plot.data.slice(1)) {
    let before = floor;
    buckets.starts.forEach((start, index) => {
      const sum = sums[index];
      const above = sum == null ? floor : plot.valToPos(sum, "y", true);
      const [from = 0, to = 0] = [start, endOf(buckets, index)].map((time) => plot.valToPos(time / 1000, "x", true));
      if (to - from >= NARROW && above !== before) {
        pen.moveTo(from, before);
        pen.lineTo(from, above);
      }
      if (sum != null) {
        pen.moveTo(from, above);
        pen.lineTo(to, above);
      }
      before = above;
    });
  }
  pen.stroke();
  pen.restore();
}
