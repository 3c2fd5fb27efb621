// What the page shows: runs, which are chosen, how. Views listen to changes of parts of it.
import { colour } from "./dom.js";

const LIGHT = ["#2f5fd0", "#d1641f", "#1b8a5a", "#a93b8c", "#1e8fa6", "#b08400", "#c4314b", "#6b4fc4", "#5c6b73", "#8c5a2b"];
const DARK = ["#82a8ff", "#f0985a", "#5ccb97", "#e28acb", "#5cc6da", "#e0b84c", "#f2798c", "#ab95f5", "#a3b1b8", "#cf9f6c"];
const LIVE_SECONDS = 120;

export const state = {
  runs: [],
  version: 0,         // of what the server has told
  chosen: new Set(),  // ids of the runs that are compared
  focus: null,        // the one whose samples, timings and facts are shown
  smoothing: remembered("smoothing", 0.6),
  x: "step",
  range: null,        // [begin, end] of x; null: everything
  all: false,         // every metric, or the key ones
  find: "",
};

export function remembered(name, otherwise) {
  try {
    const text = localStorage.getItem(`tandem-${name}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`tandem-${name}`, JSON.stringify(value));
  } catch { /* storage may be off */ }
}

const listeners = new Set();
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
// what: "runs" (which there are), "data" (they have grown), "chosen", "look" (smoothing, axis, range, theme)
export function tell(what) {
  for (const listener of [...listeners]) listener(what);
}

export const chosenRuns = () => state.runs.filter((run) => state.chosen.has(run.id));
export const focusRun = () => state.runs.find((run) => run.id === state.focus) ?? null;
export const isDark = () => document.documentElement.dataset.theme === "dark";
export const isLive = (run) => run.state === "open" && Date.now() / 1000 - run.updated < LIVE_SECONDS;

// By the place among all runs, so that a run keeps its colour whatever else is chosen.
export function runColour(id) {
  const palette = isDark() ? DARK : LIGHT;
  const place = state.runs.findIndex((run) => run.id === id);
  return place < 0 ? colour("--faint") : palette[place % palette.length];
}
export const paletteColour = (place) => (isDark() ? DARK : LIGHT)[place % LIGHT.length];

export async function ask(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, each);
  }
  const answer = await fetch(`api/${path}?${query}`);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `${answer.status}`);
  return answer.json();
}

export async function loadRuns() {
  const { runs, roots, version } = await ask("runs");
  const before = state.runs.map((run) => run.id).join("\n");
  state.runs = runs;
  state.roots = roots;
  state.version = version;
  const ids = new Set(runs.map((run) => run.id));
  for (const id of [...state.chosen]) if (!ids.has(id)) state.chosen.delete(id);
  const changed = before !== runs.map((run) => run.id).join("\n");
  if (state.chosen.size === 0 && runs.length > 0) {
    const newest = [...runs].sort((a, b) => b.updated - a.updated);
    for (const run of newest.slice(0, runs.length <= 20 ? runs.length : 5)) state.chosen.add(run.id);
    state.focus = newest[0].id;
  }
  if (!ids.has(state.focus)) state.focus = [...state.chosen][0] ?? runs[0]?.id ?? null;
  return changed;
}
