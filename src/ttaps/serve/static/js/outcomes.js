/** What gallery and results share: the filter by outcome, and three labels under an image. */

import { make } from "./dom.js";
import { readable } from "./words.js";

const OUTCOMES = ["all", "fixed", "broken", "unchanged", "changed"];

export const outcomeName = (outcome) => (outcome === "changed" ? "still wrong" : outcome);

/** Fill a fieldset with one choice per outcome. */
export function chips(fieldset, name, chosen) {
  for (const outcome of OUTCOMES) {
    const input = make("input", { type: "radio", name, value: outcome, checked: outcome === "all" });
    input.addEventListener("change", () => chosen(outcome));
    fieldset.append(make("label", { className: "chip", "data-outcome": outcome }, input, make("span", {}, outcomeName(outcome))));
  }
}

/** Return the true label in bold, and below it the labels before and after with ✓ or ✗. */
export function labels(truth, before, after) {
  const line = (name, when) => {
    const right = name === truth;
    const sign = make("span", { "aria-hidden": "true" }, right ? "✓ " : "✗ ");
    return make("span", { className: "guess", "data-right": String(right), title: when }, sign, readable(name));
  };
  return make("span", { className: "labels" }, make("b", {}, readable(truth)), line(before, "before"), line(after, "after"));
}
