"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const root = document.documentElement;

  // The page follows the system until somebody presses the button; nothing is stored.
  const theme = at("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  theme.hidden = false;
  name();

  // In a sandboxed frame, as MLflow's artifact viewer is one, a page may not even follow links within itself.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && at(link.hash.slice(1));
    if (!target) return;
    event.preventDefault();
    target.scrollIntoView();
    target.tabIndex = -1;
    target.focus({ preventScroll: true });
  });

  const data = JSON.parse(at("data").textContent);
  const list = at("list");
  const rows = [...list.querySelectorAll("details.row")];
  const kinds = ["status", "proof", "group", "feature"];
  const texts = [];
  const form = at("filters");
  for (const kind of kinds) {
    const select = at("by-" + kind);
    data.names[kind].forEach((label, number) => select.add(new Option(label.replaceAll("_", " ").slice(0, 60), number)));
    select.parentElement.hidden = data.names[kind].length < 2;
  }

  const text = (number) => (texts[number] ??= rows[number].textContent.toLowerCase());
  const fits = (number, words, chosen) => {
    const facts = data.rows[number];
    const kept = chosen.every((wanted, place) => wanted === "" || facts[place].includes(+wanted));
    return kept && words.every((word) => text(number).includes(word));
  };
  const show = () => {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = kinds.map((kind) => at("by-" + kind).value);
    let shown = 0;
    rows.forEach((row, number) => { row.hidden = !fits(number, words, chosen); shown += !row.hidden; });
    const all = `${rows.length.toLocaleString("en")} rows`;
    at("shown").textContent = shown === rows.length ? all : `${shown.toLocaleString("en")} of ${all}`;
    at("open").disabled = !shown;
  };
  const sort = () => {
    const order = at("order").value;
    const sign = order === "far" ? -1 : 1;
    const numbers = rows.map((_, number) => number);
    if (order) {
      numbers.sort((a, b) => {
        const [near, far] = [data.rows[a][4], data.rows[b][4]];
        if (near === null || far === null) return (near === null) - (far === null) || a - b;
        return sign * (near - far) || a - b;
      });
    }
    list.append(...numbers.map((number) => rows[number]));
  };
  let waiting = 0;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(show, 80); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { sort(); show(); }));
  at("order").addEventListener("change", sort);
  at("open").addEventListener("click", () => {
    const some = rows.filter((row) => !row.hidden);
    const open = some.some((row) => !row.open);
    some.forEach((row) => { row.open = open; });
    at("open").textContent = open ? "Close all shown" : "Open all shown";
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.tagName !== "SUMMARY") return;
    const some = [...list.children].filter((row) => row.tagName === "DETAILS" && !row.hidden);
    const next = some[some.indexOf(event.target.parentElement) + step];
    if (next) { next.firstElementChild.focus(); event.preventDefault(); }
  });
  addEventListener("beforeprint", () => { document.querySelector(".asked").open = true; });
  if (rows.length) form.hidden = false;
  show();
})();
