// One line per feature: its value in the row, and what may become of it.

import { byId, code, el, later, number, svg, told, value } from "./dom.js";
import { figure } from "./curve.js";

const STEPS = 200; // of a slider

/** A feature's line on the page; `changed` is called with "row" or "wish". */
export class Line {
  constructor(feature, at, changed, along) {
    Object.assign(this, { feature, at, changed, along, locked: false, direction: "", low: null, high: null, levels: null });
    this.element = this.#built();
  }

  get fixed() {
    return this.feature.policy.locked !== "";
  }

  /** The value as it is sent; what is no value is sent as it was typed, and refused with a reason. */
  get value() {
    const { feature, input } = this;
    if (input.tagName === "SELECT") return input.value === "" ? null : JSON.parse(input.value);
    const text = input.value.trim();
    if (text === "") return input.validity.badInput ? "?" : null;
    if (feature.kind === "date" || !["real", "integer"].includes(feature.kind)) return text;
    const typed = Number(text);
    return Number.isNaN(typed) ? text : typed;
  }

  set value(given) {
    const { input } = this;
    if (input.tagName === "SELECT") {
      const wanted = given === null ? "" : JSON.stringify(given);
      if (![...input.options].some((one) => one.value === wanted)) input.append(el("option", { value: wanted }, told(given, this.feature)));
      input.value = wanted;
    } else {
      input.value = given === null ? "" : String(given);
    }
    this.drawn();
  }

  /** Put the wishes of this line into constraints. */
  into(constraints) {
    const { name } = this.feature;
    if (this.fixed) return;
    if (this.locked) {
      constraints.immutable.push(name);
      return;
    }
    if (this.direction) constraints[this.direction].push(name);
    if (this.low !== null || this.high !== null) {
      constraints.ranges[name] = [this.low, this.high].map((end) => (end === null ? null : value(end, this.feature)));
    }
    if (this.levels !== null) constraints.levels[name] = this.levels;
  }

  get wishes() {
    return this.locked || this.direction !== "" || this.low !== null || this.high !== null || this.levels !== null;
  }

  clear() {
    Object.assign(this, { locked: false, direction: "", low: null, high: null, levels: null });
    this.shown();
  }

  /** Show what is wrong with the value or the wish; "" takes it away. */
  refused(message, ofValue) {
    this.error.textContent = message;
    this.input.toggleAttribute("aria-invalid", Boolean(message) && ofValue);
    if (message && ofValue) this.input.setAttribute("aria-invalid", "true");
  }

  #built() {
    const { feature } = this;
    const id = `f${this.at}`;
    this.input = this.#input(id);
    this.error = el("p", { class: "error", id: `${id}-error` });
    this.marker = svg("circle", { class: "marker", r: 3.2, cy: 24 });
    const name = el("label", { class: "name", for: id }, feature.label, feature.unit ? el("span", { class: "unit" }, feature.unit) : null);
    this.lock = el("button", { type: "button", class: "lock", "aria-pressed": "false", "aria-label": `Lock ${feature.label}`, title: `Lock ${feature.label}`, click: () => this.#wish({ locked: !this.locked }) }, padlock());
    this.select = this.#directions();
    this.more = el("button", { type: "button", class: "more plain", "aria-expanded": "false", "aria-controls": `${id}-panel`, "aria-label": `Limits and curve of ${feature.label}`, click: () => this.open(this.panel.hidden) }, chevron());
    this.panel = el("div", { id: `${id}-panel`, class: "panel", hidden: true });
    this.summary = el("p", { class: "summary" });
    this.small = feature.bars ? svg("svg", { class: "small", viewBox: "0 0 120 28", "aria-hidden": "true" }, svg("path", { d: feature.bars }), this.marker) : el("span", { class: "small" });
    const line = el("li", { class: "feature", "data-name": feature.name.toLowerCase() + " " + feature.label.toLowerCase() }, name, this.input, this.small, this.lock, this.select, this.more, this.summary, this.error, this.panel);
    queueMicrotask(() => this.shown());
    return line;
  }

  #input(id) {
    const { feature } = this;
    const common = { id, "aria-describedby": `${id}-error`, input: () => this.#valued(), class: "value", form: "options" };
    if (feature.levels.length || feature.kind === "boolean") {
      const levels = feature.levels.length ? feature.levels : [false, true];
      const empty = feature.nullable ? [el("option", { value: "" }, "missing")] : [];
      return el("select", common, ...levels.map((level) => el("option", { value: JSON.stringify(level) }, told(level, feature))), ...empty);
    }
    if (feature.kind === "integer" || feature.kind === "real") return el("input", { ...common, type: "number", step: "any", inputmode: "decimal", placeholder: feature.nullable ? "missing" : "" });
    return el("input", { ...common, type: feature.days ? "date" : "text", placeholder: feature.nullable ? "missing" : "", spellcheck: "false" });
  }

  #directions() {
    const { feature } = this;
    if (!feature.ordered) return el("span", { class: "direction" });
    const options = [["", "up or down"], ["increasing", "only up"], ["decreasing", "only down"]];
    return el("select", { class: "direction", "aria-label": `Direction of ${feature.label}`, change: (event) => this.#wish({ direction: event.target.value }) }, ...options.map(([key, words]) => el("option", { value: key }, words)));
  }

  #valued() {
    this.refused("", true);
    this.drawn();
    if (!this.panel.hidden) this.fill();
    this.changed("row");
  }

  #wish(more) {
    Object.assign(this, more);
    this.refused("", false);
    this.shown();
    this.changed("wish");
  }

  /** Show the wishes as they are. */
  shown() {
    const { feature, fixed } = this;
    const { policy } = feature;
    const locked = fixed || this.locked;
    this.element.classList.toggle("locked", locked);
    this.lock.setAttribute("aria-pressed", String(locked));
    this.lock.disabled = fixed;
    if (this.select.tagName === "SELECT") {
      this.select.disabled = locked || policy.direction !== "";
      this.select.value = policy.direction || this.direction;
    }
    this.summary.textContent = this.#summed().join(" · ");
    this.summary.hidden = !this.summary.textContent;
    if (!this.panel.hidden) this.fill();
  }

  #summed() {
    const { feature, low, high, levels } = this;
    const { policy } = feature;
    const held = [];
    if (policy.locked === "policy") held.push("locked");
    else if (policy.direction) held.push(policy.direction === "increasing" ? "only up" : "only down");
    if (policy.range.some((end) => end !== null)) held.push(between(policy.range, feature));
    if (policy.levels) held.push(`only ${policy.levels.map((one) => told(one, feature)).join(", ")}`);
    held.push(...policy.told);
    if (policy.rules.length) held.push(policy.rules.length === 1 ? "a rule" : `${policy.rules.length} rules`);
    const lines = held.length ? [`Policy: ${held.join(", ")}`] : [];
    if (policy.locked === "constant") lines.push("never changes: the sample has one value");
    if (!this.locked && (low !== null || high !== null)) lines.push(`you allow ${between([low, high], feature)}`);
    if (!this.locked && levels) lines.push(levels.length ? `you allow ${levels.map((one) => told(one, feature)).join(", ")}` : "you allow no level");
    return lines;
  }

  /** Move the marker of the row's value. */
  drawn() {
    const { feature, marker } = this;
    const given = this.value;
    let place = null;
    if (feature.axis) {
      const at = code(given, feature);
      if (at !== null && Number.isFinite(at)) place = 4 + 112 * clamp((at - feature.axis[0]) / (feature.axis[1] - feature.axis[0]));
    } else {
      place = feature.places[feature.levels.findIndex((level) => level === given)] ?? null;
    }
    marker.toggleAttribute("hidden", place === null);
    marker.setAttribute("cx", place ?? -20);
  }

  open(opens) {
    this.panel.hidden = !opens;
    this.more.setAttribute("aria-expanded", String(opens));
    if (opens) this.fill();
  }

  /** Fill the panel: limits, then the curve over the same axis. */
  fill() {
    if (!this.built) {
      this.picture = el("div", { class: "picture" });
      this.built = [this.picture, ...(this.fixed ? [] : this.feature.levels.length ? [this.#boxes()] : this.feature.axis ? [this.#range()] : [])];
      this.panel.replaceChildren(...this.built, ...this.feature.policy.rules.map((rule) => el("p", { class: "rule" }, el("code", {}, rule))));
      this.draws = later(() => this.#curve(), 60);
    }
    this.sync?.();
    this.draws();
  }

  async #curve() {
    if (this.panel.hidden) return;
    this.turn = (this.turn ?? 0) + 1;
    const { turn } = this;
    const found = await this.along(this.feature.name);
    if (turn !== this.turn) return; // a later curve is on its way
    if (found) this.found = found;
    if (this.found) this.picture.replaceChildren(figure(this.found, this.feature, [this.low, this.high], this.picture.clientWidth, this.regression));
  }

  #boxes() {
    const { feature } = this;
    const may = feature.policy.levels;
    const boxes = feature.levels.map((level) => {
      const box = el("input", { type: "checkbox", disabled: may !== null && !may.includes(level), change: () => {
        const chosen = feature.levels.filter((_, place) => boxes[place].checked);
        const all = feature.levels.filter((_, place) => !boxes[place].disabled).length;
        this.#wish({ levels: chosen.length === all ? null : chosen });
      } });
      return box;
    });
    this.sync = () => boxes.forEach((box, place) => {
      box.checked = !box.disabled && (this.levels === null || this.levels.includes(feature.levels[place]));
    });
    const labels = boxes.map((box, place) => el("label", { class: "check" }, box, ` ${told(feature.levels[place], feature)}`));
    return el("fieldset", { class: "levels" }, el("legend", {}, `Allowed ${feature.label}`), ...labels);
  }

  #range() {
    const { feature } = this;
    const [first, last] = feature.axis;
    const [floor, ceiling] = feature.policy.range;
    const step = feature.step || (last - first) / STEPS;
    const ends = ["low", "high"].map((key) => {
      const words = key === "low" ? "At least" : "At most";
      const slider = el("input", { type: "range", min: 0, max: STEPS, step: 1, class: key, "aria-label": `${words}, ${feature.label}`, input: () => {
        const at = Number(slider.value);
        const open = key === "low" ? at === 0 : at === STEPS;
        this.#end(key, open ? null : snapped(first + (at / STEPS) * (last - first), feature, step));
      } });
      const typed = el("input", { type: feature.kind === "date" ? (feature.days ? "date" : "text") : "number", step: "any", "aria-label": `${words}, ${feature.label}, typed`, placeholder: "no limit", change: () => {
        const at = code(typed.value, feature);
        this.#end(key, at === null || !Number.isFinite(at) ? null : at);
      } });
      return { key, words, slider, typed };
    });
    this.sync = () => {
      for (const { key, slider, typed } of ends) {
        const end = this[key];
        slider.value = end === null ? (key === "low" ? 0 : STEPS) : clamp((end - first) / (last - first)) * STEPS;
        slider.setAttribute("aria-valuetext", end === null ? "no limit" : told(value(end, feature), feature));
        if (document.activeElement !== typed) typed.value = end === null ? "" : value(end, feature);
        typed.min = floor ?? "";
        typed.max = ceiling ?? "";
      }
    };
    const sliders = el("div", { class: "sliders" }, ...ends.map(({ slider }) => slider));
    const fields = el("div", { class: "ends" }, ...ends.map(({ words, typed }) => el("label", {}, `${words} `, typed)));
    return el("div", { class: "range" }, sliders, fields);
  }

  /** Set one end inside what the policy allows; the other end gives way. */
  #end(key, end) {
    const [floor, ceiling] = this.feature.policy.range;
    let at = end;
    if (at !== null && floor !== null) at = Math.max(at, floor);
    if (at !== null && ceiling !== null) at = Math.min(at, ceiling);
    const other = key === "low" ? "high" : "low";
    const crossed = at !== null && this[other] !== null && (key === "low" ? at > this[other] : at < this[other]);
    this.#wish({ [key]: at, ...(crossed ? { [other]: at } : {}) });
  }
}

const clamp = (share) => Math.min(Math.max(share, 0), 1);

function snapped(at, feature, step) {
  const start = feature.step ? Math.round(feature.axis[0] / step) * step : feature.axis[0];
  const found = feature.step ? start + Math.round((at - start) / step) * step : at;
  return Number(found.toPrecision(feature.step ? 12 : 4));
}

function between([low, high], feature) {
  const [from, to] = [low, high].map((end) => (end === null ? null : feature.kind === "date" ? value(end, feature) : number(end)));
  if (from === null) return `at most ${to}`;
  return to === null ? `at least ${from}` : `${from} to ${to}`;
}

function padlock() {
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { class: "shackle", d: "M6 9V6.500a4 4 0 0 1 8 0V9" }), svg("rect", { x: 4, y: 9, width: 12, height: 8, rx: 2 }));
}

function chevron() {
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: "M5 7.500l5 5 5-5" }));
}

/** Let a field narrow the list of features to those that it names. */
export function findable(lines) {
  if (lines.length <= 12) return;
  byId("find").hidden = false;
  byId("filter").addEventListener("input", (event) => {
    const sought = event.target.value.trim().toLowerCase();
    for (const line of lines) line.element.hidden = !line.element.dataset.name.includes(sought);
  });
}
