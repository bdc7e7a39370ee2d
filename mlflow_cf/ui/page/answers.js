// Answers: cards, the reason where there is none, levers as a matrix, and what another version says of them.

import { el, likely, number, rendered } from "./dom.js";

const WORDS = { found: "works alone", implied: "a smaller set works", infeasible: "cannot (proved)", not_found: "nothing found", budget: "not searched to the end" };
const SIGNS = { found: "●", implied: "○", infeasible: "×", not_found: "?", budget: "…" };

/** Return what a model says of the row, in one line. */
export function prediction(reply, model) {
  const { record } = reply;
  const said = model.regression && typeof record.prediction === "number" ? number(record.prediction) : reply.predicted;
  const parts = [el("span", { class: "label" }, "Prediction "), el("strong", {}, said ?? "none")];
  if (record.probability !== null) {
    parts.push(el("span", { class: "label" }, " probability of what is wanted "), el("strong", {}, likely(record.probability)));
    parts.push(meter(record.probability, reply.threshold));
  }
  return parts;
}

function meter(probability, threshold) {
  const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("i", { class: "full" }));
  bar.firstChild.style.width = `${100 * probability}%`;
  if (threshold !== null) {
    const mark = el("i", { class: "mark" });
    mark.style.left = `${100 * threshold}%`;
    bar.append(mark);
  }
  return bar;
}

/** Return the answers of one model as a column; `other` tells what the other version says of each, if there is one. */
export function column(reply, model, other) {
  if (reply.refused) return el("div", { class: "column" }, el("h3", { class: "version" }, model.name), el("p", { class: "error" }, reply.refused.map(({ path, message }) => `${path}: ${message}`).join("\n")));
  const { record } = reply;
  const parts = [];
  if (other) parts.push(el("h3", { class: "version" }, model.name), el("p", { class: "prediction" }, ...prediction(reply, model)));
  parts.push(el("p", {}, el("b", { class: `status ${record.status}` }, reply.word)));
  if (record.reason) parts.push(el("ul", { class: "reason", lang: model.language }, ...record.reason.split("; ").map((line) => el("li", { dir: "auto" }, line))));
  parts.push(...reply.answers.map((html, place) => answer(html, place, other, model.language)));
  if (record.levers.length) parts.push(levers(record.levers, model));
  return el("div", { class: "column" }, ...parts);
}

function answer(html, place, other, language) {
  const card = el("article", { class: "cf-card", lang: language, "aria-label": `Answer ${place + 1}` });
  card.append(rendered(html));
  const survived = other?.answers?.[place];
  return el("div", { class: "mlflow-cf answer" }, card, survived ? survival(survived, other.name) : null);
}

/** Return whether an answer holds under the other version. */
function survival(one, name) {
  const sure = one.probability === null || one.probability === undefined ? "" : ` (${likely(one.probability)})`;
  const broken = one.broken.length ? `; against its ${one.broken.join(", ")}` : "";
  const holds = one.valid && !one.fault && !one.broken.length;
  const words = one.fault ? `cannot be judged by ${name}: ${one.fault}` : one.valid ? `holds under ${name}${sure}${broken}` : `does not hold under ${name}${sure}${broken}`;
  return el("p", { class: holds ? "survival holds" : "survival" }, el("span", { "aria-hidden": "true" }, holds ? "✓ " : "✗ "), words);
}

/** Return sets of one or two features as a matrix; each cell is a set, those on the diagonal are single features. */
function levers(sets, model) {
  const label = (name) => model.features.find((one) => one.name === name)?.label ?? name;
  const key = (features) => [...features].sort().join("\n");
  const groups = sets.filter((one) => one.features.length && !sets.some((two) => two !== one && two.features.length < one.features.length && two.features.every((name) => one.features.includes(name))));
  const known = new Map(sets.map((one) => [key(one.features), one]));
  const pairs = sets.length > groups.length;
  if (!pairs) groups.sort((one, two) => Number(two.status === "found") - Number(one.status === "found"));
  const names = groups.map((one) => one.features);
  const titles = names.map((some) => some.map(label).join(" + "));
  const head = pairs ? el("thead", {}, el("tr", {}, el("td"), ...titles.map((title) => el("th", { scope: "col" }, el("span", {}, title))))) : null;
  const rows = names.map((some, at) => {
    const cells = pairs ? names.slice(0, at + 1).map((others) => known.get(key(new Set([...some, ...others])))) : [known.get(key(some))];
    return el("tr", {}, el("th", { scope: "row" }, titles[at]), ...cells.map(cell), ...(pairs ? [] : [el("td", { class: "words" }, cells[0]?.text || "")]));
  });
  const legend = el("p", { class: "soft legend" }, ...[...new Set(sets.map((one) => one.status))].flatMap((status) => [el("span", { class: `lever ${status}`, "aria-hidden": "true" }, SIGNS[status] ?? ""), ` ${WORDS[status] ?? status}  `]));
  const table = el("table", { class: "levers" }, head, el("tbody", {}, ...rows));
  return el("section", { class: "matrix" }, el("h3", {}, "What can do it alone"), el("div", { class: "scrolls", role: "region", "aria-label": `Levers of ${model.name}`, tabindex: "0" }, table), legend);
}

function cell(one) {
  if (!one) return el("td");
  const words = one.text || WORDS[one.status] || one.status;
  return el("td", { class: `lever ${one.status}`, title: words }, el("span", { "aria-hidden": "true" }, SIGNS[one.status] ?? ""), el("span", { class: "hidden" }, words));
}
