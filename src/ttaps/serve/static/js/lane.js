/** One method at work on the image: its settings, views, map, loss and answer. Two lanes stand side by side to compare. */

import { Bars } from "./bars.js";
import { methodColor } from "./colors.js";
import { find } from "./dom.js";
import { LossChart } from "./loss.js";
import { PrototypeMap } from "./map.js";
import { MethodPanel } from "./method-panel.js";
import { Run } from "./run.js";
import { Views } from "./views.js";
import { percent, readable, stepName, verdict } from "./words.js";

export class Lane {
  /** @param {HTMLElement} root @param {() => void} changed called when the method or a setting is another one */
  constructor(root, changed) {
    this.root = root;
    this.changed = changed;
    this.run = null;
    this.map = new PrototypeMap(find(".map", root));
    this.bars = new Bars(find(".bars", root), (name) => this.map.highlight(name));
    this.loss = new LossChart(find(".loss svg", root));
    this.views = new Views(find(".views", root));
    this.verdict = find(".verdict", root);
  }

  /** Fill in what the service says of the model. */
  fill({ model, prototypes, methods }, spec, own = {}) {
    this.classes = model.classes;
    this.map.fill(prototypes, model.classes);
    this.bars.fill(model.classes);
    this.panel = new MethodPanel(this.root, methods, spec, () => this.choose(), own);
    this.choose(true);
  }

  get spec() {
    return this.panel.spec;
  }

  choose(quietly = false) {
    this.root.style.setProperty("--accent", methodColor(this.spec));
    this.root.setAttribute("aria-label", `Adaptation by ${this.panel.base.name}`);
    if (!quietly) this.changed();
  }

  /** Choose a method from elsewhere, unless it is chosen already or not offered as it is. */
  take(spec) {
    if (spec === this.spec || !this.panel.offers(spec)) return;
    this.panel.choose(spec, true);
    this.choose(true);
  }

  /** Start over for a new image or method; what is shown stays until the first answer is there, so that nothing flickers. */
  begin() {
    this.next = new Run();
    return this.next;
  }

  /** Take over a run as soon as it has something to show. */
  accept(run) {
    if (run !== this.next || this.run === run || !run.trace.length) return this.run === run;
    this.run = run;
    this.map.clear();
    this.loss.clear();
    return true;
  }

  /** Empty everything, when there is no answer for this image. */
  clear() {
    this.run = null;
    this.map.clear();
    this.loss.clear();
    this.bars.clear();
    this.views.clear();
    for (const place of [".label-was", ".label-now"]) find(place, this.root).textContent = "\u00a0";
    this.say("", "");
  }

  /** Show everything at `time`, in steps. */
  show(time) {
    if (!this.run?.trace.length) return;
    const own = Math.min(time, this.run.last);
    const truth = this.run.info?.true_label ?? null;
    this.map.show(this.run, own);
    this.bars.show(this.run, own, truth);
    this.loss.show(this.run, own);
    this.views.show(this.run);
    this.answer(own, truth);
  }

  answer(time, truth) {
    const before = best(this.run.trace[0], this.classes);
    const now = best(this.run.probabilities(time), this.classes);
    this.label(".label-was", before, truth);
    this.label(".label-now", now, truth);
    const over = this.run.result && time >= this.run.last;
    const words = over ? this.summary() : `${capital(stepName(Math.floor(time), this.run.steps))} …`;
    this.say(words, over ? this.run.result.outcome ?? "" : "");
  }

  label(place, { name, share }, truth) {
    const element = find(place, this.root);
    const sign = truth === null ? "" : name === truth ? "✓ " : "✗ ";
    element.textContent = name === null ? "no prediction" : `${sign}${readable(name)} ${percent(share)}`;
    element.dataset.right = truth === null ? "" : String(name === truth);
  }

  say(words, outcome) {
    find(".words", this.verdict).textContent = words || "\u00a0";
    this.verdict.dataset.outcome = outcome;
  }

  /** What came of it, in a sentence. */
  summary() {
    return verdict(this.run.result, this.panel.setting("confidence_threshold") ?? 1);
  }
}

function best(probabilities, classes) {
  const share = Math.max(...probabilities);
  return { name: Number.isFinite(share) ? classes[probabilities.indexOf(share)] : null, share };
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
