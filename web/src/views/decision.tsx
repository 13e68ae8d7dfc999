// Decisions on the page, in `gpucost serve` on the loopback address.

import { useContext, useState } from "preact/hooks";
import { detailOf, Problem } from "../api";
import { type DecisionProps, DecisionsContext } from "../hooks";

/** A button that takes a decision, with a reason if it needs one. */
export function DecisionButton({ title, path, reason }: DecisionProps) {
  const decisions = useContext(DecisionsContext);
  const [isOpen, setIsOpen] = useState(false);
  const [isSent, setIsSent] = useState(false);
  const [text, setText] = useState("");
  const [error, setError] = useState("");
  if (decisions === null) return null;
  const send = (body: Record<string, string>) => {
    setIsSent(true);
    setError("");
    decide(path, body)
      .then(decisions.add, (problem: unknown) => setError(problem instanceof Error ? problem.message : String(problem)))
      .finally(() => setIsSent(false));
  };
  const alert = error !== "" && <span role="alert"> {error}</span>;
  if (reason === undefined || !isOpen)
    return (
      <>
        <button type="button" disabled={isSent} onClick={() => (reason === undefined ? send({}) : setIsOpen(true))}>
          {title}
        </button>
        {alert}
      </>
    );
  return (
    <form
      class="decision"
      onSubmit={(event) => {
        event.preventDefault();
        send({ reason: text });
      }}
    >
      <label>
        {reason}{" "}
        <input
          required
          maxLength={1000}
          pattern=".*\S.*"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>{" "}
      <button disabled={isSent}>{title}</button>{" "}
      <button type="button" onClick={() => setIsOpen(false)}>
        Cancel
      </button>
      {alert}
    </form>
  );
}

async function decide(path: string, body: Record<string, string>): Promise<void> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`serve/${path}`, { method: "POST", headers, body: JSON.stringify(body) }).catch(() => {
    throw new Problem(0, "The API is not reachable.");
  });
  if (!response.ok) throw new Problem(response.status, await detailOf(response));
}
