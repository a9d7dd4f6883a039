/** One adaptation: what arrived so far, and what is shown between two steps. */

import { stream } from "./api.js";

export class Run {
  constructor() {
    this.steps = 0; // planned; fewer may be taken
    this.trace = [];
    this.losses = [];
    this.path = [];
    this.nearest = [];
    this.views = null;
    this.result = null;
    this.info = null;
  }

  /** The last step that has arrived. */
  get last() {
    return Math.max(0, this.trace.length - 1);
  }

  /** Follow the stream of the service and call `moved` after every event. */
  async follow(request, signal, moved) {
    for await (const { event, data } of stream("/api/adapt/stream", request, signal)) {
      this[`on_${event}`]?.(data);
      moved(event);
    }
  }

  on_start(data) {
    this.info = data;
    this.steps = data.steps;
  }

  on_views(data) {
    this.views = data.views;
  }

  on_step(data) {
    this.trace[data.step] = data.probabilities;
    this.losses[data.step] = data.loss;
    this.path[data.step] = data.point;
    this.nearest[data.step] = data.nearest;
  }

  on_done(data) {
    this.result = data;
    this.trace = data.adapted ? data.trace : data.trace.slice(0, 1); // no step was taken, however many were planned
    this.losses = data.losses;
    this.path = data.path ?? [];
    this.nearest = data.nearest ?? [];
    this.views = data.views;
    this.steps = this.last;
  }

  /** Class probabilities at `time`, in steps; between two steps, in between. */
  probabilities(time) {
    const [from, to, share] = this.between(time);
    return this.trace[from].map((value, index) => mix(value, this.trace[to][index], share));
  }

  /** Where z is at `time`; null for a model without prototypes. */
  point(time) {
    const [from, to, share] = this.between(time);
    const [here, there] = [this.path[from], this.path[to]];
    return here && there ? { x: mix(here.x, there.x, share), y: mix(here.y, there.y, share) } : null;
  }

  between(time) {
    const from = Math.min(Math.floor(time), this.last);
    return [from, Math.min(from + 1, this.last), Math.max(0, Math.min(time, this.last) - from)];
  }
}

export const mix = (from, to, share) => from + (to - from) * share;
