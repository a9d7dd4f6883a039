/** The service: JSON there and back, and streams of server-sent events. */

const PATIENCE = 90; // seconds to wait for a model that loads or a service that is busy

/** What the service says went wrong (RFC 9457), in the words of the command line. */
export class Problem extends Error {
  constructor({ title = "", detail = "", status = 0 } = {}) {
    super(detail || title || `The service answered ${status}.`);
    this.status = status;
  }
}

export const gone = (error) => error.name === "AbortError";

export const getJson = async (path, signal) => (await ask(path, { signal })).json();

export const postJson = async (path, body, signal) => (await ask(path, post(body, signal))).json();

/** Yield {event, data} of a stream; with a body it is POSTed, which EventSource cannot do. */
export async function* stream(path, body, signal) {
  const response = await ask(path, body ? post(body, signal) : { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    text = (text + (value ?? "")).replaceAll("\r\n", "\n");
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const message = parseEvent(block);
      if (message?.event === "problem") throw new Problem(message.data);
      if (message) yield message;
    }
    if (done) return;
  }
}

/** Return one server-sent event; null for a comment, which keeps the connection open. */
function parseEvent(block) {
  const fields = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = line.match(/^(\w+): ?(.*)$/) ?? [];
    if (name === "data") fields.data += value;
    else if (name === "event") fields.event = value;
  }
  return fields.data ? { event: fields.event, data: JSON.parse(fields.data) } : null;
}

function post(body, signal) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

/** Fetch; while the model loads (503) or the service is busy (429), wait as long as it asks to and try again. */
async function ask(path, options) {
  const until = performance.now() + 1000 * PATIENCE;
  for (;;) {
    const response = await send(path, options);
    if (response.ok) return response;
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    if (![429, 503].includes(response.status) || !(performance.now() + 1000 * wait < until)) {
      throw new Problem(await response.json().catch(() => ({ status: response.status })));
    }
    await pause(1000 * Math.max(wait, 0.2), options.signal);
  }
}

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (gone(error)) throw error;
    throw new Problem({ detail: "The service does not answer. Is ttaps serve still running?" });
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}
