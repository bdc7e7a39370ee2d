// What the model says along one feature, over the distribution of its values.

import { brief, likely, number, svg, told } from "./dom.js";

const TOP = 14;
const PLOT = 104; // height of the curve
const BARS = 34; // of the distribution below it
const LEFT = 38;
const RIGHT = 12;

/** Return the picture: the curve, where the row is, the threshold, and the limits that are wished for. */
export function figure(found, feature, limits, width, regression) {
  const wide = Math.max(width, 260);
  const height = TOP + PLOT + (feature.axis ? BARS + 30 : 30);
  const scores = found.points.map((one) => one.score).filter((one) => one !== null);
  const picture = svg("svg", { class: "curve", width: wide, height, viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": described(found, feature, regression) });
  const across = feature.axis ? numbers(feature, wide) : levels(found, wide);
  const up = vertical(scores, found.thresholds, regression);
  picture.append(...axis(up, wide), ...distribution(feature, across, wide), ...allowed(limits, across, wide));
  for (const end of found.thresholds) {
    const y = up.place(end);
    picture.append(svg("line", { class: "threshold", x1: LEFT, x2: wide - RIGHT, y1: y, y2: y }));
  }
  picture.append(...(feature.axis ? line(found, across, up) : dots(found, across, up)), ...ticks(found, feature, across, wide));
  const own = found.points[found.own];
  const x = across(own, found.own);
  if (x !== null) {
    picture.append(svg("line", { class: "own", x1: x, x2: x, y1: TOP, y2: TOP + PLOT + (feature.axis ? BARS : 0) }));
    picture.append(svg("circle", { class: "marker", cx: x, cy: up.place(own.score ?? Number(own.met)), r: 5 }));
  }
  return picture;
}

function described(found, feature, regression) {
  const own = found.points[found.own];
  const some = found.points.filter((one) => one.score !== null);
  const what = regression ? "prediction" : "probability of what is wanted";
  const met = found.points.filter((one) => one.met).length;
  const share = `${met} of ${found.points.length} values drawn meet the target`;
  if (!some.length) return `Along ${feature.label}, ${share}.`;
  const least = Math.min(...some.map((one) => one.score));
  const most = Math.max(...some.map((one) => one.score));
  const say = regression ? number : likely;
  return `Along ${feature.label} the ${what} is between ${say(least)} and ${say(most)}, now ${say(own.score ?? NaN)} at ${told(own.value, feature)}; ${share}.`;
}

function numbers(feature, wide) {
  const [low, high] = feature.axis;
  return (one) => (one.at === null ? null : LEFT + (Math.min(Math.max((one.at - low) / (high - low), 0), 1)) * (wide - LEFT - RIGHT));
}

function levels(found, wide) {
  const slot = (wide - LEFT - RIGHT) / found.points.length;
  return (_, place) => LEFT + slot * (place + 0.5);
}

/** Return how scores become heights: from 0 to 1, or from the least to the largest number. */
function vertical(scores, thresholds, regression) {
  const all = [...scores, ...thresholds];
  const [least, most] = regression && all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
  const spread = most > least ? most - least : 1;
  const [low, high] = regression ? [least - spread * 0.05, most + spread * 0.05] : [0, 1];
  return { low, high, marks: regression ? [least, most] : scores.length ? [0, 0.5, 1] : [], place: (score) => TOP + PLOT * (1 - (score - low) / (high - low)) };
}

function* axis(up, wide) {
  for (const mark of up.marks) {
    const y = up.place(mark);
    yield svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y, y2: y });
    yield svg("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, brief(mark));
  }
}

function* distribution(feature, across, wide) {
  if (!feature.bars || !feature.axis) return;
  const share = (wide - LEFT - RIGHT) / 120;
  yield svg("path", { class: "bars", d: feature.bars, transform: `translate(${LEFT} ${TOP + PLOT + 8}) scale(${share} ${(BARS - 8) / 20})` });
}

function* allowed([low, high], across, wide) {
  if (low === null && high === null) return;
  const from = low === null ? LEFT : across({ at: low });
  const to = high === null ? wide - RIGHT : across({ at: high });
  yield svg("rect", { class: "allowed", x: from, y: TOP, width: Math.max(to - from, 2), height: PLOT + BARS });
}

/** Yield the curve in pieces: those that meet the target are drawn stronger. */
function* line(found, across, up) {
  const places = found.points.map((one, place) => [across(one, place), up.place(one.score ?? Number(one.met)), one.met]).filter(([x]) => x !== null);
  let start = 0;
  for (let at = 1; at <= places.length; at += 1) {
    if (at < places.length && places[at][2] === places[start][2]) continue;
    const piece = places.slice(start, Math.min(at + 1, places.length));
    yield svg("polyline", { class: places[start][2] ? "line met" : "line", points: piece.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") });
    start = at;
  }
}

function* dots(found, across, up) {
  for (const [place, one] of found.points.entries()) {
    const [x, y] = [across(one, place), up.place(one.score ?? Number(one.met))];
    yield svg("line", { class: one.met ? "stem met" : "stem", x1: x, x2: x, y1: TOP + PLOT, y2: y });
    yield svg("circle", { class: one.met ? "dot met" : "dot", cx: x, cy: y, r: 4 });
  }
}

function* ticks(found, feature, across, wide) {
  const y = TOP + PLOT + BARS + 18;
  if (feature.axis) {
    const shown = (end) => (feature.kind === "date" ? new Date(end * 86_400_000).toISOString().slice(0, 10) : brief(end));
    yield svg("text", { class: "tick", x: LEFT, y }, shown(feature.axis[0]));
    yield svg("text", { class: "tick", x: wide - RIGHT, y, "text-anchor": "end" }, shown(feature.axis[1]));
    return;
  }
  const room = (wide - LEFT - RIGHT) / found.points.length / 7.2;
  for (const [place, one] of found.points.entries()) {
    const text = told(one.value, feature);
    const cut = text.length > room ? `${text.slice(0, Math.max(room - 1, 1))}…` : text;
    yield svg("text", { class: "tick", x: across(one, place), y: TOP + PLOT + 20, "text-anchor": "middle" }, svg("title", {}, text), cut);
  }
}

