// Rows of cells over time on a canvas: the heat map of business units, and the strips of GPUs.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { useAppearance, useRedrawForPrint, useWidth } from "../hooks";
import { shortened } from "../removal";
import { placedTicks } from "../series";
import type { PartKey } from "../identity";
import {
  type Color,
  hatch,
  PART_COLORS,
  PLATE,
  PLATE_TEXT,
  scaleOf,
  shadesOf,
  styleToken,
  textScale,
  useColor,
} from "./colors";

/** A utilization from 0 to 1, a part of the cost, which has the color of its area in charts, or another color. */
export type Fill = number | PartKey | Color;

export interface Painted {
  /** "missing" is hatched; "unmeasured", which was allocated, is hatched in yellow; null is nothing. */
  fill: Fill | "missing" | "unmeasured" | null;
  /** Share of the cell's width, 0 to 1. */
  part?: number;
  /** The part is at the end of the cell, and not at its start. */
  isAtEnd?: boolean;
  /** Color of the rest of the cell. */
  rest?: Fill;
  isHatched?: boolean;
  /** Share of the filled part that is unmeasured instead, at its end, 0 to 1. */
  unmeasured?: number;
}

export interface GridProps {
  label: string;
  rows: number;
  columns: number;
  rowHeight: number;
  /** Draws a line after every so many rows. */
  lineEvery?: number;
  paint: (row: number, column: number) => Painted;
  /** Labels inside the grid, shortened in the middle until they fit. */
  texts?: readonly { row: number; rows: number; from: number; to: number; text: string }[];
  describe: (row: number, column: number) => ComponentChildren;
  onOpen: (row: number, column: number) => void;
  /** Row labels. */
  labels?: readonly ComponentChildren[];
  /** Column labels. */
  ticks?: (most: number) => readonly { column: number; text: string }[];
  /** Set if there are several pages of rows. */
  pages?: Pages;
  /** What to point at, shown while no cell is selected. */
  hint?: string;
  /** The data of the cells. The grid is redrawn when it changes. */
  dataKey: unknown;
}

export interface Pages {
  index: number;
  count: number;
  /** Goes to the previous (-1) or next (1) page. */
  turn: (by: number) => void;
}

/** Largest canvas. Some browsers reject larger ones. */
const MAX_PIXELS = 12_000_000;

export function Grid(props: GridProps) {
  const [box, width] = useWidth();
  const [pointed, setAt] = useState<[number, number] | null>(null);
  const appearance = useAppearance();
  const { rows, columns, pages } = props;
  const rowHeight = Math.round(props.rowHeight * textScale());
  const at: [number, number] | null = pointed && [clamp(pointed[0], rows), clamp(pointed[1], columns)];
  const height = Math.max(rowHeight, rows * rowHeight);
  const redraw = () => {
    const canvas = box.current?.querySelector("canvas");
    const pen = canvas?.getContext("2d");
    if (!canvas || !pen || width === 0) return;
    const scale = Math.min(window.devicePixelRatio, Math.sqrt(MAX_PIXELS / (width * height)));
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    pen.scale(scale, scale);
    draw(pen, { ...props, rowHeight }, width, styleToken(canvas, "--missing"), styleToken(canvas, "--grid"));
  };
  useEffect(redraw, [width, height, appearance, props.dataKey]);
  useRedrawForPrint(redraw);

  const cellOf = (event: MouseEvent): [number, number] => {
    const target = event.currentTarget as HTMLElement;
    const { left, top } = target.getBoundingClientRect();
    const column = Math.floor(((event.clientX - left) / Math.max(1, width)) * columns);
    const row = Math.floor((event.clientY - top) / rowHeight);
    return [clamp(row, rows), clamp(column, columns)];
  };
  const move = (event: KeyboardEvent) => {
    const [row, column] = at ?? [0, 0];
    const to: Record<string, [number, number]> = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 0],
      End: [row, columns - 1],
    };
    const next = to[event.key];
    const by = turnOf(event.key, row);
    if (by !== 0 && pages !== undefined && pages.index + by >= 0 && pages.index + by < pages.count) {
      event.preventDefault();
      setAt([event.key === "ArrowUp" ? Number.MAX_SAFE_INTEGER : event.key === "ArrowDown" ? 0 : row, column]);
      pages.turn(by);
    } else if (next !== undefined) {
      event.preventDefault();
      setAt(at === null ? [0, 0] : [clamp(next[0], rows), clamp(next[1], columns)]);
    } else if (event.key === "Enter" && at !== null) {
      props.onOpen(...at);
    } else if (event.key === "Escape") {
      setAt(null);
    }
  };
  const turnOf = (key: string, row: number) =>
    key === "PageDown" || (key === "ArrowDown" && row === rows - 1)
      ? 1
      : key === "PageUp" || (key === "ArrowUp" && row === 0)
        ? -1
        : 0;
  /** The first tap shows the cell, the second opens it. */
  const tappedRef = useRef("");
  const click = (event: MouseEvent) => {
    const cell = cellOf(event);
    const isTouch = (event as PointerEvent).pointerType === "touch";
    if (!isTouch || tappedRef.current === cell.join()) {
      props.onOpen(...cell);
    } else {
      tappedRef.current = cell.join();
      setAt(cell);
    }
  };
  /** After a tap, browsers may send the event without a mouse, when the layout changes under the finger. */
  const leave = () => {
    if (tappedRef.current === "") setAt(null);
  };
  const mark = at === null ? null : markOf(at, width / columns, rowHeight);
  return (
    <div class={props.labels === undefined ? "grid" : "grid labelled"}>
      {props.labels && (
        <ol class="labels">
          {props.labels.map((label, row) => (
            <li key={row} style={{ height: `${rowHeight}px` }}>
              {label}
            </li>
          ))}
        </ol>
      )}
      <div
        class="cells"
        ref={box}
        role="application"
        tabIndex={0}
        aria-label={`${props.label}. Arrow keys move, Enter opens${(pages?.count ?? 1) > 1 ? ", Page Down and Up turn pages" : ""}.`}
        style={{ height: `${height}px` }}
        onKeyDown={move}
        onMouseMove={(event) => setAt(cellOf(event))}
        onMouseLeave={leave}
        onBlur={() => setAt(null)}
        onClick={click}
      >
        <canvas aria-hidden="true" />
        {mark && <span class="mark" style={mark} />}
      </div>
      {props.ticks && <Ticks columns={columns} ticks={props.ticks} />}
      <div class="readout" role="status">
        {at === null ? (props.hint === undefined ? " " : hintOf(props.hint)) : props.describe(...at)}
      </div>
    </div>
  );
}

/** How to see the figures of a chart, by what the device has. */
export function hintOf(target: string): string {
  return window.matchMedia("(hover: none), (max-width: 40rem)").matches
    ? `Tap ${target}.`
    : `Point at ${target}, or focus it and use the arrow keys.`;
}

/** Labels of columns. */
function Ticks({ columns, ticks }: { columns: number; ticks: NonNullable<GridProps["ticks"]> }) {
  const [box, width] = useWidth();
  return (
    <div class="ticks" ref={box} aria-hidden="true">
      {placedTicks(ticks(Math.floor(width / (TICK_WIDTH * textScale()))), columns, width, LETTER * textScale()).map(
        ({ column, text, left }) => (
          <span key={column} style={{ left: `${left}px` }}>
            {text}
          </span>
        ),
      )}
    </div>
  );
}

/** Pixels of a letter of the labels. */
const LETTER = 7;
/** Colors from 0 to 100% utilization. */
const COLORS = 201;
/** Pixels from one label to the next. */
const TICK_WIDTH = 96;

function draw(pen: CanvasRenderingContext2D, props: GridProps, width: number, missing: string, line: string): void {
  const { rows, columns, rowHeight, lineEvery } = props;
  const cell = width / columns;
  const hatched = hatch(pen, missing);
  const scale = scaleOf(styleToken(pen.canvas, "--use"));
  const shades = shadesOf(pen.canvas);
  const unmeasuredStyles = [
    shades.fill(PART_COLORS.unmeasured_usd),
    hatch(pen, shades.line(PART_COLORS.unmeasured_usd)),
  ];
  // A large map has thousands of cells, and more colors look the same.
  const colors = Array.from({ length: COLORS }, (_, index) => useColor(scale, index / (COLORS - 1)));
  const colorOf = (fill: Fill) => {
    if (typeof fill === "string") return fill in PART_COLORS ? shades.fill(PART_COLORS[fill as PartKey]) : fill;
    return colors[Math.round(Math.min(1, Math.max(0, fill)) * (COLORS - 1))] ?? "";
  };
  const paintUnmeasured = (left: number, top: number, wide: number) => {
    for (const style of unmeasuredStyles) {
      pen.fillStyle = style;
      pen.fillRect(left, top, wide, rowHeight - 1);
    }
  };
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const { fill, part, rest, isHatched, isAtEnd, unmeasured = 0 } = props.paint(row, column);
      // Narrow cells are aligned with whole pixels to avoid visible edges.
      const left = cell > 4 ? column * cell : Math.round(column * cell);
      const room = cell > 4 ? cell - 0.5 : Math.max(1, Math.round((column + 1) * cell) - left);
      const wide = room * (part ?? 1);
      const begin = isAtEnd === true ? left + room - wide : left;
      if (rest !== undefined && wide < room) {
        pen.fillStyle = colorOf(rest);
        pen.fillRect(isAtEnd === true ? left : left + wide, row * rowHeight, room - wide, rowHeight - 1);
      }
      if (fill !== null) {
        const measured = wide * (1 - unmeasured);
        if (fill === "unmeasured") {
          paintUnmeasured(begin, row * rowHeight, wide);
        } else {
          pen.fillStyle = fill === "missing" ? hatched : colorOf(fill);
          pen.fillRect(begin, row * rowHeight, measured, rowHeight - 1);
          if (unmeasured > 0) paintUnmeasured(begin + measured, row * rowHeight, wide - measured);
        }
      }
      if (isHatched === true) {
        pen.fillStyle = hatched;
        pen.fillRect(begin, row * rowHeight, wide, rowHeight - 1);
      }
    }
  }
  if (lineEvery !== undefined) {
    pen.fillStyle = line;
    for (let row = lineEvery; row < rows; row += lineEvery) pen.fillRect(0, row * rowHeight - 0.5, width, 1);
  }
  const size = Math.round(11 * textScale());
  pen.font = `${size}px ${styleToken(pen.canvas, "--font")}`;
  pen.textBaseline = "middle";
  for (const { row, rows: tall, from, to, text } of props.texts ?? []) {
    const room = (to - from) * cell - 8;
    if (tall * rowHeight < size) continue;
    const shown = shortened(text, (candidate) => pen.measureText(candidate).width <= room);
    if (shown === null) continue;
    const [left, middle] = [from * cell + 4, (row + tall / 2) * rowHeight];
    pen.fillStyle = PLATE; // a plate, because a name can cover cells of any color
    pen.fillRect(left - 2, middle - size / 2 - 1, pen.measureText(shown).width + 4, size + 2);
    pen.fillStyle = PLATE_TEXT;
    pen.fillText(shown, left, middle + 0.5);
  }
}

function markOf([row, column]: [number, number], cell: number, tall: number) {
  return {
    left: `${column * cell}px`,
    top: `${row * tall}px`,
    width: `${cell}px`,
    height: `${tall}px`,
  };
}

function clamp(value: number, count: number): number {
  return Math.min(count - 1, Math.max(0, value));
}
