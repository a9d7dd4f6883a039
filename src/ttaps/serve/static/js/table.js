/** A table sorted by the column whose heading is pressed. */

import { make } from "./dom.js";

export class SortableTable {
  /**
   * @param {{key: string, name: string, number?: boolean, text?: (value: any) => string}[]} columns
   * @param {(row: object) => void} chosen called with the row that is chosen
   */
  constructor(columns, chosen, caption) {
    this.columns = columns;
    this.chosen = chosen;
    this.sort = { key: columns[0].key, way: 1 };
    this.body = make("tbody");
    this.heads = columns.map((column) => this.head(column));
    const head = make("thead", {}, make("tr", {}, ...this.heads));
    this.root = make("table", { className: "sortable" }, make("caption", { className: "hidden" }, caption), head, this.body);
  }

  head({ key, name, number }) {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      const way = this.sort.key === key ? -this.sort.way : number ? -1 : 1; // numbers: the largest first
      this.sort = { key, way };
      this.show();
    });
    return make("th", { scope: "col", "data-key": key, className: number ? "number" : "" }, button);
  }

  fill(rows) {
    this.rows = rows;
    this.current = null;
    this.show();
  }

  show() {
    const { key, way } = this.sort;
    for (const head of this.heads) {
      const here = head.dataset.key === key;
      head.setAttribute("aria-sort", here ? (way > 0 ? "ascending" : "descending") : "none");
    }
    const sorted = [...this.rows].sort((one, other) => way * compare(one[key], other[key]));
    this.body.replaceChildren(...sorted.map((row) => this.row(row)));
  }

  row(row) {
    const cells = this.columns.map(({ key, number, text = String }, index) => {
      if (index) return make("td", { className: number ? "number" : "" }, text(row[key]));
      const button = make("button", { type: "button", className: "link" }, text(row[key]));
      return make("th", { scope: "row" }, button);
    });
    const element = make("tr", { "aria-selected": String(row === this.current) }, ...cells);
    element.addEventListener("click", () => {
      this.current = row;
      for (const other of this.body.children) other.setAttribute("aria-selected", String(other === element));
      this.chosen(row);
    });
    return element;
  }
}

const compare = (one, other) => (typeof one === "number" ? one - other : String(one).localeCompare(String(other)));
