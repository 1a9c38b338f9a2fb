// Memory over time, kernels below the machine's limits, reasons, machine code.

const SVG = "http://www.w3.org/2000/svg";
const shape = (parent, tag, attributes, text) => {
  const el = parent.appendChild(document.createElementNS(SVG, tag));
  for (const [k, v] of Object.entries(attributes)) el.setAttribute(k, v);
  if (text !== undefined) el.textContent = text;
  return el;
};
const svg = (parent, w, h, label) => shape(parent, "svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label });

function drawMemory() {
  const { live, half, report, peak: held, played } = data.memory, W = 1000, H = 320, L = 70, B = 36, n = Math.max(live.length, 1);
  const most = Math.max(...live, 1), x = (k) => L + (W - L - 12) * k / n, y = (v) => 16 + (H - B - 16) * (1 - v / most);
  const el = svg(document.querySelector("#memory .chart"), W, H, "Memory of intermediate values, call by call");
  const reverse = half.indexOf(1);
  if (reverse >= 0) {
    shape(el, "rect", { x: x(reverse), y: 10, width: x(n) - x(reverse), height: H - B - 10, fill: css("--reverse"), opacity: 0.07 });
    shape(el, "text", { x: x(reverse) + 6, y: 24 }, "reverse");
  }
  for (let k = 0; k <= 4; k++) {
    shape(el, "line", { class: "axis", x1: L, x2: W - 12, y1: y(most * k / 4), y2: y(most * k / 4) });
    shape(el, "text", { x: L - 8, y: y(most * k / 4) + 4, "text-anchor": "end" }, amount(most * k / 4, "B"));
  }
  let d = `M${x(0)},${y(0)}`;
  live.forEach((v, k) => { d += `V${y(v).toFixed(1)}H${x(k + 1).toFixed(1)}`; });
  shape(el, "path", { d: `${d}V${y(0)}Z`, fill: "var(--memory)", opacity: 0.6 });
  const peak = live.indexOf(most);
  if (peak >= 0) shape(el, "text", { class: "value", x: Math.min(x(peak) + 4, W - 150), y: y(most) - 4 }, `peak ${amount(most, "B")} at call ${peak + 1}`);
  shape(el, "text", { x: W / 2, y: H - 8, "text-anchor": "middle" }, "calls of the tape, in order");
  const mark = shape(el, "g", {});
  links.after.push(() => {
    mark.replaceChildren();
    for (const [set, colour] of [[links.near, "--accent"], [links.chosen, "--chosen-edge"]])
      for (const c of [...(set ? set.call : [])].slice(0, 400)) if (c < n)
        shape(mark, "rect", { x: x(c), y: 12, width: Math.max(1.5, x(1) - x(0)), height: H - B - 12, fill: `var(${colour})`, opacity: 0.35 });
  });
  const at = (e) => { const b = el.getBoundingClientRect(); return Math.floor(((e.clientX - b.left) * W / b.width - L) / (W - L - 12) * n); };
  el.onmousemove = (e) => {
    const k = at(e), is = k >= 0 && k < live.length;
    near(is ? ["call", k] : null);
    tip(is ? [e, `${amount(live[k], "B")} while this is made:\n${data.text[k]}`] : null);
  };
  el.onmouseleave = () => { near(null); tip(null); };
  el.onclick = (e) => { const k = at(e); if (k >= 0 && k < live.length) choose(["call", k]); };
  document.querySelector("#memory .note").textContent =
    `Intermediate values of the tape, played call by call; views take none. In all: ${report.replace("memory: ", "")}. ` +
    `The call took ${amount(held, "B")} beside its arguments, by ${played ? "NumPy" : "machine code"}, as listed below, with constants.`;
  if (data.memory.buffers.length) drawBuffers($("memory"));
}

function drawBuffers(el) {
  const table = el.appendChild(make("table")), head = table.appendChild(make("tr")), most = Math.max(1, ...data.memory.buffers.map((x) => x[1]));
  for (const [text, cls] of [["Largest at the peak"], ["Bytes", "right"], [""], ["Line"]]) head.append(make("th", cls, text));
  for (const [name, bytes, line, text] of data.memory.buffers) {
    const row = table.appendChild(make("tr"));
    row.append(make("td", "", name), make("td", "right", amount(bytes, "B")));
    row.appendChild(make("td")).appendChild(make("div", "bar bytes")).style.width = `${160 * bytes / most}px`;
    row.append(make("td", "", line ? `${line}: ${text}` : ""));
    const at = data.program.findIndex((x) => x[1] && x[0] === line);
    row.onmouseenter = () => near(["line", at]);
    row.onmouseleave = () => near(null);
  }
}

function byFile(lines) {  // model.py:3, 5
  const found = {};
  for (const [, file, number] of lines.map((x) => x.match(/^(.*?)(:\d+|, line \d+)$/) || ["", x, ""])) (found[file] ??= []).push(number);
  return Object.entries(found).map(([file, own]) => file + own.map((x, k) => k ? x.replace(/^(:|, line )/, ", ") : x).join("")).join("; ");
}

function drawSpeed() {
  const { parts, rest, bandwidth, peak, nbytes, flops, seconds } = data.speed;
  const table = document.querySelector("#speed .parts").appendChild(make("table"));
  const head = table.appendChild(make("tr"));
  for (const [text, cls] of [["Part"], ["Time", "right"], ["Share", "right"], [""], ["Threads", "right"], ["Operations", "right"], ["Bytes", "right"], ["Lines"]]) head.append(make("th", cls, text));
  for (const { name, seconds: s, lines, flops: f, nbytes: b, threads, waiting } of parts) {
    const row = table.appendChild(make("tr"));
    for (const [text, cls] of [[name], [time(s), "right"], [percent(s / seconds), "right"]]) row.append(make("td", cls, text));
    const bar = row.appendChild(make("td")).appendChild(make("div", "bar"));
    bar.style.width = `${160 * s / seconds}px`;
    row.append(make("td", "right", threads > 1 ? `${threads}, ${percent(waiting)} waiting` : ""), make("td", "right", f ? amount(f, "") : ""), make("td", "right", b ? amount(b, "B") : ""), make("td", "", byFile(lines)));
    const own = lines.map((x) => data.program.findIndex((y) => y[0] === x && y[1])).filter((x) => x >= 0);
    row.onmouseenter = () => { links.nearAt = null; links.near = { line: new Set(own), call: new Set(), step: new Set(), row: new Set(), kernel: new Set() }; changed(); };
    row.onmouseleave = () => near(null) || (links.near = null, changed());
  }
  const last = table.appendChild(make("tr", "rest"));
  for (const [text, cls] of [[rest[0]], [time(rest[1]), "right"], [percent(rest[1] / seconds), "right"], [""], [""], [""], [""], [""]]) last.append(make("td", cls, text));
  const points = parts.filter((x) => x.flops && x.nbytes && x.seconds).map((x) => [x.name, x.flops / x.nbytes, x.flops / x.seconds]);
  if (flops && nbytes) points.push(["the call", flops / nbytes, flops / seconds]);
  const W = 1000, H = 380, L = 90, B = 44, knee = peak / bandwidth;
  const xs = [...points.map((p) => p[1]), knee], ys = [...points.map((p) => p[2]), peak];
  const x1 = Math.floor(Math.log10(Math.min(...xs)) - 0.3), x2 = Math.ceil(Math.log10(Math.max(...xs)) + 0.3);
  const y1 = Math.floor(Math.log10(Math.min(...ys)) - 0.1), y2 = Math.ceil(Math.log10(Math.max(...ys)) + 0.1);
  const x = (v) => L + (W - L - 20) * (Math.log10(v) - x1) / (x2 - x1), y = (v) => 14 + (H - B - 14) * (y2 - Math.log10(v)) / (y2 - y1);
  const el = svg(document.querySelector("#speed .chart"), W, H, "Roofline: operations a second by operations a byte");
  for (let k = x1; k <= x2; k++) { shape(el, "line", { class: "axis", x1: x(10 ** k), x2: x(10 ** k), y1: 14, y2: H - B }); shape(el, "text", { x: x(10 ** k), y: H - B + 16, "text-anchor": "middle" }, 10 ** k >= 1 ? `${10 ** k}` : (10 ** k).toPrecision(1)); }
  for (let k = y1; k <= y2; k++) { shape(el, "line", { class: "axis", x1: L, x2: W - 20, y1: y(10 ** k), y2: y(10 ** k) }); shape(el, "text", { x: L - 8, y: y(10 ** k) + 4, "text-anchor": "end" }, `${amount(10 ** k, "")}/s`); }
  const low = Math.max(10 ** x1, 10 ** y1 / bandwidth);
  shape(el, "path", { class: "roof", d: `M${x(low)},${y(low * bandwidth)}L${x(knee)},${y(peak)}H${W - 20}` });
  shape(el, "text", { x: W - 24, y: y(peak) - 6, "text-anchor": "end" }, `products of matrices: ${amount(peak, "")}/s`);
  shape(el, "text", { x: x(Math.sqrt(low * knee)) - 8, y: y(Math.sqrt(low * knee) * bandwidth) - 8, "text-anchor": "end" }, `copying: ${amount(bandwidth, "B")}/s`);
  shape(el, "text", { x: (W + L) / 2, y: H - 8, "text-anchor": "middle" }, "operations for each byte to and from memory");
  points.forEach(([name, px, py], k) => {
    const whole = name === "the call", cx = x(px), cy = y(py);
    const g = shape(el, "circle", { cx, cy, r: whole ? 6 : 5, fill: whole ? "var(--accent)" : "var(--time)", stroke: "var(--pane)" });
    shape(g, "title", {}, `${name}: ${amount(py, "")} operations a second, ${px.toPrecision(3)} a byte`);
    if (points.length <= 12 || whole) shape(el, "text", { x: whole ? cx - 10 : cx + 9, y: cy + 4, "text-anchor": whole ? "end" : "start" }, name);
  });
}

function drawWhy() {
  const el = $("why");
  for (const [title, texts] of data.why) {
    el.append(make("h3", "", title));
    const ul = el.appendChild(make("ul"));
    for (const text of texts.length ? texts : ["none"]) ul.append(make("li", "", text));
  }
  el.append(make("h3", "", "Guards: what the trace took for granted"));
  if (!data.guards.length) el.append(make("p", "note", "none: any values take this path"));
  else {
    const table = el.appendChild(make("table"));
    for (const [text, what, where, at] of data.guards.slice(0, 500)) {
      const row = table.appendChild(make("tr"));
      row.append(make("td", "", text), make("td", "", what), make("td", "", where));
      row.onmouseenter = () => near(["line", at]);
      row.onmouseleave = () => near(null);
    }
  }
}

function drawMachine() {
  const { note, kernels } = data.machine, bar = document.querySelector("#machine .steps");
  document.querySelector("#machine > .note").textContent = note;
  document.querySelector("#machine .columns").hidden = !kernels.length;
  let current = -1;
  const show = (k) => {
    current = k;
    [...bar.children].forEach((b, j) => b.setAttribute("aria-selected", j === k));
    const [, , own, further, another] = kernels[k], rows = further ? [...own, [`... ${further} more`, -1]] : own;
    const known = rows.some((x) => x[1] >= 0), of = (j) => rows[j][1] >= 0 ? ["row", rows[j][1]] : ["kernel", known ? -1 : k];
    links.lists = links.lists.filter((x) => !x.machine);
    const first = data.kernelOfRow.indexOf(k), last = data.kernelOfRow.lastIndexOf(k);
    const lines = first < 0 ? [["There is no source of it.", []]] : data.source.slice(first, last + 1);
    list(document.querySelector("#of .list"), lines, (j) => ["row", first < 0 ? -1 : first + j], "Source of the machine code").machine = true;
    new List(document.querySelector("#instructions .list"), rows.length, (row, j) => {
      const [, address, word, rest] = rows[j][0].match(/^(\s*[\da-f]+\s\s)?(\S+\s*)?(.*)$/);
      row.append(make("span", "c", address || ""), make("span", /^(j|call|ret|b\.|bl)/.test(word) ? "v" : "f", word || ""), rest);
    }, of, Math.max(...rows.map((x) => x[0].length)), "Machine code").machine = true;
    document.querySelector("#instructions small").textContent = another ? "for these lengths: what answers is for any" : known ? "as it answers" : "by kernel";
  };
  kernels.forEach(([name, bytes], k) => {
    const b = bar.appendChild(make("button", "", `${name}  ${amount(bytes, "B")}`));
    b.setAttribute("role", "option");
    b.onclick = () => show(k);
    b.onmouseenter = () => near(["kernel", k]);
    b.onmouseleave = () => near(null);
  });
  links.after.push(() => {
    [...bar.children].forEach((b, k) => {
      b.classList.toggle("near", marks(links.near, ["kernel", k]));
      b.classList.toggle("chosen", marks(links.chosen, ["kernel", k]));
    });
  });
  links.opened.push(() => {  // what is chosen elsewhere is in another kernel
    if (links.chosen && links.chosen.kernel.size && !links.chosen.kernel.has(current)) show([...links.chosen.kernel][0]);
    for (const l of links.lists) if (l.machine) l.reveal();
  });
  if (kernels.length) show(0);
  for (const f of links.opened) f();
}
