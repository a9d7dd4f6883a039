/** The views that a method draws of the image, in a grid of fixed size. */

import { make } from "./dom.js";
import { png } from "./words.js";

const PLACES = 16;

export class Views {
  constructor(root) {
    this.root = root;
    this.shown = null;
    this.clear();
  }

  clear() {
    this.shown = null;
    this.root.replaceChildren(...Array.from({ length: PLACES }, () => make("span", { className: "empty" })));
    this.root.classList.remove("none");
  }

  /** Show views (base64 PNG); none, once the run is over, says so. */
  show(run) {
    if (!run.views || run.views === this.shown) return;
    this.shown = run.views;
    this.root.classList.remove("skeleton");
    if (!run.views.length) {
      this.clear();
      this.shown = run.views;
      this.root.classList.add("none");
      const why = run.result && !run.result.adapted ? "No views: no step was taken." : "This method draws no views.";
      this.root.append(make("p", {}, why));
      return;
    }
    const images = run.views.map((view, index) => make("img", { src: png(view), alt: index ? "" : `${run.views.length} views of the image`, className: "pixels" }));
    const rest = Array.from({ length: Math.max(0, PLACES - images.length) }, () => make("span", { className: "empty" }));
    this.root.replaceChildren(...images, ...rest);
  }
}
