// The OpenAPI document for people: every route with its parameters, its body, its answers, and a form to try it.
const EXAMPLES = {
  Subject: { sample: 3, corruption: "fog", severity: 5 },
  AdaptRequest: { sample: 3, corruption: "fog", severity: 5, method: "ttaps:tuned", seed: 0 },
  BatchRequest: { subjects: [{ sample: 3 }, { sample: 4, corruption: "snow" }], method: "augment:tuned" },
};

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${typeOf(schema.items) || "anything"}`;
  return schema.type ?? "anything";
}

function rows(head, lines) {
  const table = element("table", "", element("tr", "", ...head.map((text) => element("th", text))));
  table.append(...lines.map((line) => element("tr", "", ...line.map((text) => element("td", text)))));
  return table;
}

function route(path, verb, operation) {
  const box = element("details", "", element("summary", "", element("code", `${verb.toUpperCase()} ${path}`)));
  const about = operation.description ?? operation.summary ?? "";
  const first = about.split(/[.:;](?:\s|$)/)[0];
  box.firstChild.append(element("span", first)); // so that a reader finds a route without opening all of them
  if (about.length > first.length + 1) box.append(element("p", about));
  const parameters = operation.parameters ?? [];
  const inputs = parameters.map((parameter) => {
    const input = element("input");
    input.setAttribute("aria-label", parameter.name);
    return [parameter, input];
  });
  if (inputs.length) {
    const table = rows(["parameter", "type", "value"], []);
    for (const [parameter, input] of inputs)
      table.append(
        element("tr", "", element("td", parameter.name), element("td", typeOf(parameter.schema)), element("td", "", input)),
      );
    box.append(table);
  }
  let body = null;
  const content = operation.requestBody?.content;
  if (content) {
    const kind = typeOf(content["application/json"].schema);
    box.append(element("p", `Body: ${kind} as ${Object.keys(content).join(" or ")}`));
    body = element("textarea", JSON.stringify(EXAMPLES[kind] ?? {}, null, 1));
    body.setAttribute("aria-label", "body");
    box.append(body);
  }
  const button = element("button", "Try it");
  const output = element("pre");
  output.hidden = true;
  button.addEventListener("click", () => send(path, verb, inputs, body, output));
  const answers = Object.entries(operation.responses).map(([status, answer]) => [
    status,
    answer.description,
    typeOf(Object.values(answer.content ?? {})[0]?.schema),
  ]);
  box.append(button, output, rows(["status", "meaning", "answer"], answers));
  return box;
}

async function send(path, verb, inputs, body, output) {
  let url = path;
  const query = new URLSearchParams();
  for (const [parameter, input] of inputs) {
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(parameter.name, input.value);
  }
  if (query.size) url += `?${query}`;
  output.hidden = false;
  output.textContent = "…";
  const sent = body ? { body: body.value, headers: { "content-type": "application/json" } } : {};
  const answer = await fetch(url, { method: verb.toUpperCase(), ...sent });
  output.textContent = `${answer.status} ${answer.headers.get("content-type")}\n`;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read())
    if (output.textContent.length < 20000) output.textContent += part.value;
}

const api = await (await fetch("/openapi.json")).json();
document.getElementById("summary").textContent = api.info.summary;
for (const [path, verbs] of Object.entries(api.paths))
  for (const [verb, operation] of Object.entries(verbs))
    document.getElementById("routes").append(route(path, verb, operation));
for (const [name, schema] of Object.entries(api.components.schemas)) {
  const required = schema.required ?? [];
  const fields = Object.entries(schema.properties ?? {}).map(([field, own]) => [
    field + (required.includes(field) ? " *" : ""),
    typeOf(own),
    own.description ?? "",
  ]);
  const box = element("details", "", element("summary", name));
  box.append(element("p", schema.description), rows(["field", "type", ""], fields));
  document.getElementById("schemas").append(box);
}
