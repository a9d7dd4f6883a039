/** Numbers and names as people read them. */

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * share)} %` : "–");

export const tenths = (value) => (Number.isFinite(value) ? value.toFixed(1) : "–");

export const readable = (name) => (name ?? "").replaceAll("_", " ");

export const png = (base64) => `data:image/png;base64,${base64}`;

export const stepName = (step, steps) => (step === 0 ? "before adaptation" : `after step ${step} of ${steps}`);

const OUTCOMES = {
  fixed: "Fixed: wrong before, right now.",
  broken: "Broken: right before, wrong now.",
  changed: "Still wrong: wrong before, and wrong in another way now.",
};

/**
 * Say plainly what adaptation did to the label.
 * @param {object} result what the service answers when it is done
 * @param {number} threshold the method's confidence threshold; 1 if it has none
 */
export function verdict(result, threshold) {
  if (result.label === null) return "No prediction: the steps were too large. Take a smaller lr.";
  const sure = !result.adapted && threshold < 1 && result.probability_before >= threshold;
  if (sure) {
    const right = result.true_label ? (result.true_label === result.label ? ", and right" : ", but wrong") : "";
    return `Unchanged: it was already sure (at least ${percent(threshold)})${right}, so no step was taken.`;
  }
  if (OUTCOMES[result.outcome]) return OUTCOMES[result.outcome];
  const same = result.label === result.label_before;
  if (!result.adapted) return "No adaptation: the model as it was trained.";
  if (result.outcome === "unchanged") {
    const right = result.true_label === result.label;
    return `Unchanged: ${right ? "right" : "wrong"} before and now.`;
  }
  return same ? "Unchanged: the label stays the same." : "Changed: another label than before.";
}
