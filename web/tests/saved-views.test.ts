import { expect, test } from "vitest";
import { isSame, parse, queryOf, withView } from "../src/saved-views";

const view = (name: string, query: Record<string, string> = { by: "cluster" }) => ({ name, query });

test("saved views are read back, and one of the same name replaces the other", () => {
  const views = withView(
    withView(withView([], view("a")), view("b")),
    view(" a ", { by: "zone", page: "2", view: "x" }),
  );
  expect(views).toEqual([view("b"), view("a", { by: "zone" })]);
  expect(parse(JSON.stringify(views))).toEqual({ views, isDamaged: false });
  expect(parse(null)).toEqual({ views: [], isDamaged: false });
});

test.each([
  "",
  "{",
  "null",
  "1",
  '{"name":"a"}',
  '[{"name":"a"}]',
  '[{"name":"","query":{}}]',
  '[{"name":1,"query":{}}]',
  '[{"name":"a","query":{"by":1}}]',
  '[{"name":"a","query":["by"]}]',
  '[{"name":"a","query":{"__proto__x":"y"}}]',
  '[{"name":"a","query":{"javascript:alert(1)":"y"}}]',
  `[{"name":"${"a".repeat(81)}","query":{}}]`,
  `[{"name":"a","query":{"by":"${"a".repeat(2001)}"}}]`,
  '["a"]',
  "[null]",
])("what is no view is ignored, and said: %s", (text) => {
  expect(parse(text)).toEqual({ views: [], isDamaged: true });
});

test("views next to damaged ones are kept, and at most 50", () => {
  expect(parse(JSON.stringify([view("a"), null, view("b")]))).toEqual({
    views: [view("a"), view("b")],
    isDamaged: true,
  });
  const many = Array.from({ length: 60 }, (_, at) => view(`${at}`));
  expect(parse(JSON.stringify(many)).views).toHaveLength(50);
  expect(withView(many, view("last")).at(-1)).toEqual(view("last"));
  expect(withView(many, view("last"))).toHaveLength(50);
});

test("a view is the same whatever the order of its parameters, and without those that no view has", () => {
  const saved = view("a", { by: "zone", "f.cluster": "west" });
  expect(isSame(saved, { view: "a", "f.cluster": "west", by: "zone", why: "waste_usd" })).toBe(true);
  expect(isSame(saved, { by: "zone" })).toBe(false);
  expect(queryOf({ by: "", then: "zone" })).toEqual({ then: "zone" });
});
