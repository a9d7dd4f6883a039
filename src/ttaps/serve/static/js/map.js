/** The prototype map: prototypes as dots colored by class, z walking among them, its nearest prototypes lit up. */

import { classColor } from "./colors.js";
import { draw, set } from "./dom.js";
import { readable } from "./words.js";

const MARGIN = 5;
const LABEL_HEIGHT = 4.4;
const MARK = 1.6;

export class PrototypeMap {
  /** @param {SVGElement} svg its view box is 100 by 100 */
  constructor(svg) {
    this.svg = svg;
    this.classes = [];
    this.lit = [];
    this.wanted = "";
  }

  /** Draw what never moves. Without prototypes the map says so. */
  fill(prototypes, classes) {
    this.classes = classes;
    this.svg.classList.remove("skeleton");
    this.svg.replaceChildren();
    this.prototypes = (prototypes ?? []).map((one) => ({ ...one, ...place(one) }));
    if (!this.prototypes.length) {
      this.svg.append(draw("text", { x: 50, y: 50, class: "empty" }, "This model has no prototypes."));
      set(this.svg, { "aria-label": "This model has no prototypes." });
      return;
    }
    this.dots = this.prototypes.map((one, index) => this.dot(one, index));
    this.rays = draw("g", { class: "rays" });
    this.path = draw("polyline", { class: "path" });
    this.marks = draw("g", { class: "marks" });
    this.start = draw("circle", { class: "start", r: 1.5, visibility: "hidden" });
    this.z = draw("g", { class: "z", visibility: "hidden" }, draw("circle", { r: 2 }), draw("text", { y: 0.85 }, "z"));
    const dots = draw("g", { class: "dots" }, ...this.dots);
    this.svg.append(dots, this.rays, this.path, this.marks, this.names(), this.start, this.z);
  }

  dot({ x, y, confidence, class: name }, index) {
    const color = classColor(this.classes.indexOf(name));
    const title = `Prototype ${index}: ${readable(name)}${confidence ? `, ${Math.round(100 * confidence)} %` : ""}`;
    const dot = draw("circle", { cx: x, cy: y, r: 1.05, "data-class": name }, draw("title", {}, title));
    dot.style.fill = color;
    return dot;
  }

  /** Return the names of the classes, each below its largest island, moved apart where they would overlap. */
  names() {
    const labels = this.classes.map((name) => ({ name, ...middle(this.prototypes.filter((one) => one.class === name)) }));
    const shown = apart(labels.filter(({ x }) => x !== undefined));
    this.labels = shown.length > 20 ? [] : shown;
    return draw("g", { class: "names", "aria-hidden": "true" }, ...this.labels.map(({ name, x, y }) =>
      draw("text", { x, y, "data-class": name }, readable(name))));
  }

  /** Forget the last image. */
  clear() {
    if (!this.dots) return;
    this.light([]);
    this.marks.replaceChildren();
    this.path.setAttribute("points", "");
    for (const one of [this.start, this.z]) one.setAttribute("visibility", "hidden");
    set(this.svg, { "aria-label": "Prototype map: waiting for an image" });
  }

  /** Show a run at `time`, in steps. */
  show(run, time) {
    const here = this.dots && run.point(time);
    if (!here) return;
    const points = run.path.map(place);
    const now = place(here);
    const done = points.slice(0, Math.floor(time) + 1);
    this.path.setAttribute("points", [...done, now].map(({ x, y }) => `${x},${y}`).join(" "));
    this.marks.replaceChildren(...stepMarks(done, now, this.labels));
    set(this.start, { cx: points[0].x, cy: points[0].y, visibility: time > 0 ? "visible" : "hidden" });
    set(this.z, { transform: `translate(${now.x} ${now.y})`, visibility: "visible" });
    this.light(run.nearest[Math.min(Math.round(time), run.last)] ?? []);
    this.aim(now);
    this.describe(run, Math.round(time));
  }

  light(nearest) {
    if (nearest === this.lit) return;
    this.lit.forEach((index) => set(this.dots[index], { class: "", r: 1.05 }));
    this.lit = nearest;
    this.lit.forEach((index) => set(this.dots[index], { class: "lit", r: 1.6 }));
    this.rays.replaceChildren(...this.lit.map((index) => {
      const { x, y } = this.prototypes[index];
      return draw("line", { x2: x, y2: y });
    }));
  }

  aim({ x, y }) {
    for (const ray of this.rays.children) set(ray, { x1: x, y1: y });
  }

  describe(run, step) {
    const counts = {};
    for (const index of this.lit) counts[this.prototypes[index].class] = (counts[this.prototypes[index].class] ?? 0) + 1;
    const list = Object.entries(counts).sort((one, other) => other[1] - one[1]).map(([name, count]) => `${count} ${readable(name)}`);
    const text = `Prototype map, step ${step}: the ${this.lit.length} prototypes nearest to the image are ${list.join(", ")}`;
    if (text !== this.wanted) set(this.svg, { "aria-label": (this.wanted = text) });
  }

  /** Let one class stand out; an empty name shows all of them again. */
  highlight(name) {
    this.svg.classList.toggle("picking", Boolean(name));
    for (const one of this.svg.querySelectorAll("[data-class]")) {
      one.classList.toggle("picked", Boolean(name) && one.dataset.class === name);
    }
  }
}

const place = ({ x, y }) => ({ x: MARGIN + (100 - 2 * MARGIN) * x, y: MARGIN + (100 - 2 * MARGIN) * y });

/** Return the steps taken as numbered marks, but for those that would cover z, the start, an earlier one or the name of a class. */
export function stepMarks(points, z, labels = []) {
  const shown = [z, points[0]];
  for (const [step, { x, y }] of points.entries()) {
    const covers = (name) => Math.abs(name.x - x) < name.name.length + MARK && Math.abs(name.y - 1 - y) < LABEL_HEIGHT / 2 + MARK;
    const isFree = shown.every((one) => Math.hypot(one.x - x, one.y - y) > 2 * MARK);
    if (isFree && !labels.some(covers)) shown.push({ step, x, y });
  }
  return shown.slice(2).map(({ step, x, y }) =>
    draw("g", { transform: `translate(${x} ${y})` }, draw("circle", { r: MARK }), draw("text", { y: 0.8 }, step)));
}

/** Return the point below the densest part of some points; nothing for none. */
function middle(points) {
  const near = (one) => points.filter((other) => Math.hypot(one.x - other.x, one.y - other.y) < 9);
  const best = points.map(near).sort((one, other) => other.length - one.length)[0];
  if (!best) return {};
  const mean = (key) => best.reduce((sum, one) => sum + one[key], 0) / best.length;
  const bottom = Math.max(...best.map(({ y }) => y));
  return { x: Math.max(10, Math.min(90, mean("x"))), y: Math.min(98.5, bottom + LABEL_HEIGHT) };
}

/** Move labels apart, up and down, until none covers another. */
function apart(labels) {
  const sorted = [...labels].sort((one, other) => one.y - other.y);
  for (const [index, label] of sorted.entries()) {
    for (const above of sorted.slice(0, index)) {
      const width = 1.15 * (label.name.length + above.name.length);
      const covers = Math.abs(label.x - above.x) < width && Math.abs(label.y - above.y) < LABEL_HEIGHT;
      if (covers) label.y = above.y + LABEL_HEIGHT;
    }
  }
  return sorted;
}
