/** Time, in steps: follows the steps as they arrive, plays them again, and goes where the scrubber says. */

import { calm, find, make } from "./dom.js";
import { stepName } from "./words.js";

const WHOLE = 2600; // milliseconds to play all steps, within the bounds below for one of them
const [SHORTEST, LONGEST] = [140, 1100];
const JUMP = 220;

export class Player {
  /** @param {(time: number) => void} show draws everything at a time */
  constructor(show) {
    this.show = show;
    this.time = 0;
    this.target = 0;
    this.steps = 0;
    this.frame = 0;
    this.scrubbed = false;
    this.scrubber = find("#scrubber");
    this.stops = find("#stops");
    this.label = find("#step");
    this.button = find("#play");
    this.scrubber.addEventListener("input", () => this.scrub(this.scrubber.valueAsNumber));
    this.button.addEventListener("click", () => (this.playing ? this.scrub(Math.round(this.time)) : this.replay()));
    this.tell();
  }

  get playing() {
    return this.frame !== 0;
  }

  /** Start over with so many steps to come. */
  reset(steps) {
    this.halt();
    this.time = this.target = 0;
    this.plan(steps);
  }

  plan(steps) {
    this.steps = steps;
    this.scrubber.max = Math.max(1, steps);
    this.scrubber.disabled = this.button.disabled = steps < 1;
    const shown = steps <= 40 ? steps : 0;
    if (this.stops.childElementCount !== shown + 1) {
      this.stops.replaceChildren(...Array.from({ length: shown + 1 }, () => make("span")));
    }
    this.draw();
  }

  /** Walk on to a step that has arrived. */
  reach(step) {
    this.scrubbed = false;
    this.go(step, Math.max(SHORTEST, Math.min(LONGEST, WHOLE / Math.max(1, this.steps))));
  }

  replay() {
    this.time = 0;
    this.reach(this.steps);
  }

  /** Go to a step quickly, however far it is; the thumb stays where it was put. */
  scrub(step) {
    this.scrubbed = true;
    this.go(step, JUMP / Math.max(1, Math.abs(step - this.time)));
  }

  /** Move to a time at so many milliseconds per step; at once for those who want no motion. */
  go(target, pace) {
    this.target = Math.min(target, this.steps);
    this.pace = pace;
    if (calm()) {
      this.halt();
      this.time = this.target;
      this.draw();
    } else if (!this.frame) {
      this.since = performance.now();
      this.frame = requestAnimationFrame((now) => this.tick(now));
      this.tell();
    }
  }

  tick(now) {
    const left = this.target - this.time;
    const way = Math.max(0, now - this.since) / this.pace;
    this.since = now;
    this.time = Math.abs(left) <= way ? this.target : this.time + Math.sign(left) * way;
    this.frame = this.time === this.target ? 0 : requestAnimationFrame((next) => this.tick(next));
    this.draw();
  }

  halt() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  draw() {
    this.show(this.time);
    this.tell();
  }

  tell() {
    const step = Math.round(this.time);
    this.scrubber.value = this.scrubbed ? this.target : step;
    this.scrubber.style.setProperty("--done", this.steps ? this.time / this.steps : 0);
    this.scrubber.setAttribute("aria-valuetext", stepName(step, this.steps));
    this.label.textContent = step ? `step ${step} of ${this.steps}` : "before";
    this.button.classList.toggle("playing", this.playing);
    this.button.setAttribute("aria-label", this.playing ? "Pause" : "Play the steps");
  }
}
