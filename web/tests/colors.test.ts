// Measures that colors are distinguishable: with normal vision, with color blindness, and in black-and-white print.
import { describe, expect, test } from "vitest";
import {
  coverageColor,
  GROUP_COLORS,
  IDLE_COLOR,
  mixed,
  OTHERS_COLOR,
  PART_COLORS,
  PLATE,
  PLATE_TEXT,
  scaleOf,
  STATUS_COLORS,
  useColor,
} from "../src/charts/colors";
import { PARTS } from "../src/identity";
import style from "../src/style.css?raw";

type Three = readonly [number, number, number];

/** Machado, Oliveira, Fernandes (2009), severity 1, for linear RGB. */
const VISIONS: Record<string, readonly [Three, Three, Three]> = {
  "all cones": [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function linear(color: string): Three {
  const short = color.replace(/^#(.)(.)(.)$/, "#$1$1$2$2$3$3");
  const digits = short.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(short.slice(at, at + 2), 16))
    : (short.match(/\d+/g) ?? []).map(Number);
  const [red = 0, green = 0, blue = 0] = digits.map((partColor) =>
    partColor / 255 <= 0.04045 ? partColor / 255 / 12.92 : ((partColor / 255 + 0.055) / 1.055) ** 2.4,
  );
  return [red, green, blue];
}

const dot = (partColor: Three, other: Three) =>
  partColor[0] * other[0] + partColor[1] * other[1] + partColor[2] * other[2];

function seen(color: string, vision: string): Three {
  const rows = VISIONS[vision] ?? [];
  const [red = 0, green = 0, blue = 0] = rows.map((row) => Math.min(1, Math.max(0, dot(row, linear(color)))));
  return lab([red, green, blue]);
}

function lab(rgb: Three): Three {
  const root = (partColor: number) =>
    partColor > 216 / 24389 ? Math.cbrt(partColor) : ((24389 / 27) * partColor + 16) / 116;
  const x = root(dot([0.4124564, 0.3575761, 0.1804375], rgb) / 0.95047);
  const y = root(dot([0.2126729, 0.7151522, 0.072175], rgb));
  const z = root(dot([0.0193339, 0.119192, 0.9503041], rgb) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** CIEDE2000, as Sharma, Wu and Dalal (2005) write it down. */
function distance([l1, a1, b1]: Three, [l2, a2, b2]: Three): number {
  const rad = (degrees: number) => (degrees * Math.PI) / 180;
  const ratio = (chroma: number) => Math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7));
  const grey = 1.5 - 0.5 * ratio((Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2);
  const [c1, c2] = [Math.hypot(a1 * grey, b1), Math.hypot(a2 * grey, b2)];
  const hue = (a: number, b: number) => ((Math.atan2(b, a * grey) * 180) / Math.PI + 360) % 360;
  const [h1, h2] = [hue(a1, b1), hue(a2, b2)];
  const turn = c1 * c2 === 0 ? 0 : ((h2 - h1 + 540) % 360) - 180;
  const [dl, dc, dh] = [l2 - l1, c2 - c1, 2 * Math.sqrt(c1 * c2) * Math.sin(rad(turn / 2))];
  const [l, c] = [(l1 + l2) / 2, (c1 + c2) / 2];
  const h = c1 * c2 === 0 ? h1 + h2 : (h1 + turn / 2 + 360) % 360;
  const t =
    1 -
    0.17 * Math.cos(rad(h - 30)) +
    0.24 * Math.cos(rad(2 * h)) +
    0.32 * Math.cos(rad(3 * h + 6)) -
    0.2 * Math.cos(rad(4 * h - 63));
  const twist = -2 * ratio(c) * Math.sin(rad(60 * Math.exp(-(((h - 275) / 25) ** 2))));
  const sl = 1 + (0.015 * (l - 50) ** 2) / Math.sqrt(20 + (l - 50) ** 2);
  const [byC, byH] = [dc / (1 + 0.045 * c), dh / (1 + 0.015 * c * t)];
  return Math.sqrt((dl / sl) ** 2 + byC ** 2 + byH ** 2 + twist * byC * byH);
}

/** WCAG 2.2. */
function contrast(partColor: string, other: string): number {
  const [light = 0, dark = 0] = [partColor, other]
    .map((color) => dot([0.2126, 0.7152, 0.0722], linear(color)) + 0.05)
    .sort((left, right) => right - left);
  return light / dark;
}

const [LIGHT = {}, DARK = {}] = [...style.matchAll(/:root[^{]*\{([^}]*--back:[^}]*)\}/g)].map(([, rules = ""]) =>
  Object.fromEntries(
    [...rules.matchAll(/--([\w-]+): (#[^;]+|\d+%);/g)].map(([, name = "", color = ""]) => [name, color]),
  ),
);
/** The colors of utilizations from 0 to 100%. */
const usesOf = (scheme: Record<string, string>) =>
  Array.from({ length: 101 }, (_, percent) => useColor(scaleOf(scheme["use"] ?? ""), percent / 100));
const PART = PARTS.map((part) => PART_COLORS[part.key]);
const SCHEMES = [
  ["light", LIGHT],
  ["dark", DARK],
] as const;
/** An area of a color, as it is drawn. */
const areaOf = (scheme: Record<string, string>, color: string) =>
  mixed(color, scheme["panel"] ?? "", shareIn(scheme, "fill"));
const lineOf = (scheme: Record<string, string>, color: string) =>
  mixed(color, scheme["ink"] ?? "", shareIn(scheme, "line"));
const shareIn = (scheme: Record<string, string>, kind: string) => parseFloat(scheme[`${kind}-share`] ?? "") / 100;

test("the distance is CIEDE2000", () => {
  // Sharma et al., table 1: pairs 1, 7, 9 and 16.
  for (const [partColor, other, tableRows] of [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, 0, 0], [50, -1, 2], 2.3669],
    [[50, 2.49, -0.001], [50, -2.49, 0.0009], 7.1792],
    [[50, 2.5, 0], [50, 0, -2.5], 4.3065],
  ] as [Three, Three, number][]) {
    expect(distance(partColor, other)).toBeCloseTo(tableRows, 4);
  }
  expect(contrast("#000", "#fff")).toBeCloseTo(21, 10);
});

describe.each(Object.keys(VISIONS))("with %s", (vision) => {
  test("any two groups differ, and from the others and the idle cost", () => {
    GROUP_COLORS.forEach((color, at) => {
      for (const other of GROUP_COLORS.slice(at + 1))
        expect(distance(seen(color, vision), seen(other, vision)), `${color} ${other}`).toBeGreaterThan(10);
      for (const other of [OTHERS_COLOR, IDLE_COLOR])
        expect(distance(seen(color, vision), seen(other, vision)), `${color} ${other}`).toBeGreaterThan(9);
    });
  });

  test("any two parts differ", () => {
    PART.forEach((partColor, at) => {
      for (const other of PART.slice(at + 1)) {
        expect(distance(seen(partColor, vision), seen(other, vision)), `${partColor} ${other}`).toBeGreaterThan(15);
      }
    });
  });

  test.each(SCHEMES)("areas of any two parts or groups, which can be adjacent in a stack, differ (%s)", (_, scheme) => {
    for (const [colors, least] of [
      [PART, 8],
      [[...GROUP_COLORS, OTHERS_COLOR, IDLE_COLOR], 4],
    ] as const) {
      const areas = colors.map((color) => seen(areaOf(scheme, color), vision));
      areas.forEach((area, at) => {
        for (const other of areas.slice(at + 1)) expect(distance(area, other)).toBeGreaterThan(least);
        expect(distance(area, seen(scheme["panel"] ?? "", vision))).toBeGreaterThan(5);
      });
    }
  });

  test.each(SCHEMES)(
    "higher utilization differs more from the %s ground, and all from unallocated and stranded",
    (_, scheme) => {
      const uses = usesOf(scheme).map((color) => seen(color, vision));
      const ground = seen(scheme["back"] ?? "", vision);
      const lightness = (at: number) => Math.abs((uses[at]?.[0] ?? 0) - ground[0]);
      for (let at = 10; at <= 100; at += 10) expect(lightness(at)).toBeGreaterThan(lightness(at - 10) + 4);
      for (const use of uses) expect(distance(use, ground)).toBeGreaterThan(12); // no cell is as where there is nothing
      const [free, stranded] = (["unallocated_usd", "stranded_usd"] as const).map((key) =>
        seen(areaOf(scheme, PART_COLORS[key]), vision),
      );
      for (const part of [free, stranded]) {
        for (const use of uses) expect(distance(part as Three, use)).toBeGreaterThan(11);
      }
      expect(distance(free as Three, stranded as Three)).toBeGreaterThan(8);
    },
  );
});

test("no group looks like a part of the cost", () => {
  for (const color of GROUP_COLORS) {
    for (const part of PART)
      expect(distance(seen(color, "all cones"), seen(part, "all cones")), `${color} ${part}`).toBeGreaterThan(12);
  }
});

test("without colors, effective and waste differ in lightness", () => {
  const light = (color: string) => seen(color, "all cones")[0];
  expect(Math.abs(light(PART_COLORS.effective_usd) - light(PART_COLORS.waste_usd))).toBeGreaterThan(10);
});

test.each(SCHEMES)("a line bounds the area below it, and stands out from the %s ground", (_, scheme) => {
  for (const color of [...PART, ...GROUP_COLORS, OTHERS_COLOR]) {
    const line = lineOf(scheme, color);
    expect(contrast(line, areaOf(scheme, color)), color).toBeGreaterThan(3); // WCAG 1.4.11
    expect(contrast(line, scheme["panel"] ?? ""), color).toBeGreaterThan(3);
  }
});

test.each([LIGHT, DARK])("text can be read, and hatching seen", (scheme) => {
  for (const ground of [scheme["back"], scheme["panel"]]) {
    for (const text of ["ink", "quiet", "link", "alert"]) {
      expect(contrast(scheme[text] ?? "", ground ?? ""), text).toBeGreaterThan(4.5); // WCAG 1.4.3
    }
    expect(contrast(scheme["missing"] ?? "", ground ?? "")).toBeGreaterThan(3);
  }
});

test.each(SCHEMES)("on a %s ground, the highest utilization stands out most", (_, scheme) => {
  const onGround = (color: string) => contrast(color, scheme["back"] ?? "");
  const contrasts = usesOf(scheme).map(onGround);
  for (const [at, value] of contrasts.slice(1).entries())
    expect(value, `${at + 1}%`).toBeGreaterThan(contrasts[at] ?? 0);
  const full = contrasts[100] ?? 0;
  if (scheme === DARK) expect(contrasts[0]).toBeGreaterThan(3); // WCAG 1.4.11, also for what was never used
  expect(full).toBeGreaterThan(3); // WCAG 1.4.11
  for (const key of ["unallocated_usd", "stranded_usd"] as const) {
    expect(onGround(areaOf(scheme, PART_COLORS[key])), key).toBeLessThan(0.6 * full);
  }
  expect(onGround(scheme["missing"] ?? "")).toBeGreaterThan(3);
});

test("names on cells can be read on any utilization", () => {
  const [opacity = 0] = (/(\d+)%/.exec(PLATE) ?? []).slice(1).map((percentage) => Number(percentage) / 100);
  for (const color of [...usesOf(LIGHT), ...usesOf(DARK)]) {
    const channels = (color.match(/\d+/g) ?? []).map((channel) => Math.round(Number(channel) * (1 - opacity)));
    expect(contrast(PLATE_TEXT, `rgb(${channels.join(",")})`), color).toBeGreaterThan(7); // WCAG 1.4.6
  }
});

test("a utilization has the same hue in both color schemes", () => {
  const hue = (color: string) => {
    const [, a, b] = seen(color, "all cones");
    return (Math.atan2(b, a) * 180) / Math.PI;
  };
  const [light, dark] = [usesOf(LIGHT), usesOf(DARK)];
  for (let at = 0; at <= 100; at += 10)
    expect(Math.abs(hue(light[at] ?? "") - hue(dark[at] ?? "")), `${at}%`).toBeLessThan(25);
});

test("no status of an hour looks like a part of the cost or another status", () => {
  const statuses = Object.values(STATUS_COLORS);
  for (const vision of Object.keys(VISIONS))
    statuses.forEach((color, at) => {
      for (const other of statuses.slice(at + 1))
        expect(distance(seen(color, vision), seen(other, vision)), `${color} ${other}`).toBeGreaterThan(10);
    });
  for (const color of statuses)
    for (const part of PART)
      expect(distance(seen(color, "all cones"), seen(part, "all cones")), `${color} ${part}`).toBeGreaterThan(12);
});

test("alarm colors of hours mean that figures are missing", () => {
  expect(coverageColor(1)).toBe(STATUS_COLORS.complete);
  expect(coverageColor(0.994)).toBe(STATUS_COLORS.complete); // no finding
  expect(coverageColor(0.98)).not.toBe(STATUS_COLORS.complete);
  expect(coverageColor(0)).toBe("rgb(185,65,110)");
  expect(STATUS_COLORS.incomplete).toBe("#b9416e"); // the same color
  expect(new Set(Object.values(STATUS_COLORS)).size).toBe(5);
  for (const scheme of [LIGHT, DARK]) expect(Object.values(STATUS_COLORS)).not.toContain(usesOf(scheme)[100]);
});
