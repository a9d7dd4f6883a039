/** Making and finding elements. Styles are set through properties, never as attributes: the page's CSP forbids inline style. */

const SVG = "http://www.w3.org/2000/svg";

export const find = (selector, root = document) => root.querySelector(selector);

/** Make an HTML element; `props` are its properties, `aria-…`, `data-…` and `role` its attributes. */
export function make(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (/^(aria|data)-|^(role|for|list|scope)$/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Make an SVG element with attributes. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

/** Call `action` once calls have paused for `wait` milliseconds. */
export function debounced(action, wait) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait);
  };
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
