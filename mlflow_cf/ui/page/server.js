// What is asked of the server, as JSON in both directions.

/** What the server refuses: a list of paths and messages. */
export class Refused extends Error {
  constructor(errors) {
    super(errors.map((one) => one.message).join("\n"));
    this.errors = errors;
  }
}

export async function facts() {
  return read(await reached("/facts"));
}

/** Ask a model, by its number, for an answer, curve, survival, row, card or notice. */
export async function ask(model, what, body, signal) {
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  return read(await reached(`/models/${model}/${what}`, sent));
}

async function reached(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused([{ path: "", message: "the server does not answer; start mlflow-cf ui again" }]);
  }
}

async function read(response) {
  const told = await response.json();
  if (!response.ok) throw new Refused(told.errors);
  return told;
}
