/** The first tab: the image, the damage, one or two methods at work on it, and the time they share. */

import { gone, postJson } from "./api.js";
import { showCode } from "./code.js";
import { Damage } from "./damage.js";
import { calm, debounced, find } from "./dom.js";
import { Lane } from "./lane.js";
import { ownImages } from "./own-image.js";
import { Player } from "./player.js";
import { Samples, sampleUrl } from "./samples.js";
import { methodName } from "./spec.js";
import { Subject } from "./subject.js";
import { readable, winner } from "./words.js";

const SECOND = ["augment:tuned", "source"]; // what to compare with first, if the model supports it

export class AdaptTab {
  /** @param {(error: Error | null) => void} tell shows a problem, or takes it away */
  constructor(tell) {
    this.tell = tell;
    this.subject = new Subject();
    this.spare = find(".lane").cloneNode(true); // before anything is filled in
    this.lanes = [this.lane(find(".lane"))];
    this.player = new Player((time) => this.lanes.forEach((lane) => lane.show(time)));
    this.damage = new Damage(this.subject, (error) => this.fail(error));
    this.samples = new Samples(find("#samples"), (sample) => this.sample(sample));
    this.abort = new AbortController();
    this.subject.addEventListener("image", () => this.showImage());
    this.subject.addEventListener("change", () => this.changed());
    ownImages((source, about) => this.openOwn(source, about), (message) => this.tell(new Error(message)));
    find("#adapt").addEventListener("click", () => this.run());
    find("#auto").addEventListener("change", ({ target }) => target.checked && this.run());
    find(".compare-button").addEventListener("click", () => this.compare());
    this.player.reset(0);
  }

  lane(root) {
    return new Lane(root, () => this.again());
  }

  /** Fill in what the service says of the model, and start with an image on which it does something, unless one is chosen already. */
  loadModel(facts) {
    this.facts = facts;
    this.lanes[0].fill(facts, facts.model.default_method, facts.model.page_settings);
    find(".compare-button").disabled = find("#adapt").disabled = false;
    if (this.subject.about) return this.again();
    const { sample, ...damage } = facts.start;
    Object.assign(this.subject, damage);
    this.sample(this.samples.samples[sample]);
  }

  sample(sample) {
    this.subject.take({ sample: sample.id }, { url: sampleUrl(sample.id), label: sample.label });
  }

  /** Open any image: an own one, a tile of the gallery, a row of the results; the latter two with their method. */
  open(source, about, damage, method) {
    if (method) this.lanes[0].take(method);
    if (damage) Object.assign(this.subject, damage);
    this.subject.take(source, about);
  }

  /** Open an image of the user's own, once the service could read it; else what is shown stays as it is. */
  async openOwn(source, about) {
    try {
      await postJson("/api/corrupt", { ...source, seed: 0 });
    } catch (error) {
      this.tell(new Error(`${about.name}: ${error.message}`));
      return;
    }
    this.open(source, about);
  }

  showImage() {
    const { url, label, name } = this.subject.about;
    const img = find("#clean");
    img.src = url;
    img.alt = label ? `The image: ${readable(label)}` : `The image: ${name}`;
    img.hidden = false;
    img.parentElement.classList.remove("skeleton");
    img.classList.toggle("own", Boolean(this.subject.source.image));
    find("#image-label").textContent = label ? `true label: ${readable(label)}` : name;
    this.samples.mark(this.subject.source.sample);
  }

  async changed() {
    if ((await this.damage.show()) && find("#auto").checked) this.run();
    else this.stale();
  }

  again = debounced(() => (find("#auto").checked ? this.run() : this.stale()), 150);

  /** What is shown is of another image or method: fade it, and say so by the button. */
  stale() {
    find("#adapt").classList.add("wanted");
    find("#lanes").classList.add("stale");
  }

  /** Adapt in every lane at the same time; a run that is still going is stopped. */
  async run() {
    if (!this.facts || !this.subject.about) return;
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    this.tell(null);
    find("#announce").textContent = "";
    find("#winner").textContent = "\u00a0";
    find("#adapt").classList.remove("wanted");
    find("#lanes").classList.remove("stale");
    find("#adapt").setAttribute("aria-busy", "true");
    this.started = false;
    const ended = await Promise.all(this.lanes.map((lane) => this.follow(lane, signal)));
    if (signal.aborted) return;
    find("#adapt").removeAttribute("aria-busy");
    if (ended.every(Boolean)) this.finish();
  }

  async follow(lane, signal) {
    const run = lane.begin();
    const request = { ...this.subject.request, method: lane.spec, seed: 0 };
    try {
      await run.follow(request, signal, () => this.moved(lane, run));
      return true;
    } catch (error) {
      if (!gone(error)) {
        lane.clear();
        if (this.lanes.every(({ run }) => !run)) this.player.reset(0); // there are no steps to go through
        this.fail(error);
      }
      return false;
    }
  }

  moved(lane, run) {
    if (!lane.accept(run)) return;
    const longest = Math.max(...this.lanes.map(({ next }) => next?.steps ?? 0));
    if (!this.started) this.player.reset(longest);
    this.started = true;
    this.player.plan(longest);
    this.player.reach(Math.max(...this.lanes.map((one) => (one.run === one.next ? one.run?.last ?? 0 : 0))));
  }

  finish() {
    showCode(find("#code"), this.lanes.map(({ run }) => run.result));
    const parts = this.lanes.map((lane) => {
      const { label, label_before: before } = lane.run.result;
      return `${lane.panel.base.name}: ${lane.summary()} Before: ${readable(before)}, now: ${readable(label)}.`;
    });
    if (this.lanes.length > 1) parts.unshift((find("#winner").textContent = this.winner()));
    find("#announce").textContent = parts.join(" ");
  }

  /** Say in a line which of the two methods does better on this image. */
  winner() {
    const ways = [({ panel }) => methodName(panel.base.method), ({ panel }) => panel.base.name, ({ spec }) => spec];
    const names = ways.map((way) => this.lanes.map(way)).find(([one, other], index) => one !== other || index === 2);
    return winner(...this.lanes.map(({ run }, index) => ({ ...run.result, name: names[index] })));
  }

  fail(error) {
    find("#adapt").removeAttribute("aria-busy");
    this.tell(error);
  }

  /** Show a second lane beside the first, or take it away. */
  compare() {
    const button = find(".compare-button");
    const two = this.lanes.length === 1;
    if (two) this.addLane();
    else this.lanes.pop().root.remove();
    find("#pipeline").classList.toggle("two", two);
    find("#winner").hidden = !two;
    button.setAttribute("aria-pressed", String(two));
    button.textContent = two ? "Stop comparing" : "Compare two methods";
    if (two) find("#lanes").scrollIntoView({ block: "nearest", behavior: calm() ? "auto" : "smooth" }); // if they do not fit
    this.again();
  }

  addLane() {
    const root = this.spare.cloneNode(true);
    find(".compare-button", root).remove();
    find("#lanes").append(root);
    const lane = this.lane(root);
    const known = this.facts.methods.filter(({ supported }) => supported).map(({ name }) => name);
    lane.fill(this.facts, SECOND.find((spec) => known.includes(spec.split(":")[0])) ?? known[0]);
    this.lanes.push(lane);
  }
}
