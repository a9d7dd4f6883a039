/** The embedded images as a group of radio buttons: arrow keys move, one of them is in the order of tabs. */

import { make } from "./dom.js";
import { readable } from "./words.js";

export const sampleUrl = (id) => `/api/samples/${encodeURIComponent(id)}.png`;

export class Samples {
  /** @param {HTMLElement} root @param {(sample: {id: string, label: string}) => void} chosen */
  constructor(root, chosen) {
    this.root = root;
    this.chosen = chosen;
    this.root.addEventListener("keydown", (event) => this.move(event));
  }

  fill(samples) {
    this.samples = samples;
    this.buttons = samples.map((sample) => this.button(sample));
    this.root.replaceChildren(...this.buttons);
    this.buttons[0].tabIndex = 0;
  }

  button(sample) {
    const img = make("img", { src: sampleUrl(sample.id), alt: "", width: 32, height: 32, loading: "lazy", className: "pixels" });
    const name = readable(sample.label);
    const button = make("button", { type: "button", role: "radio", "aria-checked": "false", tabIndex: -1, title: name, "aria-label": name }, img);
    button.addEventListener("click", () => this.chosen(sample));
    return button;
  }

  /** Mark one as chosen, or none of them. */
  mark(id) {
    for (const [index, button] of this.buttons.entries()) {
      const here = String(this.samples[index].id) === String(id);
      button.setAttribute("aria-checked", String(here));
      button.tabIndex = here || (id === undefined && index === 0) ? 0 : -1;
    }
  }

  move(event) {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const here = this.buttons?.indexOf(document.activeElement) ?? -1;
    if (!way || here < 0) return;
    event.preventDefault();
    const next = this.buttons[(here + way + this.buttons.length) % this.buttons.length];
    next.focus();
    next.click();
  }
}
