// Words that two texts share, by the longest common subsequence; beyond a few thousand words the common ends only.
const MOST = 4_000_000;

export function diffWords(before, after) {
  const a = before.match(/\s+|[^\s]+/g) ?? [], b = after.match(/\s+|[^\s]+/g) ?? [];
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) ++head;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) ++tail;
  const x = a.slice(head, a.length - tail), y = b.slice(head, b.length - tail);
  return joined([...a.slice(0, head).map(same), ...middle(x, y), ...a.slice(a.length - tail).map(same)]);
}

const same = (word) => ["same", word];

function middle(x, y) {
  if (x.length * y.length > MOST || x.length === 0 || y.length === 0) return [...x.map((word) => ["del", word]), ...y.map((word) => ["ins", word])];
  const width = y.length + 1, common = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; --i)
    for (let j = y.length - 1; j >= 0; --j)
      common[i * width + j] = x[i] === y[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const out = [];
  let i = 0, j = 0;
  while (i < x.length && j < y.length) {
    if (x[i] === y[j]) out.push(same(x[i])), ++i, ++j;
    else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) out.push(["del", x[i++]]);
    else out.push(["ins", y[j++]]);
  }
  return [...out, ...x.slice(i).map((word) => ["del", word]), ...y.slice(j).map((word) => ["ins", word])];
}

function joined(parts) {
  const out = [];
  for (const [kind, text] of parts) {
    if (out.length && out.at(-1)[0] === kind) out.at(-1)[1] += text;
    else out.push([kind, text]);
  }
  return out;
}
