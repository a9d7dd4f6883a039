/** The third tab: stored results, as a sortable table; the images behind a row; an HTML report, if that was given instead. */

import { getJson, Problem } from "./api.js";
import { find, make } from "./dom.js";
import { ResultImages } from "./result-images.js";
import { SortableTable } from "./table.js";
import { readable, tenths } from "./words.js";

const COLUMNS = [
  { key: "corruption", name: "Corruption", text: readable },
  { key: "before", name: "Before, %", number: true, text: tenths },
  { key: "after", name: "After, %", number: true, text: tenths },
  { key: "change", name: "Change", number: true, text: (points) => (points > 0 ? "+" : "") + tenths(points) },
  { key: "fixed", name: "Fixed", number: true },
  { key: "broken", name: "Broken", number: true },
  { key: "n", name: "Images", number: true },
  { key: "severity", name: "Severity", number: true },
];

export class Results {
  /** @param {(source: object, about: object) => void} openLive adapts to an image on the first tab */
  constructor(openLive) {
    this.openLive = openLive;
    this.root = find("#results-body");
  }

  /** @param {{model: {results?: boolean}}} facts */
  fill({ model }) {
    this.given = model.results ?? true;
    if (this.wanted) this.load();
  }

  open() {
    this.wanted = true;
    if (this.given !== undefined) this.load();
  }

  async load() {
    if (this.loaded) return;
    this.loaded = true;
    try {
      if (!this.given) throw new Problem({ status: 404 });
      const found = await getJson("/api/results");
      if (found.report) this.showReport(found.report);
      else this.showFolder(found);
    } catch (error) {
      this.loaded = error.status === 404; // it stays so until the service starts anew; anything else may pass
      this.explain(error);
    }
  }

  explain(error) {
    const help = error.status === 404
      ? [
          make("p", {}, "No results were given to this service. Evaluate, then start it with the folder (or with an HTML report):"),
          make("pre", { tabIndex: 0 }, make("code", {}, EXAMPLE)),
          make("p", {}, "Then this tab shows accuracy before and after for every corruption, lists the images that were fixed or broken, and adapts to any of them live."),
        ]
      : [make("p", {}, error.message)];
    this.root.replaceChildren(make("div", { className: "explain" }, ...help));
  }

  showReport(address) {
    find("#results-lead").replaceChildren("The HTML report given on the command line. ", make("a", { href: address, target: "_blank" }, "Open it on its own"));
    const frame = make("iframe", { src: address, title: "Report", className: "report" });
    frame.setAttribute("sandbox", "");
    this.root.replaceChildren(frame);
  }

  showFolder({ folder, experiments, table }) {
    find("#results-lead").replaceChildren("Stored results in ", make("code", {}, folder), ". Choose a row to see its images.");
    const select = make("select", {}, ...experiments.map((one) => make("option", { value: one.id }, title(one))));
    const facts = make("p", { className: "facts" });
    this.images = new ResultImages(this.openLive);
    const spec = (id) => experiments.find((one) => one.id === id).spec;
    const rows = (id) => table.filter(({ experiment }) => experiment === id).map((row) => ({ ...row, spec: spec(id), change: row.after - row.before }));
    const sortable = new SortableTable(COLUMNS, (row) => this.images.choose(row), "Accuracy before and after, by corruption");
    const show = () => {
      const experiment = experiments.find(({ id }) => String(id) === select.value);
      facts.textContent = summary(experiment);
      sortable.fill(rows(experiment.id));
      this.images.choose({ experiment: experiment.id, spec: experiment.spec });
    };
    select.value = (experiments.find(({ spec }) => spec !== "source") ?? experiments[0]).id; // of the model alone there is less to see
    select.addEventListener("change", show);
    const choice = make("label", { className: "field" }, make("span", {}, "Experiment"), select);
    const left = make("div", { className: "left" }, choice, facts, make("div", { className: "wide" }, sortable.root));
    this.root.replaceChildren(make("div", { className: "folder" }, left, this.images.root));
    show();
  }
}

const EXAMPLE = `ttaps evaluate cifar10 --data sample --methods "source,ttaps:tuned" --out results/first
ttaps serve --results results/first`;

const title = ({ spec, model, data }) => `${spec}, ${model} on ${data}`;

function summary({ accuracy_before: before, accuracy_after: after, n, protocol, seed }) {
  return `${n} images: ${tenths(before)} % right before, ${tenths(after)} % after (${protocol}, seed ${seed}).`;
}
