// The frame: views, theme, keyboard, and what keeps the page live.
import { h } from "./dom.js";
import { listen, loadRuns, state, tell, isDark } from "./state.js";
import { showRuns } from "./runs.js";
import { chartsView } from "./charts.js";
import { samplesView } from "./samples.js";
import { timelineView } from "./timeline.js";
import { validationView, configView } from "./tables.js";
import { systemView } from "./system.js";
import { logView } from "./log.js";

const VIEWS = [
  ["charts", "Charts", chartsView],
  ["samples", "Samples", samplesView],
  ["timeline", "Timeline", timelineView],
  ["validation", "Validation", validationView],
  ["config", "Config", configView],
  ["system", "System", systemView],
  ["log", "Log", logView],
];
const KEYS = [
  ["1 – 7", "views"], ["/", "find a metric, key or run"], ["j  k", "next, previous sample"], ["[  ]", "less, more smoothing"],
  ["x", "steps or time"], ["a", "key metrics or all"], ["Esc", "whole range, close"], ["t", "light or dark"], ["?", "this"],
];
const THROTTLE = 1000;

const main = document.getElementById("main");
const tabs = document.getElementById("tabs");
const live = document.getElementById("live");
let current = null;  // {name, onKey, leave}

function drawTabs() {
  const problems = state.runs.filter((run) => state.chosen.has(run.id)).reduce((sum, run) => sum + run.warnings + run.errors, 0);
  tabs.replaceChildren(...VIEWS.map(([name, title]) =>
    h("a", { href: `#${name}`, role: "tab", "aria-selected": String(current?.name === name) }, title,
      name === "log" && problems > 0 ? h("span", { class: "badge", title: "warnings and errors" }, String(problems)) : null)));
}

function show(name) {
  const view = VIEWS.find(([known]) => known === name) ?? VIEWS[0];
  if (current?.name === view[0]) return;
  current?.leave?.();
  main.replaceChildren();
  current = { name: view[0] };
  if (state.runs.length === 0) {
    main.append(h("div", { class: "empty" }, h("p", {}, "No run here yet."),
      h("p", {}, "A run appears by itself as soon as it has written its first step to ", h("code", {}, "metrics.jsonl"), ".")));
  } else {
    current = { name: view[0], ...view[2](main) };
  }
  document.title = `${view[1]} · Tandem`;
  drawTabs();
}

const route = () => show(location.hash.slice(1).split("?")[0] || "charts");

function setLive(kind, text) {
  live.className = `live ${kind}`;
  live.lastElementChild.textContent = text;
}

// One look at a time, and at most one a second, however fast a run steps.
let looking = false, again = false;
async function look() {
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  try {
    const none = state.runs.length === 0;
    const changed = await loadRuns();
    if (none && state.runs.length > 0) {
      current = null;
      route();
    }
    tell(changed ? "runs" : "data");
    drawTabs();
  } catch { /* the event stream says when the server is back */ }
  await new Promise((done) => setTimeout(done, THROTTLE));
  looking = false;
  if (again) {
    again = false;
    look();
  }
}

function connect() {
  const events = new EventSource(`api/events?seen=${state.version}`);
  events.addEventListener("open", () => setLive("on", "live"));
  events.addEventListener("change", look);
  events.addEventListener("error", () => setLive("off", "not connected"));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("tandem-theme", theme);
  } catch { /* storage may be off */ }
  tell("look");
}

function openMenu(open) {
  document.body.classList.toggle("menu-open", open);
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
}

const keys = document.getElementById("keys");
keys.append(h("h2", {}, "Keyboard"),
  h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, key.split("  ").map((one) => [h("kbd", {}, one), " "])), h("dd", {}, what)])));
keys.addEventListener("click", () => keys.close());

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    openMenu(false);
    if (document.activeElement instanceof HTMLInputElement) document.activeElement.blur();
  }
  if (event.target.closest?.("input:not([type=range]):not([type=checkbox]), select, textarea")) return;
  const digit = Number(event.key);
  if (digit >= 1 && digit <= VIEWS.length) location.hash = VIEWS[digit - 1][0];
  else if (event.key === "t") setTheme(isDark() ? "light" : "dark");
  else if (event.key === "?") keys.showModal();
  else if (event.key === "/") {
    const field = main.querySelector("[data-find]") ?? document.querySelector("#side [data-find]");
    field?.focus();
  } else if (!current?.onKey?.(event.key)) return;
  event.preventDefault();
});

document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
document.getElementById("help").addEventListener("click", () => keys.showModal());
document.getElementById("menu").addEventListener("click", () => openMenu(!document.body.classList.contains("menu-open")));
main.addEventListener("click", () => openMenu(false));
window.addEventListener("hashchange", () => {
  openMenu(false);
  route();
});
listen((what) => what === "chosen" && drawTabs());

setLive("", "connecting");
await loadRuns().catch(() => {});
showRuns(document.getElementById("side"));
route();
connect();
setInterval(() => tell("clock"), 15000);
