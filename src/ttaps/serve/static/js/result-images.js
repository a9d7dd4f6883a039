/** The images behind a row of results, filtered by what adaptation did to them; a click adapts to one live. */

import { getJson, gone } from "./api.js";
import { make } from "./dom.js";
import { chips, labels, outcomeName } from "./outcomes.js";
import { png, readable } from "./words.js";

const PAGE = 24;

export class ResultImages {
  constructor(openLive) {
    this.openLive = openLive;
    this.outcome = "all";
    this.abort = new AbortController();
    this.title = make("h2", {}, "Images");
    this.count = make("p", { className: "count", role: "status" });
    this.list = make("ul", { className: "tiles" });
    this.more = make("button", { type: "button", className: "button", hidden: true }, "More");
    const filter = make("fieldset", { className: "chips" }, make("legend", {}, "Show"));
    chips(filter, "results-outcome", (outcome) => this.filter(outcome));
    this.more.addEventListener("click", () => this.load());
    this.root = make("div", { className: "right" }, this.title, filter, this.count, this.list, this.more);
  }

  /** @param {{experiment: string, spec: string, corruption?: string, severity?: number}} row */
  choose(row) {
    this.where = row;
    this.title.textContent = row.corruption ? `${readable(row.corruption)}, severity ${row.severity}` : "All images";
    this.start();
  }

  filter(outcome) {
    this.outcome = outcome;
    this.start();
  }

  start() {
    this.abort.abort();
    this.abort = new AbortController();
    this.list.replaceChildren();
    this.load();
  }

  async load() {
    const { experiment, corruption = "", severity = "" } = this.where;
    const outcome = this.outcome === "all" ? "" : this.outcome;
    const wanted = { experiment, corruption, severity, outcome, offset: this.list.childElementCount, limit: PAGE };
    const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== ""));
    try {
      const { total, rows } = await getJson(`/api/results/rows?${query}`, this.abort.signal);
      this.list.append(...rows.map((row) => this.tile(row)));
      const shown = this.list.childElementCount;
      this.count.textContent = `${shown} of ${total} image${total === 1 ? "" : "s"}`;
      this.more.hidden = shown >= total;
    } catch (error) {
      if (!gone(error)) this.count.textContent = error.message;
    }
  }

  tile(row) {
    const { corruption, severity, image } = row;
    const result = { experiment: this.where.experiment, corruption, severity, image };
    const img = make("img", { alt: "", width: 32, height: 32, className: "pixels" });
    const name = `${readable(row.label)}, ${readable(corruption)} ${severity}: ${outcomeName(row.outcome)}`;
    const button = make("button", { type: "button", disabled: !row.has_image, title: row.has_image ? `${name}. Adapt live` : `${name}. Its data are not on this machine` }, img, labels(row.label, row.before, row.after));
    button.setAttribute("aria-label", button.title);
    if (row.has_image) this.fetchImage(img, result);
    button.addEventListener("click", () => this.openLive({ result }, { url: img.src, label: row.label }, { corruption, severity }, this.where.spec));
    return make("li", { className: "tile", "data-outcome": row.outcome }, button);
  }

  async fetchImage(img, result) {
    try {
      const { image } = await getJson(`/api/results/image?${new URLSearchParams(result)}`, this.abort.signal);
      img.src = png(image);
    } catch (error) {
      if (!gone(error)) img.closest("button").disabled = true;
    }
  }
}
