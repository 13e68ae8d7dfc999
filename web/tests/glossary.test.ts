// The page's explanations are the glossary's own sentences.
import { expect, test } from "vitest";
import glossary from "../../docs/reference/glossary.md?raw";
import { GLOSSARY, GLOSSARY_GROUPS } from "../src/glossary";
import { anchorOf } from "../src/views/glossary";

const rows = new Map(
  [...glossary.matchAll(/^\| (.+?) \| (.+) \|$/gm)].map(([, term = "", meaning = ""]) => [
    term,
    meaning.replace(/[`*]/g, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1"),
  ]),
);

test.each(Object.entries(GLOSSARY))("%s is explained as in the glossary", (term, sentence) => {
  expect(rows.get(term)?.startsWith(sentence)).toBe(true);
  expect(sentence).toMatch(/\.$/);
});

test("every term is in one group, and every group and term has an anchor of its own", () => {
  const terms = Object.values(GLOSSARY_GROUPS).flatMap((group) => Object.keys(group));
  expect(terms).toEqual([...new Set(terms)]);
  expect(Object.keys(GLOSSARY)).toEqual(terms);
  const anchors = [...Object.keys(GLOSSARY_GROUPS), ...terms].map(anchorOf);
  expect(new Set(anchors).size).toBe(anchors.length);
});
