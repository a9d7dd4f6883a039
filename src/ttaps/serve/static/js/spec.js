/** A method with its settings as one string, `ttaps:tuned[steps=6,views.scale=[0.5,1]]`, as the command line reads it. */

/** Return the settings of a JSON schema as a flat map, dotted name to its schema, nested objects opened. */
export function flatten(schema, prefix = "") {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) =>
    field.type === "object" ? flatten(field, `${prefix}${name}.`) : [[prefix + name, field]],
  );
}

/** Return the settings that a method's base (`ttaps`, `ttaps:tuned`) starts from, by dotted name. */
export function baseSettings(method, preset) {
  const defaults = Object.fromEntries(flatten(method.schema).map(([name, field]) => [name, field.default]));
  return { ...defaults, ...(method.preset_settings[preset] ?? {}) };
}

/** Write a spec: the base, and the settings that differ from it. */
export function writeSpec(base, changed) {
  const parts = Object.entries(changed).map(([name, value]) => `${name}=${writeValue(value)}`);
  return parts.length ? `${base}[${parts.join(",")}]` : base;
}

export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Return every base that the methods offer, in order: each method and its presets, but for those that change nothing. */
export function bases(methods) {
  return methods.flatMap((method) => {
    const own = (preset) => !same(baseSettings(method, preset), baseSettings(method, ""));
    return ["", ...method.presets.filter(own)].map((preset) => ({ spec: preset ? `${method.name}:${preset}` : method.name, name: methodName(method) + (preset && `, ${PRESETS[preset] ?? preset}`), method, preset }));
  });
}

const PRESETS = { paper: "as published", reference: "as in the authors' code", fast: "one large step", tuned: "tuned" };

/** Return the name of a method in words: its summary begins with it, but "source" is a word of the field only. */
export const methodName = ({ name, summary }) => (name === "source" ? "Unadapted model" : summary.split(/[:(]/)[0].trim());

function writeValue(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return /^[A-Za-z_][\w.+-]*$/.test(value) ? value : JSON.stringify(value);
}
