// The filters of a view, each a chip with a button that removes it, and a form that adds one.

import { useState } from "preact/hooks";
import { DIMENSIONS, type Filter, filterQuery } from "../explore";
import { changed, go, useFetch, useRoute } from "../hooks";
import { Name } from "../parts";
import { periodOf } from "../route";

interface Props {
  filters: readonly Filter[];
  /** Titles of the dimensions that filters can have. */
  dimensions: Readonly<Record<string, string>>;
  hasLabels?: boolean;
  /** Fetches the names of a dimension in the period, for the filter's field. */
  namesOf: (dimension: string) => Promise<string[]>;
}

export function Options({ titles }: { titles: Readonly<Record<string, string>> }) {
  return (
    <>
      {Object.entries(titles).map(([key, title]) => (
        <option key={key} value={key}>
          {title}
        </option>
      ))}
    </>
  );
}

export function Filters(props: Props) {
  const route = useRoute();
  const { filters } = props;
  const without = (index: number) => filterQuery(filters.toSpliced(index, 1), filters);
  const add = (added: Filter) => go(changed(route, filterQuery([...filters, added], filters)));
  return (
    <div class="filters" role="group" aria-label="Filters">
      {filters.map(({ dimension, name, isExcluded }, index) => (
        <span class="filter" key={`${dimension} ${name}`}>
          {titleOf(dimension, props.dimensions)} {isExcluded ? "is not" : "is"} <Name>{name}</Name>{" "}
          <button
            type="button"
            class="plain"
            aria-label={`Remove the filter ${titleOf(dimension, props.dimensions)} ${name}`}
            onClick={() => go(changed(route, { ...without(index), trail: "" }))}
          >
            ×
          </button>
        </span>
      ))}
      <AddFilter {...props} add={add} />
    </div>
  );
}

/** A form that adds a filter, with the names of the period to choose from. */
function AddFilter({ dimensions, hasLabels, namesOf, add }: Props & { add: (filter: Filter) => void }) {
  const [isOpen, setOpen] = useState(false);
  const [dimension, setDimension] = useState("business_unit");
  const [label, setLabel] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => (form.get(name) as string | null)?.trim() ?? "";
    add({
      dimension: dimension === "label" ? `label:${label.trim()}` : dimension,
      name: text("name"),
      isExcluded: text("match") === "not",
    });
  };
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Add filter</summary>
      <form onSubmit={submit}>
        <select
          name="dimension"
          aria-label="Dimension of the filter"
          value={dimension}
          onChange={(event) => setDimension(event.currentTarget.value)}
        >
          <Options titles={dimensions} />
          {hasLabels && <option value="label">Label</option>}
        </select>{" "}
        {dimension === "label" && (
          <input
            name="label"
            aria-label="Name of the label"
            placeholder="label"
            size={8}
            required
            value={label}
            onInput={(event) => setLabel(event.currentTarget.value)}
          />
        )}{" "}
        <select name="match" aria-label="Whether it matches">
          <option value="is">is</option>
          <option value="not">is not</option>
        </select>{" "}
        <input name="name" aria-label="Name that the filter matches" size={16} list="filter-names" autocomplete="off" />{" "}
        <button type="submit">Add</button>
        {isOpen && (
          <FilterNames dimension={dimension === "label" ? `label:${label.trim()}` : dimension} namesOf={namesOf} />
        )}
      </form>
    </details>
  );
}

function FilterNames({ dimension, namesOf }: { dimension: string } & Pick<Props, "namesOf">) {
  const route = useRoute();
  const key = JSON.stringify([dimension, periodOf(route), route.query["cluster"]]);
  const { response = [] } = useFetch(key, async () => (dimension === "label:" ? [] : namesOf(dimension)));
  return (
    <datalist id="filter-names">
      {[...new Set(response)].sort().map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}

/** The title of a dimension. */
export function titleOf(dimension: string, titles: Readonly<Record<string, string>> = DIMENSIONS): string {
  return titles[dimension] ?? dimension.replace(/^label:/, "Label ");
}
