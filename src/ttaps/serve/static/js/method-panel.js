/** The choice of a method and the form of its settings, made from the JSON schema that the service gives. */

import { find, make } from "./dom.js";
import { baseSettings, bases, flatten, same, writeSpec } from "./spec.js";
import { readable } from "./words.js";

let panels = 0;

export class MethodPanel {
  /**
   * @param {HTMLElement} root the lane
   * @param {object[]} methods what /api/methods answers
   * @param {string} spec the base chosen first
   * @param {() => void} changed called whenever the spec is another one
   * @param {object} own settings of the base that are changed at first
   */
  constructor(root, methods, spec, changed, own = {}) {
    this.select = find(".method", root);
    this.form = find(".settings", root);
    this.button = find(".settings-button", root);
    this.about = find(".about", root);
    this.bases = bases(methods);
    this.changed = changed;
    this.form.id = `settings-${++panels}`;
    this.button.setAttribute("aria-controls", this.form.id);
    fillMethods(this.select, this.bases);
    this.select.addEventListener("change", () => this.choose(this.select.value));
    this.button.addEventListener("click", () => this.toggle());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.button.disabled = this.select.disabled = false;
    this.choose(spec, true, own);
  }

  /** The method with its settings, as the service and the command line read it. */
  get spec() {
    return writeSpec(this.base.spec, this.own);
  }

  /** The value of a setting as it will be used; undefined if the method has none of this name. */
  setting(name) {
    return this.own[name] ?? this.defaults[name];
  }

  offers(spec) {
    return this.bases.some((base) => base.spec === spec && base.method.supported);
  }

  choose(spec, quietly = false, own = {}) {
    this.base = this.bases.find((base) => base.spec === spec) ?? this.bases[0];
    this.select.value = this.base.spec;
    this.defaults = baseSettings(this.base.method, this.base.preset);
    this.own = Object.fromEntries(Object.entries(own).filter(([name, value]) => !same(value, this.defaults[name])));
    this.build();
    if (!quietly) this.changed();
  }

  toggle() {
    this.form.hidden = !this.form.hidden;
    this.button.setAttribute("aria-expanded", String(!this.form.hidden));
  }

  build() {
    const fields = flatten(this.base.method.schema).map(([name, schema]) => this.field(name, schema));
    const none = make("p", { className: "soft" }, "This method has no settings.");
    const reset = make("button", { type: "button", className: "plain reset" }, "Reset");
    reset.addEventListener("click", () => this.choose(this.base.spec));
    this.form.replaceChildren(...(fields.length ? [...fields, reset] : [none]));
    this.mark();
  }

  field(name, schema) {
    const id = `${this.form.id}-${name}`;
    const input = control(schema, this.setting(name), id);
    input.dataset.name = name;
    const message = make("p", { id: `${id}-help`, className: "help" }, schema.description ?? "");
    (input.matches("fieldset") ? input.querySelectorAll("input") : [input]).forEach((one) =>
      one.setAttribute("aria-describedby", message.id),
    );
    input.addEventListener("change", () => this.edit(name, schema, input));
    const title = make(input.matches("fieldset") ? "span" : "label", { className: "name", for: id }, readable(name));
    return make("div", { className: "setting" }, title, input, message);
  }

  edit(name, schema, input) {
    const value = read(schema, input);
    if (value === undefined) return;
    if (same(value, this.defaults[name])) delete this.own[name];
    else this.own[name] = value;
    this.mark();
    this.changed();
  }

  /** Say how many settings differ from the base, and which. */
  mark() {
    const count = Object.keys(this.own).length;
    this.button.textContent = count ? `Settings (${count} changed)` : "Settings";
    for (const input of this.form.querySelectorAll("[data-name]")) {
      input.closest(".setting").classList.toggle("changed", input.dataset.name in this.own);
    }
    const { summary, adapts } = this.base.method;
    const [words] = summary.replace(/^[^:]*: /, "").split(/\.(?: |$)/); // the name is above it
    this.about.replaceChildren(make("code", {}, this.spec), ` ${words[0].toUpperCase()}${words.slice(1)}.`);
    this.about.title = `${summary}\nAdapts: ${adapts}.`;
  }
}

/** Fill a choice with all methods; those that the model does not support are shown, with the reason, but cannot be chosen. */
export function fillMethods(select, choices) {
  const options = choices.map(({ spec, name, method }) => {
    const why = method.supported ? "" : ` (${method.reason})`;
    return make("option", { value: spec, disabled: !method.supported, title: spec + why }, name + (why ? " – not for this model" : ""));
  });
  select.replaceChildren(...options);
}

function control(schema, value, id) {
  if (schema.enum) {
    const options = schema.enum.map((choice) => make("option", { value: choice, selected: choice === value }, String(choice)));
    return make("select", { id }, ...options);
  }
  if (schema.type === "boolean") return make("input", { id, type: "checkbox", checked: value });
  if (schema.type === "array") {
    const ends = value.map((end, place) => number({ value: end, "aria-label": place ? "to" : "from" }, {}));
    return make("fieldset", { id, className: "range" }, ends[0], make("span", {}, "to"), ...ends.slice(1));
  }
  if (schema.type === "string") return make("input", { id, type: "text", value, spellcheck: false });
  return number({ id, value: value ?? "" }, schema);
}

function number(props, { type, minimum = "", maximum = "" }) {
  const step = type === "integer" ? "1" : "any";
  return make("input", { ...props, type: "number", step, min: minimum, max: maximum, required: true, inputMode: "decimal" });
}

/** Return the value of a control; undefined while it is not a number. The service checks the rest and says what is wrong. */
function read(schema, input) {
  if (schema.type === "boolean") return input.checked;
  if (schema.type === "array") {
    const ends = [...input.querySelectorAll("input")].map((end) => end.valueAsNumber);
    return ends.every(Number.isFinite) ? ends : undefined;
  }
  if (schema.type === "string" || schema.enum) return input.value;
  return Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : undefined;
}
