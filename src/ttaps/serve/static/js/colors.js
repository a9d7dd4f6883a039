/** Colors of the project's figures (report/figures/style.py): one per class, one per method. The values are in base.css. */

const NAMED = 10;
const METHODS = ["source", "augment", "ttaps", "ttt", "mt3", "memo", "tent", "bn", "t3a", "lame", "sar", "eata", "cotta"];

/** Return the color of class number `index`; beyond the palette of the figures, hues that are far apart. */
export function classColor(index) {
  return index < NAMED ? `var(--class-${index})` : `hsl(${Math.round((index * 137.508) % 360)} 55% 52%)`;
}

/** Return the color of the method that a spec names. */
export function methodColor(spec) {
  const name = spec.split(/[:[]/)[0];
  return METHODS.includes(name) ? `var(--method-${name})` : "var(--soft)";
}
