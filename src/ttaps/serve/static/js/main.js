/** Put the page together: what needs no model first, then the model, then the other tabs when they are opened. */

import { AdaptTab } from "./adapt.js";
import { getJson } from "./api.js";
import { find } from "./dom.js";
import { Gallery } from "./gallery.js";
import { Results } from "./results.js";
import { Tabs } from "./tabs.js";
import { themeButton } from "./theme-button.js";

function tell(error) {
  const place = find("#problem");
  place.hidden = !error;
  place.textContent = error?.message ?? "";
}

themeButton(find("#theme"));
const adapt = new AdaptTab(tell);
const gallery = new Gallery(openLive);
const results = new Results(openLive);
const tabs = new Tabs((name) => ({ gallery, results })[name]?.open());
tabs.show();

function openLive(source, about, damage, method) {
  tabs.open("adapt");
  adapt.open(source, about, damage, method);
  scrollTo({ top: 0 });
}

async function loadImages() {
  const [samples, corruptions] = await Promise.all([getJson("/api/samples"), adapt.damage.load()]);
  adapt.samples.fill(samples);
  return corruptions;
}

async function loadModel() {
  const parts = ["model", "map", "methods", "start"].map((name) => getJson(`/api/${name}`));
  const [model, map, methods, start] = await Promise.all(parts);
  const about = `${model.num_prototypes ? `${model.num_prototypes} prototypes, ` : ""}${model.classes.length} classes`;
  find("#model").replaceChildren(Object.assign(document.createElement("b"), { textContent: model.name }), `, ${about}`);
  find("#model").title = `${model.objective}, ${model.fingerprint}, on ${model.device}`;
  find("#version").textContent = `ttaps ${model.version}`;
  return { model, prototypes: map?.prototypes ?? null, methods, start };
}

try {
  const [corruptions, facts] = await Promise.all([loadImages(), loadModel()]);
  adapt.loadModel(facts);
  gallery.fill(facts, corruptions);
  results.fill(facts);
} catch (error) {
  find("#model").textContent = "No model";
  tell(error);
}
