// A response token by token, the unlikely ones coloured.
import { h, tip } from "./dom.js";

const UNLIKELY = 6;  // log-prob below which colour says no more

export function drawTokens(place, sample) {
  place.replaceChildren(...sample.token_texts.map((text, i) => {
    const logprob = sample.logprobs[i];
    const surprise = typeof logprob === "number" ? Math.min(1, -logprob / UNLIKELY) : 0;
    return h("span", { class: "token", "data-i": i, style: { "--heat": surprise > 0.45 ? "#d6364f" : "#e8a33d", "--much": `${Math.round(10 + surprise * 65) * (surprise > 0.015)}%` } }, text || "·");
  }));
  place.onmousemove = (event) => {
    const token = event.target.closest(".token");
    if (!token) return tip(null);
    const i = Number(token.dataset.i), logprob = sample.logprobs[i];
    const probability = typeof logprob === "number" ? `${(100 * Math.exp(logprob)).toPrecision(3)} %   log-prob ${logprob.toFixed(3)}` : "";
    tip(`${JSON.stringify(sample.token_texts[i])}\n${probability}\ntoken ${i + 1}, id ${sample.response_ids[i]}`, event);
  };
  place.onmouseleave = () => tip(null);
}
