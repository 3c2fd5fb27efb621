// Validation and configuration: runs side by side.
import { h, number, segments, svg } from "./dom.js";
import { ask, chosenRuns, listen, remember, remembered, runColour } from "./state.js";

const MOST_ROWS = 20000;

function head(run, props = {}) {
  return h("th", { class: `swatch ${props.class ?? ""}`, style: { "--run": runColour(run.id) } }, run.id);
}

function spark(values, tint) {
  const numbers = values.filter((value) => value !== null);
  if (numbers.length < 2) return null;
  const low = Math.min(...numbers), high = Math.max(...numbers), wide = 76, tall = 20;
  const points = numbers.map((value, i) => `${((i / (numbers.length - 1)) * wide).toFixed(1)} ${(tall - 2 - ((value - low) / (high - low || 1)) * (tall - 4)).toFixed(1)}`);
  const drawing = svg("svg", { width: wide, height: tall, class: "spark", "aria-hidden": "true" }, svg("path", { d: `M${points.join("L")}` }));
  drawing.style.setProperty("--run", tint);
  return drawing;
}

function validationRow(run, steps, values) {
  const there = values.map((value, i) => [steps[i], value]).filter(([, value]) => value !== null);
  const tint = runColour(run.id);
  const name = h("td", { class: "swatch", style: { "--run": tint } }, run.id);
  if (there.length === 0) return h("tr", {}, name, h("td", { class: "faint", colSpan: 5 }, "–"));
  const [firstStep, first] = there[0], [lastStep, last] = there.at(-1);
  const [bestStep, best] = there.reduce((a, b) => (b[1] > a[1] ? b : a));
  const change = last - first;
  return h("tr", {}, name, h("td", {}, spark(values, tint)), h("td", { class: "num" }, number(first), h("small", {}, ` @ ${firstStep}`)),
    h("td", { class: "num" }, h("b", {}, number(last)), h("small", {}, ` @ ${lastStep}`)),
    h("td", { class: `num ${change > 0 ? "good" : change < 0 ? "bad" : "faint"}` }, there.length > 1 ? `${change >= 0 ? "+" : "−"}${number(Math.abs(change))}` : "–"),
    h("td", { class: "num" }, number(best), h("small", {}, ` @ ${bestStep}`)));
}

export function validationView(main) {
  let left = false, find = "";
  const field = h("input", { class: "field", type: "search", placeholder: "Find a metric", "aria-label": "Find a metric", "data-find": true, oninput: () => { find = field.value.toLowerCase(); load(); } });
  const body = h("div", { class: "card scroll" });
  main.append(h("div", { class: "tools" }, h("span", { class: "soft" }, "First, newest and highest value of every validation metric"), h("span", { class: "grow" }), field), body);

  async function load() {
    const runs = chosenRuns();
    const answers = await Promise.all(runs.map(async (run) => {
      const [verl, tuning] = await Promise.all(["val-", "val/"].map((prefix) => ask("rows", { run: run.id, prefix, most: MOST_ROWS }).catch(() => null)));
      return verl && Object.keys(verl.columns).length ? verl : tuning ?? { steps: [], columns: {} };
    }));
    if (left) return;
    const names = [...new Set(answers.flatMap((answer) => Object.keys(answer.columns)))].filter((name) => name.toLowerCase().includes(find));
    names.sort((a, b) => b.startsWith("val-core") - a.startsWith("val-core"));
    if (names.length === 0) return body.replaceChildren(h("div", { class: "empty" }, find ? "No metric of that name." : "No validation yet. data.val_files and trainer.test_freq ask for it."));
    body.replaceChildren(h("table", { class: "validation" }, h("thead", {}, h("tr", {}, h("th", {}, "Run"), h("th", {}),
      ["first", "newest", "change", "highest"].map((word) => h("th", { class: "num" }, word)))),
    names.map((name) => h("tbody", {}, h("tr", { class: "of" }, h("th", { colSpan: 6 }, h("code", {}, name))),
      runs.map((run, i) => [run, answers[i]]).filter(([, answer]) => answer.columns[name]).map(([run, answer]) => validationRow(run, answer.steps, answer.columns[name]))))));
  }
  const stop = listen((what) => what !== "clock" && load());
  load();
  return { leave() { left = true; stop(); } };
}

export function configView(main) {
  let left = false, find = "", only = remembered("config-only", true), configs = [], runs = [];
  const field = h("input", { class: "field", type: "search", placeholder: "Find a key or value", "aria-label": "Find a key or value", "data-find": true, oninput: () => { find = field.value.toLowerCase(); draw(); } });
  const count = h("span", { class: "faint num" });
  const choice = segments("Which keys", [[true, "Differences"], [false, "All keys"]], only, (value) => { only = value; remember("config-only", value); draw(); });
  const body = h("div", { class: "card scroll" });
  main.append(h("div", { class: "tools" }, choice, count, h("span", { class: "grow" }), field), body);

  async function load() {
    runs = chosenRuns();
    configs = await Promise.all(runs.map(async (run) => new Map(await ask("config", { run: run.id }).catch(() => []))));
    if (!left) draw();
  }

  function draw() {
    const keys = [...new Set(configs.flatMap((config) => [...config.keys()]))];
    const differs = (key) => new Set(configs.map((config) => config.get(key))).size > 1;
    const several = runs.length > 1;
    choice.hidden = !several;
    const rows = keys.filter((key) => (!several || !only || differs(key)) && (`${key} ${configs.map((config) => config.get(key)).join(" ")}`).toLowerCase().includes(find));
    count.textContent = `${rows.length} of ${keys.length} keys`;
    if (rows.length === 0) return body.replaceChildren(h("div", { class: "empty" }, keys.length === 0 ? "No config.yaml in the run's folder." : several && only && !find ? "These runs have the same configuration." : "No key of that name."));
    body.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Key"), runs.map((run) => head(run)))),
      h("tbody", {}, rows.map((key) => h("tr", { class: several && !only && differs(key) ? "differs" : "" }, h("td", { class: "key" }, key), configs.map((config) => h("td", { class: "value" }, config.get(key) ?? h("span", { class: "faint" }, "–"))))))));
  }
  const stop = listen((what) => (what === "chosen" || what === "runs") && load());
  load();
  return { leave() { left = true; stop(); } };
}
