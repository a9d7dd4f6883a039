/** Numbers and names as people read them. */

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * share)}\u00a0%` : "–");

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
    return `Unchanged: already sure (at least ${percent(threshold)})${right}; no step taken.`;
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

/** Say which of two methods does better on an image that both started from the same label for. */
export function winner(one, other) {
  const says = ({ name, label, probability }) => `${name} says ${label === null ? "nothing" : `${readable(label)} (${percent(probability)})`}`;
  const truth = one.true_label;
  const [better, worse] = other.label === truth ? [other, one] : [one, other];
  if (one.label === other.label) {
    const [high, low] = [one, other].sort((first, second) => second.probability - first.probability);
    const [most, least] = [percent(high.probability), percent(low.probability)];
    const surer = most === least ? "equally sure" : `${high.name} is surer, ${most} against ${least}`;
    return `Both say ${readable(one.label) || "nothing"}${truth ? (one.label === truth ? ", which is right" : ", which is wrong") : ""}; ${surer}.`;
  }
  if (!truth) return `${says(one)}, ${says(other)}; which is right is not known.`;
  if (better.label !== truth) return `Neither is right: ${says(one)}, ${says(other)}.`;
  const inside = (method) => method.name.replace("Unadapted model", "the unadapted model");
  if (one.label_before === truth) return `${worse.name} breaks it, ${inside(better)} does not.`;
  return `${better.name} fixes it, ${inside(worse)} does not.`;
}
