// The terms of the page, as the documentation explains them.

import { GLOSSARY } from "../glossary";

export function Glossary() {
  return (
    <>
      <h1>Glossary</h1>
      <section aria-label="Terms">
        <dl class="facts terms">
          {Object.entries(GLOSSARY).map(([term, meaning]) => (
            <div key={term}>
              <dt>{term}</dt>
              <dd>{meaning}</dd>
            </div>
          ))}
        </dl>
      </section>
    </>
  );
}
