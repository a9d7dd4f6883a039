/** The second tab: the embedded images under every corruption, with their labels before and after. */

import { gone, stream } from "./api.js";
import { fillCorruptions } from "./damage.js";
import { find, make } from "./dom.js";
import { fillMethods } from "./method-panel.js";
import { sampleUrl } from "./samples.js";
import { bases } from "./spec.js";
import { chips, labels, outcomeName } from "./outcomes.js";
import { png, readable } from "./words.js";

export class Gallery {
  /** @param {(source: object, about: object, damage: object, method: string) => void} openLive adapts to an image on the first tab */
  constructor(openLive) {
    this.openLive = openLive;
    this.root = find("#gallery-rows");
    this.method = find("#gallery-method");
    this.corruption = find("#gallery-corruption");
    this.abort = new AbortController();
    this.wanted = false;
    chips(find("#gallery-outcome"), "gallery-outcome", (outcome) => this.filter(outcome));
    for (const choice of [this.method, this.corruption]) choice.addEventListener("change", () => this.load());
  }

  fill({ model, methods }, corruptions) {
    fillMethods(this.method, bases(methods));
    this.method.value = model.default_method;
    this.corruptions = corruptions;
    this.offer(corruptions.map(({ name }) => name));
    this.method.disabled = this.corruption.disabled = false;
    this.ready = true;
    if (this.wanted) this.load();
  }

  /** The tab is shown: start, unless it has been. Nothing is computed for a gallery nobody looks at. */
  open() {
    if (this.ready && !this.wanted) this.load();
    this.wanted = true;
  }

  async load() {
    this.abort.abort();
    this.abort = new AbortController();
    this.counts = { all: 0, fixed: 0, broken: 0, right_before: 0, right_after: 0 };
    this.rows = new Map();
    this.places = [];
    this.root.replaceChildren();
    const query = new URLSearchParams({ method: this.method.value });
    if (this.corruption.value) query.set("corruption", this.corruption.value);
    try {
      for await (const { event, data } of stream(`/api/gallery?${query}`, null, this.abort.signal)) {
        if (event === "start") this.layOut(data);
        else if (event === "tile") this.put(data);
      }
    } catch (error) {
      if (!gone(error)) find("#gallery-count").textContent = error.message;
    }
  }

  /** Make room for all tiles at once, so that nothing moves when they arrive. */
  layOut({ corruptions, columns, total }) {
    this.total = total;
    for (const name of corruptions) this.row(name, columns);
    if (!this.corruption.value) this.offer(corruptions);
    this.count();
  }

  /** Offer only the corruptions that the gallery has. */
  offer(names) {
    const known = this.corruptions.filter(({ name }) => names.includes(name));
    fillCorruptions(this.corruption, known, make("option", { value: "" }, "all"));
  }

  row(name, columns = 0) {
    const empty = Array.from({ length: columns }, () => make("li", { className: "tile skeleton" }));
    const list = make("ul", { className: "tiles" }, ...empty);
    const tally = make("p", { className: "tally" }, "\u00a0");
    const head = make("div", { className: "row-head" }, make("h2", {}, readable(name)), tally);
    this.root.append(make("section", { className: "row" }, head, list));
    const row = { list, empty, tally, fixed: 0, broken: 0 };
    this.rows.set(name, row);
    return row;
  }

  put(tile) {
    const row = this.rows.get(tile.corruption) ?? this.row(tile.corruption);
    const item = this.tile(tile);
    const empty = row.empty.shift();
    if (empty) empty.replaceWith(item);
    else row.list.append(item);
    row.fixed += tile.outcome === "fixed";
    row.broken += tile.outcome === "broken";
    row.tally.textContent = `${row.fixed} fixed, ${row.broken} broken`;
    this.counts.all += 1;
    this.counts.fixed += tile.outcome === "fixed";
    this.counts.broken += tile.outcome === "broken";
    this.counts.right_before += tile.label_before === tile.label;
    this.counts.right_after += tile.label_after === tile.label;
    this.count();
  }

  tile(tile) {
    const img = make("img", { src: png(tile.image), alt: "", width: 32, height: 32, className: "pixels" });
    const lines = labels(tile.label, tile.label_before, tile.label_after);
    const name = `${readable(tile.label)}, ${readable(tile.corruption)}: ${outcomeName(tile.outcome)}. Adapt live`;
    const button = make("button", { type: "button", "aria-label": name, title: name }, img, lines);
    button.addEventListener("click", () => this.openLive(
      { sample: tile.id },
      { url: sampleUrl(tile.id), label: tile.label },
      { corruption: tile.corruption, severity: tile.severity },
      this.method.value,
    ));
    return make("li", { className: "tile", "data-outcome": tile.outcome }, button);
  }

  count() {
    const { all, fixed, broken, right_before: before, right_after: after } = this.counts;
    const part = all < this.total ? `${all} of ${this.total} so far` : `${all} images`;
    find("#gallery-count").textContent = `${part}: ${fixed} fixed, ${broken} broken; right ${before} before, ${after} after.`;
  }

  filter(outcome) {
    this.root.dataset.show = outcome;
  }
}
