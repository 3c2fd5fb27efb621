// The list of runs at the side: which are compared, and which one is looked at closely.
import { ago, h, number } from "./dom.js";
import { isLive, listen, runColour, state, tell } from "./state.js";

export function showRuns(side) {
  let find = "";
  const list = h("div", {});
  const field = h("input", { class: "text", type: "search", placeholder: "Find a run", "aria-label": "Find a run", "data-find": true,
    oninput: () => { find = field.value.toLowerCase(); draw(); } });
  const all = h("button", { class: "plain", type: "button", onclick: toggleAll }, "");
  side.append(h("div", { class: "side-head" }, h("h2", {}, "Runs"), all), h("div", { style: { padding: "0 4px 8px" } }, field), list);

  function toggleAll() {
    const whole = state.chosen.size === state.runs.length;
    state.chosen = new Set(whole ? [state.focus] : state.runs.map((run) => run.id));
    draw();
    tell("chosen");
  }

  function toggle(run) {
    if (state.chosen.has(run.id)) state.chosen.delete(run.id);
    else state.chosen.add(run.id);
    if (!state.chosen.has(state.focus)) state.focus = [...state.chosen][0] ?? run.id;
    draw();
    tell("chosen");
  }

  function focus(run) {
    state.focus = run.id;
    state.chosen.add(run.id);
    draw();
    tell("chosen");
  }

  function row(run) {
    const on = state.chosen.has(run.id);
    const kind = run.state === "failed" ? "failed" : isLive(run) ? "live" : "";
    return h("div", { class: `run ${on ? "on" : ""} ${run.id === state.focus ? "focus" : ""}`, style: { "--run": runColour(run.id) }, "data-run": run.id,
      onclick: (event) => event.target.tagName !== "INPUT" && focus(run) },
      h("input", { type: "checkbox", checked: on, "aria-label": `compare ${run.id}`, onclick: () => toggle(run) }),
      h("span", {}, h("b", {}, run.id), h("small", {}, `step ${number(run.last_step)} · ${kind === "live" ? "running" : kind === "failed" ? "failed" : ago(run.updated)}`)),
      h("i", { class: `dot ${kind}`, title: kind }));
  }

  function draw() {
    all.textContent = state.chosen.size === state.runs.length ? "only one" : "all";
    all.hidden = state.runs.length < 2;
    field.hidden = state.runs.length < 8;
    const active = document.activeElement?.closest?.(".run")?.dataset.run;
    list.replaceChildren(...state.runs.filter((run) => run.id.toLowerCase().includes(find)).map(row));
    if (active) list.querySelector(`[data-run="${CSS.escape(active)}"] input`)?.focus();
  }
  draw();
  listen((what) => what !== "clock" || state.runs.some(isLive) ? draw() : null);
}
