// What went wrong, the newest first: warnings and errors of the chosen runs, and when they began and ended.
import { h, segments } from "./dom.js";
import { ask, chosenRuns, listen, runColour } from "./state.js";

const TONES = { error: "--bad", warning: "--warn", info: "--faint" };

export function logView(main) {
  let left = false, problems = false, entries = [];
  const list = h("div", { class: "card", role: "log" });
  main.append(h("div", { class: "tools" }, segments("Which lines", [[false, "Everything"], [true, "Warnings and errors"]], problems, (value) => { problems = value; draw(); })), list);

  async function load() {
    const runs = chosenRuns();
    const answers = await Promise.all(runs.map((run) => ask("log", { run: run.id }).catch(() => [])));
    if (left) return;
    entries = answers.flatMap((lines, i) => lines.map((line) => ({ ...line, run: runs[i].id })));
    entries.sort((a, b) => b.time - a.time);
    draw();
  }

  function draw() {
    const shown = entries.filter((entry) => !problems || entry.level !== "info");
    const several = new Set(entries.map((entry) => entry.run)).size > 1;
    if (shown.length === 0) return list.replaceChildren(h("div", { class: "empty" }, entries.length === 0 ? "No log.jsonl in these runs' folders." : "Nothing went wrong."));
    list.replaceChildren(...shown.map((entry) => h("div", { class: "entry" },
      h("time", { title: new Date(entry.time * 1000).toISOString() }, new Date(entry.time * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" })),
      h("span", {}, h("span", { class: "chip", style: { "--tone": `var(${TONES[entry.level] ?? "--faint"})` } }, entry.level)),
      h("p", {}, several ? h("span", { class: "swatch soft", style: { "--run": runColour(entry.run) } }, `${entry.run}  `) : null, entry.text))));
  }
  const stop = listen((what) => what !== "clock" && load());
  load();
  return { leave() { left = true; stop(); } };
}
