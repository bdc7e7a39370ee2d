// Elements, numbers and texts. All text is set as text: nothing that a model or a user names can become HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** Return a new element: properties are attributes, functions are listeners, null and false are left out. */
export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same inside of a picture. */
export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return HTML that the server has rendered and escaped. */
export function rendered(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

const spoken = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Return a number as it is read. */
export const number = (value) => (Math.abs(value) >= 1e15 ? String(value) : spoken.format(value));

/** Return a number where there is little room. */
export const brief = (value) => (Math.abs(value) >= 1e5 ? spoken.format(Math.round(value)) : short.format(value));

/** Return a probability with two decimals; 0.00 and 1.00 would say more than is known. */
export function likely(value) {
  if (value > 0 && value < 0.005) return "< 0.01";
  if (value < 1 && value > 0.995) return "> 0.99";
  return value.toFixed(2);
}

/** Return a value of a feature as it is read. */
export function told(value, feature) {
  if (value === null || value === undefined) return "missing";
  if (value === true) return "yes";
  if (value === false) return "no";
  const text = typeof value === "number" && feature?.levels?.length !== undefined && !feature.levels.length ? number(value) : String(value);
  return feature?.unit && typeof value === "number" ? `${text} ${feature.unit}` : text;
}

const DAY = 86_400_000;

/** Return the number behind a value of a feature: itself, or of a date its days since 1970; null: there is none. */
export function code(value, feature) {
  if (value === null || value === undefined || value === "") return null;
  if (feature.kind !== "date") return Number(value);
  const moment = Date.parse(/T|Z/.test(value) || value.length > 10 ? value : `${value}T00:00:00Z`);
  return Number.isNaN(moment) ? null : moment / DAY;
}

/** Return the value behind a number. */
export function value(code, feature) {
  if (feature.kind !== "date") return code;
  const text = new Date(Math.round(code * DAY)).toISOString();
  return text.endsWith("T00:00:00.000Z") ? text.slice(0, 10) : text;
}

/** Return what calls a function once a while has passed without another call. */
export function later(work, milliseconds) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
