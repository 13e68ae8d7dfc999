// Files for Excel (Office Open XML): numbers are numbers, shares have the format of percentages, and times are dates.

import { strToU8, zipSync } from "fflate";
import { amountTitle } from "./identity";
import type { Costs } from "./explore";
import { DAY, type Figure, isRepresentative, knownFigure, ratio, utilization } from "./format";

type GpuHours = "allocated_gpu_hours" | "effective_gpu_hours" | "unmeasured_gpu_hours";
type Kind = "text" | "number" | "percent" | "time";

export interface Cell<Row> {
  title: string;
  kind: Kind;
  /** A text, a figure, or a time of the API. An unknown figure is an empty cell. */
  of: (row: Row) => string | Figure;
}

/** Places in the list of formats of `STYLES`. */
const FORMATS: Readonly<Record<Kind, number>> = { text: 0, number: 2, percent: 3, time: 4 };
const HEADER = 1;
const WIDTHS: Readonly<Record<Kind, number>> = { text: 28, number: 16, percent: 12, time: 18 };
/** 1970-01-01 as Excel counts days. */
const EPOCH = 25_569;

/** The cells of a table of costs: groups, period, amounts, GPU-hours, utilization and waste %. */
export function costCells<Row extends Costs>(
  groups: readonly Cell<Row>[],
  { currency, start, end }: { currency: string; start: string; end: string },
  nodes: readonly ("node_cost_usd" | "unallocated_usd")[] = [],
  more: readonly Cell<Row>[] = [],
): Cell<Row>[] {
  const amounts = [...nodes, "allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"] as const;
  const figure = (key: (typeof amounts)[number] | GpuHours, title: string): Cell<Row> => ({
    title,
    kind: "number",
    of: (row) => knownFigure(row, key),
  });
  return [
    ...groups,
    ...periodCells<Row>(start, end),
    ...more,
    ...amounts.map((key) => figure(key, `${amountTitle(key)} (${currency})`)),
    figure("allocated_gpu_hours", "GPU-hours"),
    figure("effective_gpu_hours", "Effective GPU-hours"),
    figure("unmeasured_gpu_hours", "Unmeasured GPU-hours"),
    { title: "Utilization", kind: "percent", of: utilization },
    {
      title: "Waste %",
      kind: "percent",
      of: (row) => (isRepresentative(row) ? ratio(row.waste_usd, row.allocated_usd) : null),
    },
  ];
}

/** The period of each row, so that rows of several files can stand in one sheet. */
export function periodCells<Row>(start: string, end: string): Cell<Row>[] {
  return [
    { title: "Start (UTC)", kind: "time", of: () => start },
    { title: "End (UTC)", kind: "time", of: () => end },
  ];
}

/** A column of names of a dimension. */
export function groupCell<Row extends { group: Readonly<Record<string, string | null>> }>(
  key: string,
  title: string,
): Cell<Row> {
  return { title, kind: "text", of: ({ group }) => group[key] ?? "" };
}

/** The XML of a sheet: a row of titles that stays visible, and the rows. */
export function sheetOf<Row>(columns: readonly Cell<Row>[], rows: readonly Row[]): string {
  const titles = columns.map(({ title }) => textCell(title, HEADER)).join("");
  const lines = rows.map((row) => `<row>${columns.map((column) => cellOf(column, row)).join("")}</row>`);
  const widths = columns.map(
    ({ kind }, index) => `<col min="${index + 1}" max="${index + 1}" width="${WIDTHS[kind]}" customWidth="1"/>`,
  );
  return (
    `${XML}<worksheet xmlns="${MAIN}"><sheetViews><sheetView workbookViewId="0">` +
    `<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>` +
    `<cols>${widths.join("")}</cols><sheetData><row>${titles}</row>${lines.join("")}</sheetData></worksheet>`
  );
}

function cellOf<Row>({ kind, of }: Cell<Row>, row: Row): string {
  const value = of(row);
  if (value === null || value === undefined || value === "") return "<c/>";
  if (kind === "text") return textCell(String(value), FORMATS.text);
  const number = kind === "time" ? Date.parse(String(value)) / DAY + EPOCH : Math.round(Number(value) * 1e6) / 1e6;
  return `<c s="${FORMATS[kind]}"><v>${number}</v></c>`;
}

/** A text as it is: Excel runs no formula of it. */
function textCell(text: string, style: number): string {
  return `<c t="inlineStr" s="${style}"><is><t xml:space="preserve">${escaped(text)}</t></is></c>`;
}

function escaped(text: string): string {
  const allowed = text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "");
  return allowed.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';
const MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE = "http://schemas.openxmlformats.org/package/2006";
const TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml";

const relationships = (...targets: [string, string][]) =>
  `${XML}<Relationships xmlns="${PACKAGE}/relationships">${targets
    .map(([type, path], index) => `<Relationship Id="rId${index + 1}" Type="${OFFICE}/${type}" Target="${path}"/>`)
    .join("")}</Relationships>`;

const STYLES =
  `${XML}<styleSheet xmlns="${MAIN}"><numFmts count="2"><numFmt numFmtId="164" formatCode="0.0%"/>` +
  `<numFmt numFmtId="165" formatCode="yyyy\\-mm\\-dd\\ hh:mm"/></numFmts>` +
  `<fonts count="2"><font/><font><b/></font></fonts>` +
  `<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills>` +
  `<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="5">` +
  `<xf/><xf fontId="1" applyFont="1"/>${[4, 164, 165].map((id) => `<xf numFmtId="${id}" applyNumberFormat="1"/>`).join("")}` +
  `</cellXfs></styleSheet>`;

/** A workbook with one sheet. */
export function workbookOf<Row>(columns: readonly Cell<Row>[], rows: readonly Row[]): Uint8Array<ArrayBuffer> {
  const part = (path: string, type: string) => `<Override PartName="/xl/${path}" ContentType="${TYPE}.${type}+xml"/>`;
  const parts = {
    "[Content_Types].xml":
      `${XML}<Types xmlns="${PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>` +
      `${part("workbook.xml", "sheet.main")}${part("worksheets/sheet1.xml", "worksheet")}${part("styles.xml", "styles")}</Types>`,
    "_rels/.rels": relationships(["officeDocument", "xl/workbook.xml"]),
    "xl/workbook.xml": `${XML}<workbook xmlns="${MAIN}" xmlns:r="${OFFICE}"><sheets><sheet name="gpucost" sheetId="1" r:id="rId1"/></sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": relationships(["worksheet", "worksheets/sheet1.xml"], ["styles", "styles.xml"]),
    "xl/styles.xml": STYLES,
    "xl/worksheets/sheet1.xml": sheetOf(columns, rows),
  };
  return zipSync(Object.fromEntries(Object.entries(parts).map(([path, text]) => [path, strToU8(text)])));
}

/** Saves a workbook. Its name contains the content's name and the period in UTC. */
export function saveWorkbook<Row>(
  name: string,
  { start, end }: { start: string; end: string },
  columns: readonly Cell<Row>[],
  rows: readonly Row[],
): void {
  const link = document.createElement("a");
  const type = `${TYPE}.sheet`;
  link.href = URL.createObjectURL(new Blob([workbookOf(columns, rows)], { type }));
  const safe = name.replace(/[^A-Za-z0-9-]+/g, "-");
  link.download = `${safe}_${start.slice(0, 13)}Z_${end.slice(0, 13)}Z.xlsx`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
