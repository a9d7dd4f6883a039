/** The loss of every step taken, from the first to the last; a dot marks the step shown. Before the first there is no step, so no loss. */

import { draw, set } from "./dom.js";
import { mix } from "./run.js";

const BOX = { left: 30, right: 192, top: 10, bottom: 52 };
const MOST = 10; // numbers below the axis

export class LossChart {
  /** @param {SVGElement} svg its view box is 200 by 72 */
  constructor(svg) {
    this.svg = svg;
    this.line = draw("polyline", { class: "line" });
    this.dot = draw("circle", { class: "now", r: 4, visibility: "hidden" });
    this.high = draw("text", { class: "end", x: BOX.left - 5, y: BOX.top + 4 });
    this.low = draw("text", { class: "end", x: BOX.left - 5, y: BOX.bottom });
    this.empty = draw("text", { class: "empty", x: 111, y: 35 });
    this.steps = draw("g", { class: "steps" });
    const axis = draw("path", { class: "axis", d: `M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}` });
    this.svg.replaceChildren(axis, this.steps, this.line, this.dot, this.high, this.low, this.empty);
  }

  clear() {
    for (const one of [this.high, this.low, this.empty]) one.textContent = "";
    this.line.setAttribute("points", "");
    this.dot.setAttribute("visibility", "hidden");
    this.steps.replaceChildren();
    delete this.steps.dataset.for;
  }

  show(run, time) {
    const known = run.losses.flatMap((loss, step) => (Number.isFinite(loss) ? [{ step, loss }] : []));
    this.empty.textContent = known.length || !run.result ? "" : "no gradient step";
    if (!known.length) {
      set(this.svg, { "aria-label": `Loss at each step: ${this.empty.textContent || "nothing yet"}` });
      return;
    }
    const values = known.map(({ loss }) => loss);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const x = (step) => mix(BOX.left + 8, BOX.right - 4, run.steps > 1 ? (step - 1) / (run.steps - 1) : 0.5);
    const y = (loss) => mix(BOX.bottom - 6, BOX.top + 2, high > low ? (loss - low) / (high - low) : 0.5);
    this.line.setAttribute("points", known.map(({ step, loss }) => `${x(step)},${y(loss)}`).join(" "));
    this.high.textContent = number(high);
    this.low.textContent = high > low ? number(low) : "";
    this.ticks(run.steps, x);
    this.point(known, time, x, y);
    set(this.svg, { "aria-label": `Loss at each step, from ${number(values[0])} to ${number(values.at(-1))}` });
  }

  ticks(steps, x) {
    if (this.steps.dataset.for === String(steps)) return;
    this.steps.dataset.for = steps;
    const every = Math.ceil(Math.max(1, steps) / MOST);
    const shown = Array.from({ length: steps }, (_, index) => index + 1).filter((step) => (step - 1) % every === 0);
    const unit = draw("text", { class: "end", x: BOX.left - 5, y: 66 }, "step");
    this.steps.replaceChildren(unit, ...shown.map((step) => draw("text", { x: x(step), y: 66 }, step)));
  }

  /** Put the dot where the scrubber is; it appears on the way to the first step. */
  point(known, time, x, y) {
    const step = Math.min(Math.max(time, known[0].step), known.at(-1).step);
    const after = known.findIndex((one) => one.step >= step);
    const [one, other] = [known[Math.max(0, after - 1)], known[after]];
    const share = other.step > one.step ? (step - one.step) / (other.step - one.step) : 1;
    set(this.dot, { cx: x(step), cy: y(mix(one.loss, other.loss, share)), visibility: time > 0 ? "visible" : "hidden", opacity: Math.min(1, time) });
  }
}

const number = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
