// What the model wrote: a list with filters, one sample with its tokens, and the same prompt in other steps.
import { fact, h, number, segments } from "./dom.js";
import { ask, focusRun, listen, remember, remembered, state } from "./state.js";
import { diffWords } from "./diff.js";
import { drawTokens } from "./tokens.js";

const PAGE = 60;
const MOST_SAME = 200, MOST_CHIPS = 40;
const tone = (reward, least, most) => (most > least && reward >= (least + most) / 2 + (most - least) / 4 ? "--good" : most > least && reward <= least + (most - least) / 4 ? "--bad" : "--warn");
const chip = (sample) => h("span", { class: "chip", style: { "--tone": `var(${tone(sample.reward, spread.least, spread.most)})` } }, number(sample.reward));
const spread = { least: 0, most: 1 };

// All of a few; of many the first of each step, and of many steps a part spread evenly.
function worthComparing(items, but) {
  const others = items.filter((item) => item.index !== but.index);
  if (others.length <= MOST_CHIPS) return others;
  const steps = new Map();
  for (const item of others) if (!steps.has(item.step)) steps.set(item.step, item);
  const all = [...steps.values()];
  if (all.length <= MOST_CHIPS) return all;
  return Array.from({ length: MOST_CHIPS }, (_, i) => all[Math.round((i * (all.length - 1)) / (MOST_CHIPS - 1))]);
}

export function samplesView(main) {
  const filter = { order: "newest" };
  let run = null, found = 0, items = [], selected = null, colouring = remembered("colouring", true), left = false, turn = 0;

  const field = (name, text, props = {}) => h("input", { class: "field short", type: "number", step: "any", placeholder: text, "aria-label": text, name, oninput: change, ...props });
  const stops = h("select", { "aria-label": "Stop reason", onchange: change }, h("option", { value: "" }, "any stop reason"));
  const sources = h("select", { "aria-label": "Data source", onchange: change }, h("option", { value: "" }, "any source"));
  const order = h("select", { "aria-label": "Order", onchange: change },
    [["newest", "newest first"], ["oldest", "oldest first"], ["best", "best reward first"], ["worst", "worst reward first"]].map(([value, text]) => h("option", { value }, text)));
  const fields = { first_step: field("first_step", "from step", { "data-find": true }), last_step: field("last_step", "to step"),
    least_reward: field("least_reward", "reward ≥"), most_reward: field("most_reward", "reward ≤") };
  const count = h("span", { class: "faint num", id: "samples-count" });
  const list = h("div", { class: "card list", role: "listbox", "aria-label": "Samples" });
  const detail = h("article", { class: "card detail" });
  const body = h("div", { class: "samples" }, list, detail);
  main.append(h("div", { class: "tools" }, fields.first_step, fields.last_step, fields.least_reward, fields.most_reward, stops, sources, order, h("span", { class: "grow" }), count), body);

  let waiting = null;
  function change() {
    clearTimeout(waiting);
    waiting = setTimeout(() => load(true), 200);
  }

  function query() {
    return { run: run.id, ...Object.fromEntries(Object.entries(fields).map(([name, input]) => [name, input.value])),
      stop_reason: stops.value, data_source: sources.value, order: order.value };
  }

  function choices(select, any, words) {
    const value = select.value;
    select.replaceChildren(h("option", { value: "" }, any), ...words.map((word) => h("option", { value: word }, word || "(none)")));
    select.value = words.includes(value) ? value : "";
    select.hidden = words.length < 2;
  }

  async function load(anew) {
    run = focusRun();
    if (!run) return;
    const mine = ++turn;
    const answer = await ask("samples", { ...query(), first: anew ? 0 : items.length, count: PAGE }).catch(() => null);
    if (!answer || left || mine !== turn) return;
    items = anew ? answer.items : [...items, ...answer.items];
    found = answer.found;
    choices(stops, "any stop reason", answer.stop_reasons);
    choices(sources, "any source", answer.data_sources);
    spread.least = Math.min(...items.map((item) => item.reward), 0);
    spread.most = Math.max(...items.map((item) => item.reward), spread.least + 1e-9);
    count.textContent = answer.complete ? `${found.toLocaleString("en")} of ${answer.total.toLocaleString("en")} samples` : `reading … ${answer.total.toLocaleString("en")} so far`;
    if (!answer.complete) setTimeout(() => !left && load(true), 100);
    draw();
    if ((selected === null || anew && !items.some((item) => item.index === selected)) && items.length > 0) select(items[0].index);
    if (items.length === 0) detail.replaceChildren(h("p", { class: "faint" }, answer.total === 0 ? "This run has no samples.jsonl." : "No sample passes the filter."));
  }

  function draw() {
    list.replaceChildren(...items.map((item) => h("button", { class: "sample", type: "button", role: "option", "aria-current": String(item.index === selected), "data-index": item.index, onclick: () => select(item.index) },
      h("span", { class: "top" }, chip(item), h("span", {}, `step ${item.step}`), h("span", {}, `${item.tokens} tokens`), h("span", {}, item.stop_reason)),
      h("p", { class: "ask" }, item.prompt), h("p", {}, item.response || "(empty)"))));
    if (items.length < found) list.append(h("button", { class: "more", type: "button", onclick: () => load(false) }, `${(found - items.length).toLocaleString("en")} more`));
  }

  async function select(index) {
    selected = index;
    for (const element of list.querySelectorAll(".sample")) element.setAttribute("aria-current", String(Number(element.dataset.index) === index));
    const sample = await ask("sample", { run: run.id, index }).catch(() => null);
    if (!sample || left || selected !== index) return;
    showSample(sample);
  }

  function showSample(sample) {
    const logprobs = (sample.logprobs ?? []).filter((value) => typeof value === "number");
    const mean = logprobs.length ? logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length : undefined;
    const response = h("div", { class: "prose mono", id: "response" });
    const drawResponse = () => {
      if (colouring && sample.token_texts && logprobs.length) drawTokens(response, sample);
      else response.textContent = sample.response;
    };
    const others = h("div", {});
    const canColour = Boolean(sample.token_texts && logprobs.length);
    drawResponse();
    detail.replaceChildren(...[
      h("div", { class: "facts" }, fact("Reward", number(sample.reward)), sample.score !== sample.reward ? fact("Score", number(sample.score)) : null,
        fact("Advantage", number(sample.advantage)), fact("Step", number(sample.step)), fact("Tokens", number(sample.response_ids?.length)), fact("Stopped by", sample.stop_reason),
        mean === undefined ? null : fact("Mean log-prob", mean.toFixed(3))),
      h("h2", {}, "Prompt"), h("div", { class: "prose" }, sample.prompt),
      h("h2", {}, "Response", canColour ? h("span", { class: "scale right" }, "likely", h("i", {}), "unlikely",
        segments("Colour by log-prob", [[true, "Tokens"], [false, "Text"]], colouring, (on) => { colouring = on; remember("colouring", on); drawResponse(); })) : null),
      response,
      sample.ground_truth ? [h("h2", {}, "Truth"), h("div", { class: "prose mono" }, sample.ground_truth)] : [], others].flat());
    sameprompt(sample, others);
  }

  async function sameprompt(sample, place) {
    const answer = await ask("samples", { run: run.id, prompt: sample.prompt_key, order: "oldest", count: MOST_SAME }).catch(() => null);
    if (!answer || left || selected !== sample.index || answer.items.length < 2) return;
    const result = h("div", { class: "prose mono", hidden: true, id: "diff" });
    const buttons = worthComparing(answer.items, sample).map((item) => h("button", { type: "button", "aria-pressed": "false", title: item.response, onclick: async (event) => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      const other = await ask("sample", { run: run.id, index: item.index });
      result.hidden = false;
      result.replaceChildren(...diffWords(other.response, sample.response).map(([kind, text]) => (kind === "same" ? text : h(kind, {}, text))));
    } }, `${item.step} `, h("b", { style: { color: `var(${tone(item.reward, spread.least, spread.most)})` } }, number(item.reward))));
    place.replaceChildren(h("h2", {}, "The same prompt in other samples", h("span", { class: "faint right" }, "step, reward; choose one to compare")), h("div", { class: "steps" }, buttons), h("p", { style: { height: "8px" } }), result);
  }

  function move(by) {
    const place = items.findIndex((item) => item.index === selected) + by;
    if (place < 0 || place >= items.length) return;
    select(items[place].index);
    list.querySelector(`[data-index="${items[place].index}"]`)?.scrollIntoView({ block: "nearest" });
  }

  let rows = focusRun()?.rows;
  const stop = listen((what) => {
    if (focusRun()?.id !== run?.id) {
      selected = null;
      items = [];
      load(true);
    } else if (what === "data" && focusRun()?.rows !== rows && list.scrollTop < 40 && items.length <= PAGE) {
      load(true);  // new ones come in above, but not below a reader's eyes
    }
    rows = focusRun()?.rows;
  });
  load(true);
  return {
    leave() {
      left = true;
      stop();
    },
    onKey(key) {
      if (key === "j" || key === "ArrowDown") move(1);
      else if (key === "k" || key === "ArrowUp") move(-1);
      else return false;
      return true;
    },
  };
}
