/** The user's own image: chosen, photographed, dropped or pasted. It is sent as it is; the service scales and checks it. */

import { find } from "./dom.js";

/** @param {(source: {image: string}, about: object) => void} take @param {(message: string) => void} refuse */
export function ownImages(take, refuse) {
  const read = (file) => readImage(file).then(([source, about]) => take(source, about), (error) => refuse(error.message));
  for (const id of ["#file", "#camera"]) {
    find(id).addEventListener("change", ({ target }) => {
      if (target.files[0]) read(target.files[0]);
      target.value = ""; // so that the same file can be chosen again
    });
  }
  document.addEventListener("paste", (event) => {
    const file = image(event.clipboardData);
    if (file) read(file);
  });
  dropZone(read, refuse);
}

function dropZone(read, refuse) {
  const zone = find("#drop");
  let depth = 0; // enter and leave come for every element on the way
  const show = (change) => {
    depth = Math.max(0, depth + change);
    zone.hidden = depth === 0;
  };
  document.addEventListener("dragenter", (event) => event.dataTransfer.types.includes("Files") && show(1));
  document.addEventListener("dragleave", (event) => event.dataTransfer.types.includes("Files") && show(-1));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    show(-depth);
    const file = image(event.dataTransfer);
    if (file) read(file);
    else refuse("That was not an image file.");
  });
}

const image = (data) => [...data.files].find((file) => file.type.startsWith("image/"));

async function readImage(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
  return [{ image: url.slice(url.indexOf(",") + 1) }, { url: URL.createObjectURL(file), name: file.name }];
}
