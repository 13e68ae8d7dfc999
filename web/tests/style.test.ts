// The style sheet takes colors, sizes, spaces and radii from its tokens.
import { expect, test } from "vitest";
import style from "../src/style.css?raw";

const rules = style.replace(/\/\*[^]*?\*\//g, "").replace(/--[\w-]+: [^;]+;/g, "");
const declared = (property: string) =>
  [...rules.matchAll(new RegExp(`[\\s{](?:${property}): ([^;]+);`, "g"))].map(([, text = ""]) => text);

test("colors are tokens", () => {
  expect(rules.match(/#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(/gi)).toBeNull();
  expect(style).toMatch(/--ink: #/);
});

test("sizes of text and radii are tokens", () => {
  const sizes = [...declared("font-size"), ...declared("border-radius")];
  expect(sizes.length).toBeGreaterThan(20);
  expect(sizes.filter((size) => !/^var\(--(text|radius)[\w-]*\)$/.test(size))).toEqual([
    "clamp(1.25rem, 0.75vw, 2.5rem)",
  ]); // of 4K screens
});

test("spaces are tokens", () => {
  const spaces = declared("margin|padding|gap|(?:margin|padding)-(?:top|bottom|left|right)|column-gap").flatMap(
    (text) => text.replace(/calc\(.*\)/, "0").split(" "),
  );
  expect(spaces.length).toBeGreaterThan(60);
  expect(spaces.filter((space) => !/^(0|var\(--(space-\w+|edge)\)|12mm)$/.test(space))).toEqual([]);
});

test("every token is used, and every used token exists", () => {
  const defined = new Set([...style.matchAll(/(--[\w-]+):/g)].map(([, name]) => name));
  const used = new Set([...style.matchAll(/var\((--[\w-]+)\)/g)].map(([, name]) => name));
  expect([...used].filter((name) => !defined.has(name))).toEqual([]);
  // The canvases read the grid's color.
  expect([...defined].filter((name) => !used.has(name))).toEqual(["--grid"]);
});

test("figures of the previous period are pale in the frame in which the period changes", () => {
  const stale = style.match(/\.stale[^{]*\{[^}]*\}/g)?.join(" ") ?? "";
  expect(stale).toMatch(/opacity: 0;/);
  expect(stale).not.toMatch(/transition|delay|animation:[^;]*s [\d.]+s/);
});
