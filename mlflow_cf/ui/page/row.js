// The row: chosen from a list, pasted, or changed value by value.

import { byId, el, likely } from "./dom.js";
import { ask, Refused } from "./server.js";

/** Fill the list of rows, and call `take` with the row that is chosen or pasted. */
export function chooser(rows, model, take) {
  const chosen = byId("chosen");
  if (rows.length) {
    byId("chooser").hidden = false;
    chosen.append(...rows.map((one, place) => el("option", { value: place }, described(one, place, model))));
    const go = (place) => {
      chosen.value = place;
      take(rows[place].row);
    };
    chosen.addEventListener("change", () => go(Number(chosen.value)));
    byId("previous").addEventListener("click", () => go((Number(chosen.value) + rows.length - 1) % rows.length));
    byId("next").addEventListener("click", () => go((Number(chosen.value) + 1) % rows.length));
  }
  byId("read").addEventListener("click", () => read(take));
}

function described(one, place, model) {
  const said = model.regression ? Number(one.prediction).toPrecision(4) : one.prediction;
  const sure = one.probability === null ? "" : `, ${likely(one.probability)}`;
  return `Row ${place + 1}: ${said}${sure}`;
}

async function read(take) {
  const [pasted, note, error] = ["pasted", "pasted-note", "pasted-error"].map(byId);
  note.textContent = error.textContent = "";
  pasted.removeAttribute("aria-invalid");
  try {
    const told = await ask(0, "row", { text: pasted.value });
    note.textContent = ["Taken.", ...told.notes.map((line) => `Note: ${line}.`)].join(" ");
    take(told.row);
  } catch (problem) {
    if (!(problem instanceof Refused)) throw problem;
    pasted.setAttribute("aria-invalid", "true");
    error.textContent = problem.errors.map(({ path, message }) => `${path.replace(/^rows\./, "")}: ${message}`).join("\n");
  }
}
