// Cumulative spending of a month, its projection as a dashed line, and the budget as a horizontal line.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { axisMoney, axisTime, roundMoney, utcDay } from "../format";
import { AMOUNTS } from "../identity";
import { useAppearance, useRedrawForPrint, useWidth } from "../hooks";
import { axisOf, plotPadding, sizeOf, timeAxisOf } from "./axes";
import { HatchSwatch, Swatch } from "../parts";
import { GAP_MARK, hatch, styleToken, textScale } from "./colors";

interface Props {
  start: number;
  end: number;
  /** Cumulative spending at the end of each period with data. */
  points: readonly { from: number; at: number; spent: number }[];
  /** Periods with missing data, and the share that is known, 0 to 1. */
  gaps: readonly { from: number; to: number; coverage: number }[];
  /** The line to the month's end, with what it begins with, in order of time; empty without a projection. */
  projection: readonly { at: number; amount: number }[];
  /** The part of the projection for hours so far without figures. */
  estimate: number;
  budget: number | null;
  currency: string;
}

const SPENT = "#0072b2";
const BUDGET = "#b9416e"; // apart from the color of waste

export function BurnChart(props: Props) {
  const [box, width] = useWidth();
  const plot = useRef<uPlot | null>(null);
  const appearance = useAppearance();
  const height = Math.round(Math.min(480, Math.max(220, width / 5)));
  useEffect(() => {
    const element = box.current;
    if (element === null || width === 0) return;
    const { start, end, points, gaps, projection, budget } = props;
    const last = points.at(-1) ?? { at: start, spent: 0 };
    const times: number[] = [];
    const spent: (number | null)[] = [];
    const put = (at: number, amount: number | null) => {
      times.push(at);
      spent.push(amount);
    };
    points.forEach((point, index) => {
      const before = points[index - 1];
      if (before === undefined || before.at < point.from) {
        if (before !== undefined) put(before.at + 1, null); // draw a gap, not a slope
        put(point.from, before?.spent ?? 0);
      }
      put(point.at, point.spent);
    });
    if ((times[0] ?? end) > start) {
      times.unshift(start);
      spent.unshift(null);
    }
    for (const { at } of projection) if (at > (times.at(-1) ?? start)) put(at, null);
    if ((times.at(-1) ?? start) < end) put(end, null);
    const amounts = new Map(projection.map(({ at, amount }) => [at, amount]));
    const ahead = times.map((time) => amounts.get(time) ?? null);
    const limit = times.map(() => budget);
    const axis = axisOf(element);
    const highest = Math.max(last.spent, projection.at(-1)?.amount ?? 0, budget ?? 0) * 1.05;
    const made = new uPlot(
      {
        width,
        height,
        padding: plotPadding(textScale()),
        legend: { show: false },
        cursor: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: {
          x: { time: true, range: () => [start / 1000, end / 1000] },
          y: { range: () => [0, highest > 0 ? highest : 1] },
        },
        axes: [
          { ...timeAxisOf(element), values: (_plot, splits) => splits.map((at) => axisTime(at, "utc")) },
          {
            ...axis,
            size: sizeOf,
            values: (_plot, splits) => splits.map((amount) => axisMoney(amount, props.currency)),
          },
        ],
        hooks: {
          drawClear: [
            (drawn) => {
              drawn.ctx.fillStyle = hatch(drawn.ctx, styleToken(element, "--missing"));
              for (const { from, to, coverage } of gaps) {
                const [left, right] = [from, to].map((at) => drawn.valToPos(at / 1000, "x", true));
                const { top, height: room } = drawn.bbox;
                // A partly known day is a mark at the axis: a height would look like an amount.
                const tall = coverage > 0 ? Math.min(room, GAP_MARK * window.devicePixelRatio) : room;
                drawn.ctx.fillRect(left ?? 0, top + room - tall, (right ?? 0) - (left ?? 0), tall);
              }
            },
          ],
        },
        series: [
          {},
          { stroke: SPENT, fill: `${SPENT}33`, width: 2, points: { show: false } },
          { stroke: SPENT, dash: [6, 4], width: 2, spanGaps: true, points: { show: false } },
          { stroke: BUDGET, width: 2, points: { show: false } },
        ],
      },
      [times.map((time) => time / 1000), spent, ahead, limit],
      element,
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [width, height, appearance, props.points, props.projection, props.budget, props.currency]);
  useRedrawForPrint(() => plot.current?.redraw(false, true));
  const { points, currency, projection, estimate, budget } = props;
  const projected = projection.at(-1)?.amount ?? null;
  const last = points.at(-1);
  const description = [
    last && `${roundMoney(last.spent, currency)} by ${utcDay(last.at - 1)}`,
    projected !== null && `a run rate of ${roundMoney(projected, currency)} for the month`,
    budget !== null && `a budget of ${roundMoney(budget, currency)}`,
    estimate > 0 && `${roundMoney(estimate, currency)} of the run rate is an estimate for hours without figures`,
  ].filter(Boolean);
  return (
    <figure class="chart">
      <ul class="legend">
        <li>
          <Swatch color={SPENT} /> {AMOUNTS.allocated_usd}
        </li>
        {projected !== null && (
          <li>
            <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">
              <path d="M0 5H4M6 5H10" stroke={SPENT} stroke-width="2" />
            </svg>
            run rate
            {estimate > 0 && `, of which ${roundMoney(estimate, currency)} is an estimate for hours without figures`}
          </li>
        )}
        {budget !== null && (
          <li>
            <Swatch color={BUDGET} /> budget
          </li>
        )}
        <li>
          <HatchSwatch />
          missing
        </li>
      </ul>
      <div
        class="plot still"
        ref={box}
        role="img"
        aria-label={`Cumulative ${AMOUNTS.allocated_usd}: ${description.join(", ")}`}
      />
    </figure>
  );
}
