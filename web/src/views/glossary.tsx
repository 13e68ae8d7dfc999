// The terms of the page by group, as the documentation explains them. The address names a group or a term: each is an anchor.

import { useEffect } from "preact/hooks";
import { GLOSSARY_GROUPS } from "../glossary";
import { useRoute } from "../hooks";
import { Section } from "../parts";
import { linkTo } from "../route";

export function Glossary() {
  const route = useRoute();
  const { name } = route;
  useEffect(() => {
    const element = name === "" ? null : document.getElementById(anchorOf(name));
    element?.scrollIntoView({ block: "start" });
    element?.querySelector("a")?.focus({ preventScroll: true });
  }, [name]);
  const link = (anchor: string) => (
    <a href={linkTo(route, "glossary", anchor)} aria-current={anchor === name ? "location" : undefined}>
      {anchor}
    </a>
  );
  return (
    <>
      <h1>Glossary</h1>
      <p class="note">Amounts are named after their part of the node cost: for example, allocated cost.</p>
      <nav class="filters" aria-label="Groups of terms">
        {Object.keys(GLOSSARY_GROUPS).map((group) => (
          <span class="filter" key={group}>
            {link(group)}
          </span>
        ))}
      </nav>
      <div class="groups">
        {Object.entries(GLOSSARY_GROUPS).map(([group, terms]) => (
          <div key={group} id={anchorOf(group)}>
            <Section title={group}>
              <dl class="facts terms">
                {Object.entries(terms).map(([term, meaning]) => (
                  <div key={term} id={anchorOf(term)} class={term === name ? "marked" : undefined}>
                    <dt>{link(term)}</dt>
                    <dd>{meaning}</dd>
                  </div>
                ))}
              </dl>
            </Section>
          </div>
        ))}
      </div>
    </>
  );
}

/** The ID of a group's or a term's element. */
export function anchorOf(name: string): string {
  return `term-${name.toLowerCase().replace(/[^a-z]+/g, "-")}`;
}
