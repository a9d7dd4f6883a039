/** The equal command line and the equal lines of Python, to copy. */

import { make } from "./dom.js";

const DONE = 1600;

/** Show the lines of every lane. @param {HTMLElement} root @param {{spec: string, command: string, python: string}[]} runs */
export function showCode(root, runs) {
  const many = runs.length > 1;
  const title = make("h2", {}, "The same without this page");
  const blocks = runs.flatMap(({ spec, command, python }) => {
    const of = many ? `, ${spec}` : "";
    const file = command.includes(" image.png") ? " (image.png: save it in step 2)" : "";
    return [block(`Command line${of}${file}`, command), block(`Python${of}`, python)];
  });
  root.replaceChildren(title, ...blocks);
}

function block(name, text) {
  const button = make("button", { type: "button", className: "plain copy", "aria-label": `Copy: ${name}` }, "Copy");
  button.addEventListener("click", () => copy(text, button));
  const pre = make("pre", { tabIndex: 0 }, make("code", {}, text));
  return make("figure", {}, make("figcaption", {}, make("span", {}, name), button), pre);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.closest("figure").querySelector("code")); // no permission: select it instead
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => (button.textContent = "Copy"), DONE);
}
