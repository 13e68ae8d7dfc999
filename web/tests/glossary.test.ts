// The page's explanations are the glossary's own sentences.
import { expect, test } from "vitest";
import glossary from "../../docs/reference/glossary.md?raw";
import { GLOSSARY } from "../src/glossary";

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
