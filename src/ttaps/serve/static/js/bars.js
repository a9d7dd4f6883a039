/** Class probabilities before and now. Classes keep their places, so that only the bars move. */

import { classColor } from "./colors.js";
import { make } from "./dom.js";
import { percent, readable } from "./words.js";

const MOST = 10;

export class Bars {
  /** @param {HTMLElement} list @param {(name: string) => void} pointed called with the class pointed at, or "" */
  constructor(list, pointed) {
    this.list = list;
    this.pointed = pointed;
  }

  fill(classes) {
    this.classes = classes;
    this.list.classList.remove("skeleton");
    this.shown = null;
    this.rows = [];
    this.list.replaceChildren(...classes.slice(0, MOST).map((name) => this.row(name)));
  }

  row(name) {
    const now = make("span", { className: "now" });
    now.style.setProperty("--color", classColor(this.classes.indexOf(name)));
    const was = make("span", { className: "was" });
    const value = make("span", { className: "value" }, "–");
    const before = make("span", { className: "hidden" });
    const truth = make("span", { className: "truth", hidden: true, title: "true label" }, make("span", { "aria-hidden": "true" }, "✓"), make("span", { className: "hidden" }, "true label"));
    const label = make("span", { className: "name" }, make("span", { className: "text" }, readable(name)), truth);
    const track = make("span", { className: "track" }, now, was);
    const row = make("li", {}, label, track, value, before);
    row.addEventListener("pointerenter", () => this.pointed(name));
    row.addEventListener("pointerleave", () => this.pointed(""));
    this.rows.push({ name, row, now, was, value, before, truth });
    return row;
  }

  /** With many classes, show those that are ever probable. */
  choose(run) {
    if (this.classes.length <= MOST) return;
    const most = this.classes.map((name, index) => ({ name, peak: Math.max(...run.trace.map((row) => row[index])) }));
    const names = most.sort((one, other) => other.peak - one.peak).slice(0, MOST).map(({ name }) => name);
    const shown = this.classes.filter((name) => names.includes(name));
    if (String(shown) === String(this.shown)) return;
    this.shown = shown;
    this.rows = [];
    this.list.replaceChildren(...shown.map((name) => this.row(name)));
  }

  clear() {
    for (const { row, now, was, value, before, truth } of this.rows) {
      row.classList.remove("best");
      for (const one of [now, was]) one.style.setProperty("--share", 0);
      value.textContent = "–";
      before.textContent = "";
      truth.hidden = true;
    }
    this.list.classList.add("waiting");
  }

  show(run, time, trueLabel) {
    this.list.classList.remove("waiting");
    this.choose(run);
    const current = run.probabilities(time);
    const top = this.classes[current.indexOf(Math.max(...current))];
    for (const { name, row, now, was, value, before, truth } of this.rows) {
      const index = this.classes.indexOf(name);
      now.style.setProperty("--share", current[index] || 0);
      was.style.setProperty("--share", run.trace[0][index] || 0);
      value.textContent = percent(current[index]);
      before.textContent = `, before ${percent(run.trace[0][index])}`;
      row.classList.toggle("best", name === top);
      truth.hidden = name !== trueLabel;
    }
  }
}
