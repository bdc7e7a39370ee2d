// The page: row -> wishes -> question -> answers.

import { column, prediction } from "./answers.js";
import { byId, el, later } from "./dom.js";
import { chooser } from "./row.js";
import { ask, facts, Refused } from "./server.js";
import { findable, Line } from "./wishes.js";

const page = { models: [], lines: [], sent: null, asking: null, predicting: 0 };
const WAIT_MS = 250;
const PATIENCE = 40; // so often a busy model is asked again
const CONTROLS = ["count", "max_changes", "explainer", "time_limit_s", "certify", "region", "levers", "target"];

async function start() {
  const known = await facts();
  page.models = known.models;
  const [model] = page.models;
  byId("title").textContent = page.models.map((one) => one.name).join("  and  ");
  document.title = `What if: ${model.name}`;
  const wanted = `Wanted: ${model.target}`;
  byId("about").textContent = [wanted, `${model.features.length} features`, model.provable ? "answers can be proved" : "answers are checked, not proved"].join(" · ");
  page.lines = model.features.map((feature, at) => new Line(feature, at, changed, along));
  for (const line of page.lines) line.regression = model.regression;
  byId("features").append(...page.lines.map((line) => line.element));
  findable(page.lines);
  byId("options").append(...options(model));
  byId("live").checked = page.models.every((one) => one.opened);
  byId("notice").hidden = !model.may.reasons;
  listen();
  chooser(known.rows, model, take);
  const first = Math.max(known.rows.findIndex((one) => one.prediction !== null), 0);
  take(known.rows.length ? known.rows[first].row : Object.fromEntries(model.features.map((one) => [one.name, one.typical])));
}

function listen() {
  byId("options").addEventListener("submit", (event) => {
    event.preventDefault();
    explain({ show: true });
  });
  byId("options").addEventListener("change", () => changed("wish"));
  byId("free").addEventListener("click", () => {
    for (const line of page.lines) line.clear();
    changed("wish");
  });
  byId("copy").addEventListener("click", copy);
  for (const kind of ["card", "notice"]) byId(kind).addEventListener("click", () => keep(kind));
}

/** The options below the wishes, each with a place for what is wrong with it. */
function options(model) {
  const { limits, may } = model;
  const choice = (id, words, entries) => field(id, words, el("select", { id }, ...entries.map(([key, text]) => el("option", { value: key }, text))));
  const amount = (id, words, more) => field(id, words, el("input", { id, type: "number", inputmode: "decimal", ...more }));
  const fields = [
    amount("count", "Answers", { min: 1, max: limits.count, step: 1, value: Math.min(3, limits.count) }),
    amount("max_changes", "Most changes", { min: 1, step: 1, placeholder: limits.max_changes ?? "any number", max: limits.max_changes }),
    choice("explainer", "Explainer", model.explainers.map((name, place) => [place ? name : "", place ? name : `${name} (default)`])),
    amount("time_limit_s", "Time limit, s", { min: 0, step: "any", placeholder: limits.time_limit_s, max: limits.time_limit_s }),
  ];
  if (may.levers) fields.push(choice("levers", "Levers", [["", "no"], ["1", "single ones"], ["2", "also pairs"]]));
  const proves = model.provable || model.certified;
  const check = (id, words, more) => field(id, "", el("label", { class: "check" }, el("input", { type: "checkbox", id, ...more }), ` ${words}`));
  fields.push(check("certify", proves ? "Prove that nothing is nearer" : "Prove it (this model is not opened)", { disabled: !proves || model.certified, checked: model.certified }));
  if (may.regions) fields.push(check("region", "Show where each answer holds", {}));
  return fields;
}

function field(id, words, control) {
  const input = control.matches("label") ? control.querySelector("input") : control;
  input.setAttribute("aria-describedby", `${id}-error`);
  const label = words ? el("label", { for: id }, words) : null;
  return el("div", { class: words ? "field" : "field wide" }, label, control, el("p", { class: "error", id: `${id}-error` }));
}

/** Take a row: every value into its line. */
function take(row) {
  for (const line of page.lines) {
    line.value = row[line.feature.name] ?? null;
    line.refused("", true);
    if (!line.panel.hidden) line.fill();
  }
  changed("row");
}

const records = () => [Object.fromEntries(page.lines.map((line) => [line.feature.name, line.value]))];

/** The request in the form of MLflow, as it is sent. */
function request() {
  const constraints = { immutable: [], increasing: [], decreasing: [], ranges: {}, levels: {} };
  for (const line of page.lines) line.into(constraints);
  const typed = byId("max_changes").value;
  if (typed !== "") constraints.max_changes = Number(typed);
  const kept = Object.fromEntries(Object.entries(constraints).filter(([, held]) => typeof held !== "object" || Object.keys(held).length));
  const asked = { count: Number(byId("count").value || 1) };
  if (Object.keys(kept).length) asked.constraints = kept;
  if (byId("explainer").value) asked.explainer = byId("explainer").value;
  if (byId("time_limit_s").value !== "") asked.time_limit_s = Number(byId("time_limit_s").value);
  if (byId("levers")?.value) asked.levers = Number(byId("levers").value);
  if (byId("certify").checked && !byId("certify").disabled) asked.certify = true;
  if (byId("region")?.checked) asked.region = true;
  return { dataframe_records: records(), params: { counterfactual: asked } };
}

const soon = later(() => explain({}), 220);
const predictSoon = later(predict, 120);

/** Something was changed: the prediction follows, and where it is wished for the answers, too. */
function changed(what) {
  if (what === "row") predictSoon();
  if (page.sent === null) return;
  if (byId("live").checked) soon();
  else status("Something was changed since; ask again.");
}

async function predict() {
  const body = { dataframe_records: records(), params: { counterfactual: { explain: "none" } } };
  page.predicting += 1;
  const turn = page.predicting;
  try {
    const reply = await ask(0, "answer", body);
    if (turn !== page.predicting) return; // something was changed since
    byId("prediction").replaceChildren(...prediction(reply, page.models[0]));
  } catch (problem) {
    shown(problem);
  }
}

/** Ask for the curve of a feature; nothing comes of a row that is not valid yet. */
async function along(feature) {
  try {
    return await ask(0, "curve", { dataframe_records: records(), feature });
  } catch (problem) {
    shown(problem);
    return null;
  }
}

async function explain({ show = false }) {
  const body = request();
  page.asking?.abort();
  const asking = new AbortController();
  page.asking = asking;
  cleared();
  page.sent = body;
  byId("answers").setAttribute("aria-busy", "true");
  const begun = performance.now();
  try {
    const replies = await Promise.all(page.models.map((_, number) => answered(number, body, asking.signal)));
    const others = await Promise.all(replies.map((reply, number) => judged(reply, 1 - number, asking.signal)));
    if (asking.signal.aborted) return;
    byId("columns").classList.toggle("two", replies.length > 1);
    byId("columns").replaceChildren(...replies.map((reply, number) => column(reply, page.models[number], others[number])));
    byId("prediction").replaceChildren(...prediction(replies[0], page.models[0]));
    byId("seconds").textContent = `${Math.round(performance.now() - begun)} ms`;
    status(summed(replies, others));
    byId("request").textContent = JSON.stringify(body, null, 1);
    for (const id of ["keep", "sent"]) byId(id).hidden = false;
    if (show && byId("answers").getBoundingClientRect().top > window.innerHeight * 0.7) byId("answers").scrollIntoView({ block: "start" });
  } catch (problem) {
    if (problem.name === "AbortError") return;
    byId("columns").replaceChildren();
    byId("seconds").textContent = "";
    status("There is no answer: see what is marked.");
    shown(problem);
  } finally {
    if (page.asking === asking) byId("answers").setAttribute("aria-busy", "false");
  }
}

/** Ask a version; what the second one refuses stands in its column, and keeps no answer of the first one back. */
async function answered(number, body, signal) {
  try {
    let reply = await ask(number, "answer", body, signal);
    for (let again = 0; reply.record.status === "busy" && again < PATIENCE; again += 1) {
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS)); // what was asked before is still being searched
      signal.throwIfAborted();
      reply = await ask(number, "answer", body, signal);
    }
    return reply;
  } catch (problem) {
    if (number === 0 || !(problem instanceof Refused)) throw problem;
    return { refused: problem.errors };
  }
}

/** Return what the other version says of the answers of one; null where there is one version alone. */
async function judged(reply, other, signal) {
  if (page.models.length < 2) return null;
  const { name } = page.models[other];
  const rows = reply.refused ? [] : reply.record.counterfactuals.map((found) => found.row);
  if (!rows.length) return { name, answers: [] };
  try {
    return { name, ...(await ask(other, "survival", { dataframe_records: records(), counterfactuals: rows }, signal)) };
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    return { name, answers: rows.map(() => ({ valid: false, probability: null, broken: [], fault: problem.message })) };
  }
}

function summed(replies, others) {
  const count = replies[0].record.counterfactuals.length;
  const said = count === 1 ? "1 answer" : count ? `${count} answers` : replies[0].word;
  if (!others[0] || !count) return `${said}.`;
  const holding = others[0].answers.filter((one) => one.valid && !one.fault && !one.broken.length).length;
  return `${said}; ${holding} of ${count} hold under ${others[0].name}.`;
}

const status = (text) => (byId("status").textContent = text);

function cleared() {
  byId("error").textContent = "";
  for (const id of CONTROLS) {
    const place = byId(`${id}-error`);
    if (place) place.textContent = "";
    byId(id)?.removeAttribute("aria-invalid");
  }
  for (const line of page.lines) line.refused("", false);
}

/** Show what the server refuses at the controls that it is about; what has none stands below the button. */
function shown(problem) {
  if (problem.name === "AbortError") return;
  if (!(problem instanceof Refused)) throw problem;
  const rest = [];
  for (const { path, message } of problem.errors) if (!placed(path, message)) rest.push(path ? `${path}: ${message}` : message);
  byId("error").textContent = rest.join("\n");
}

function placed(path, message) {
  const control = CONTROLS.find((id) => path === id || path === `constraints.${id}` || path.startsWith(`${id}.`) || path.startsWith(`${id}[`));
  if (control && byId(`${control}-error`)) {
    byId(`${control}-error`).textContent = message;
    byId(control).setAttribute("aria-invalid", "true");
    return true;
  }
  const value = path.match(/^rows(?:\[\d+\])?\.(.*)$/s);
  const wish = path.match(/^constraints\.\w+\.(.*)$/s);
  const named = value?.[1] ?? wish?.[1];
  const line = page.lines.find((one) => named !== undefined && (named === one.feature.name || named.startsWith(`${one.feature.name}.`)));
  line?.refused(message, Boolean(value));
  return Boolean(line);
}

async function copy() {
  const text = JSON.stringify(page.sent);
  try {
    await navigator.clipboard.writeText(text);
    status("The request is copied.");
  } catch {
    byId("sent").open = true;
    getSelection().selectAllChildren(byId("request"));
    status("The browser does not let the page copy: the request is selected below.");
  }
}

async function keep(kind) {
  try {
    const found = await ask(0, kind, page.sent);
    const address = URL.createObjectURL(new Blob([found.text], { type: "text/html" }));
    el("a", { href: address, download: found.name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } catch (problem) {
    shown(problem);
  }
}

start().catch((problem) => {
  byId("title").textContent = "The model could not be loaded";
  byId("error").textContent = problem.message;
});
