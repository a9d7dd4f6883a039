/** The corruption, its severity, and the image as the network sees it. */

import { getJson, gone, postJson } from "./api.js";
import { debounced, find, make } from "./dom.js";
import { png, readable } from "./words.js";

const GROUPS = { noise: "Noise", blur: "Blur", weather: "Weather", digital: "Digital", extra: "Extra" };

/** Fill a choice with all corruptions, by group. */
export function fillCorruptions(select, corruptions, ...first) {
  const groups = [...new Set(corruptions.map(({ group }) => group))].map((group) => {
    const names = corruptions.filter((one) => one.group === group);
    const options = names.map(({ name }) => make("option", { value: name }, readable(name)));
    return make("optgroup", { label: GROUPS[group] ?? readable(group) }, ...options);
  });
  select.replaceChildren(...first, ...groups);
}

export class Damage {
  /** @param {import("./subject.js").Subject} subject @param {(error: Error) => void} fail */
  constructor(subject, fail) {
    this.subject = subject;
    this.fail = fail;
    this.select = find("#corruption");
    this.slider = find("#severity");
    this.img = find("#damaged");
    this.abort = new AbortController();
    this.select.addEventListener("change", () => this.changed());
    this.slider.addEventListener("input", () => this.slid());
    subject.addEventListener("image", () => this.match());
  }

  async load() {
    this.corruptions = await getJson("/api/corruptions");
    fillCorruptions(this.select, this.corruptions);
    this.select.disabled = false;
    return this.corruptions;
  }

  /** Show the subject's own settings, after something else has changed them. */
  match() {
    this.select.value = this.subject.corruption;
    this.slider.value = this.subject.severity;
    this.select.disabled = this.slider.disabled = this.subject.fixed;
    find("#damage-caption").textContent = this.subject.fixed ? "As stored; its damage cannot be changed." : "All that the network sees.";
    this.number();
  }

  slid() {
    this.number();
    this.later();
  }

  later = debounced(() => this.changed(), 60); // a drag over all severities asks for the last of them only

  changed() {
    this.subject.damage(this.select.value, this.slider.valueAsNumber);
  }

  number() {
    const severity = this.slider.valueAsNumber;
    find("#severity-value").textContent = severity || "0, none";
    this.slider.style.setProperty("--done", severity / 5);
  }

  /** Ask the service for the damaged image and show it; return whether it is still wanted. */
  async show() {
    this.abort.abort();
    this.abort = new AbortController();
    try {
      const { image, size } = await postJson("/api/corrupt", { ...this.subject.request, seed: 0 }, this.abort.signal);
      this.put(image, size);
      return true;
    } catch (error) {
      if (!gone(error)) this.fail(error);
      return false;
    }
  }

  put(image, size) {
    this.img.src = find("#save").href = png(image); // what the equal command line reads
    find("#save").hidden = false;
    this.img.hidden = false;
    this.img.parentElement.classList.remove("skeleton");
    const { severity, corruption, fixed } = this.subject;
    const what = fixed || !severity ? "" : `: ${readable(corruption)} ${severity}`;
    this.img.alt = `The image as the network sees it${what}`;
    find("#damage-size").textContent = `${size[0]} × ${size[1]} pixels`;
  }
}
