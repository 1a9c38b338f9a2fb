"use strict";
// The data is one block, packed; everything below draws it. Lists hold only the rows that are seen.
const ROW = 18, PRINTED = 2000, $ = (id) => document.getElementById(id);
const make = (tag, cls, text) => {
  const el = document.createElement(tag);
  if (cls) el.className = cls;
  if (text !== undefined) el.textContent = text;
  return el;
};
const time = (s) => s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms`
  : s >= 1e-6 ? `${(s * 1e6).toPrecision(3)} µs` : `${(s * 1e9).toFixed(0)} ns`;
const amount = (x, unit) => {
  for (const [name, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (x >= size) return `${(x / size).toPrecision(3)} ${name}${unit}`;
  return `${Math.round(x)} ${unit}`.trim();
};
const percent = (x) => x >= 0.1 ? `${Math.round(100 * x)}%` : `${+(100 * x).toPrecision(2)}%`;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- text of tapes, plans and sources, in colours

const WORDS = /(#.*$)|(%\d+|@\d+)|\b(for|in|if|def|return|while|and|or|not|import|from|raise|True|False|tape|plan|inp|out|cap|mem|guard|call|stop)\b|([A-Za-z_]\w*)(?=\()|(\b\d[\w.]*(?:e-?\d+)?\b)/g;
const KINDS = ["", "c", "v", "k", "f", "n"];
function coloured(el, text) {
  let last = 0;
  for (const found of text.matchAll(WORDS)) {
    if (found.index > last) el.append(text.slice(last, found.index));
    el.append(make("span", KINDS[found.findIndex((x, k) => k && x !== undefined)], found[0]));
    last = found.index + found[0].length;
  }
  if (last < text.length) el.append(text.slice(last));
}

// ---- which lines belong together

const links = { near: null, chosen: null, lists: [], after: [], printed: 0 };
function spread(kind, n) {  // all that belongs to a line of one kind
  const all = { line: new Set(), call: new Set(), step: new Set(), row: new Set(), kernel: new Set() };
  const own = (r) => { all.row.add(r); if (data.kernelOfRow[r] >= 0) all.kernel.add(data.kernelOfRow[r]); };
  const add = {
    line: (k) => { for (const c of data.callsOfLine[k] || []) add.call(c, true); all.line.add(k); },
    call: (c, down) => {
      all.call.add(c);
      if (data.calls[c] >= 0) all.line.add(data.calls[c]);
      for (const s of data.stepsOfCall[c] || []) add.step(s, false);
    },
    step: (s, up) => {
      all.step.add(s);
      for (const r of data.rowsOfStep[s] || []) own(r);
      if (up) for (const c of data.steps[s]) { all.call.add(c); if (data.calls[c] >= 0) all.line.add(data.calls[c]); }
    },
    row: (r) => { for (const s of data.source[r][1]) add.step(s, true); own(r); },
    kernel: (k) => data.kernelOfRow.forEach((x, r) => { if (x === k) add.row(r); }),
  };
  if (n >= 0) add[kind](n, true);
  return all;
}
const same = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
function near(at) {
  if (same(at, links.nearAt) || (!at && !links.nearAt)) return;
  links.nearAt = at;
  links.near = at && at[1] >= 0 ? spread(...at) : null;
  changed();
}
function choose(at, from) {
  links.chosenAt = at && at[1] >= 0 && !same(at, links.chosenAt) ? at : null;
  links.chosen = links.chosenAt ? spread(...links.chosenAt) : null;
  changed();
  if (links.chosen) for (const list of links.lists) if (list !== from) list.reveal();
}
function changed() {
  for (const list of links.lists) list.mark();
  for (const f of links.after) f();
}
const marks = (set, at) => Boolean(set && at && at[1] >= 0 && set[at[0]].has(at[1]));

class List {
  constructor(el, count, draw, of, width, label) {
    Object.assign(this, { el, count, draw, of, rows: new Map(), cursor: -1 });
    el.tabIndex = 0;
    el.setAttribute("role", "listbox");
    el.setAttribute("aria-label", label);
    el.replaceChildren(this.room = make("div", "room"), this.ticks = make("div", "ticks"));
    this.room.style.height = `${count * ROW}px`;
    this.room.style.width = `${width + 4}ch`;
    el.onscroll = () => this.fill();
    el.onmousemove = (e) => { const k = this.at(e); near(k >= 0 ? this.of(k) : null); };
    el.onmouseleave = () => near(null);
    el.onclick = (e) => { const k = this.at(e); if (k >= 0) { this.cursor = k; choose(this.of(k), this); } };
    el.onkeydown = (e) => this.key(e);
    new ResizeObserver(() => this.fill()).observe(el);
    links.lists.push(this);
    this.fill();
  }
  at(e) {
    const row = e.target.closest(".row");
    return row ? +row.dataset.k : -1;
  }
  key(e) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[e.key];
    if (by) {
      this.cursor = Math.max(0, Math.min(this.count - 1, this.cursor + by));
      this.show(this.cursor);
      near(this.of(this.cursor));
      this.mark();
    } else if (e.key === "Enter" && this.cursor >= 0) choose(this.of(this.cursor), this);
    else return;
    e.preventDefault();
  }
  show(k) {
    const top = k * ROW, { scrollTop, clientHeight } = this.el;
    if (top < scrollTop || top > scrollTop + clientHeight - 2 * ROW)
      this.el.scrollTop = top - clientHeight / 3;
  }
  reveal() {
    for (let k = 0; k < this.count; k++) if (marks(links.chosen, this.of(k))) return this.show(k);
  }
  fill() {
    const all = links.printed;  // then so many rows are there, seen or not
    const first = all ? 0 : Math.max(0, Math.floor(this.el.scrollTop / ROW) - 10);
    const last = Math.min(this.count, all || first + Math.ceil((this.el.clientHeight || 600) / ROW) + 20);
    for (const [k, row] of this.rows) if (k < first || k >= last) { row.remove(); this.rows.delete(k); }
    for (let k = first; k < last; k++) if (!this.rows.has(k)) {
      const row = make("div", "row");
      row.dataset.k = k;
      row.style.top = `${k * ROW}px`;
      row.setAttribute("role", "option");
      this.draw(row, k);
      row.kind = row.className;
      this.rows.set(k, row);
    }
    const order = [...this.rows.entries()].sort((a, b) => a[0] - b[0]).map((x) => x[1]);
    if (order.some((row, k) => this.room.children[k] !== row)) this.room.replaceChildren(...order);
    this.mark();
  }
  mark() {
    for (const [k, row] of this.rows) {
      const at = this.of(k), chosen = marks(links.chosen, at);
      row.className = row.kind + (marks(links.near, at) ? " near" : "") + (chosen ? " chosen" : "")
        + (k === this.cursor && document.activeElement === this.el ? " cursor" : "");
      row.setAttribute("aria-selected", chosen ? "true" : "false");
    }
  }
}
function list(el, lines, of, label, kind) {
  const width = Math.min(2000, lines.reduce((w, x) => Math.max(w, x[0].length), 0));
  const of_ = typeof of === "string" ? (k) => [of, lines[k][1]] : of;
  return new List(el, lines.length, (row, k) => {
    if (kind) row.classList.add(...kind(k));
    coloured(row, lines[k][0]);
  }, of_, width, label);
}

// ---- the program

function drawProgram() {
  const most = Math.max(1e-12, ...data.program.map((x) => x[3]));
  const large = Math.max(1, ...data.program.map((x) => x[6]));
  const width = 26 + Math.min(400, Math.max(0, ...data.program.map((x) => x[2].replace(/<[^>]*>/g, "").length)));
  new List(document.querySelector("#program .list"), data.program.length, (row, k) => {
    const [name, number, html, seconds, back, about, bytes] = data.program[k];
    const cost = row.appendChild(make("span", "cost")), cell = (cls) => cost.appendChild(make("span", cls));
    if (!number) {
      row.classList.add("skip");
      cell("time"); cell("bytes"); cell("line").textContent = "⋮";
      if (!k || data.program[k - 1][0].split(":")[0] !== name) row.append(name);
      return;
    }
    const t = cell("time"), m = cell("bytes");
    if (seconds) {
      const bar = (part, cls, from) => {
        const i = t.appendChild(make("i", cls));
        i.style.width = `${80 * part / most}%`;
        i.style.right = `${80 * from / most}%`;
      };
      bar(seconds - back, "", 0);
      bar(back, "back", seconds - back);
      t.append(make("b", "", (about ? "~" : "") + time(seconds)));
      row.title = `${name}: ${about ? "about " : ""}${time(seconds)} a call, ${Math.round(100 * back / seconds)}% in reverse`;
    }
    if (bytes) {
      m.appendChild(make("i")).style.width = `${80 * bytes / large}%`;
      m.append(make("b", "", amount(bytes, "B")));
    }
    cell("line").textContent = number;
    row.appendChild(make("span")).innerHTML = html;  // escaped where it was coloured
  }, (k) => ["line", k], width, "Lines of the program");
}

// ---- passes

function drawPasses() {
  const bar = document.querySelector("#passes .steps"), { lines, passes } = data.stages;
  const show = (k) => {
    [...bar.children].forEach((b, j) => b.setAttribute("aria-selected", j === k));
    const [name, , , sides] = passes[k] || ["", 0, 0, []];
    links.lists = links.lists.filter((x) => !x.passes);
    ["before", "after"].forEach((id, side) => {
      const [own, other] = sides[side] || [[], []], is = new Set(other), word = side ? "made" : "gone";
      const title = $(id).querySelector("h2");
      title.textContent = side ? `After ${name}` : `Before ${name}`;
      title.append(make("small", "", sides.length ? `${is.size} lines ${word}` : "nothing changed"));
      const rows = own.map((n) => lines[n]);
      const found = list($(id).querySelector(".list"), rows, "line", title.textContent, (j) => is.has(j) ? [word] : []);
      found.passes = true;
      const first = other[0];
      if (first !== undefined) found.show(first);
    });
  };
  passes.forEach(([name, before, after, sides], k) => {
    const text = sides.length ? `${name} ${before === after ? "" : `${before} → ${after}`}` : name;
    const b = bar.appendChild(make("button", sides.length ? "" : "same", text.trim()));
    b.setAttribute("role", "option");
    b.tabIndex = -1;
    b.onclick = () => show(current = k);
  });
  let current = Math.max(0, passes.findIndex((x) => x[3].length));
  bar.onkeydown = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by || !passes.length) return;
    show(current = (current + by + passes.length) % passes.length);
    bar.children[current].scrollIntoView({ block: "nearest" });
  };
  if (passes.length) show(current);
  step = (by) => bar.onkeydown({ key: by > 0 ? "ArrowRight" : "ArrowLeft" });
}
let step = () => {};

// ---- the graph

function drawGraph() {
  const canvas = document.querySelector("#graph canvas"), pen = canvas.getContext("2d");
  const { nodes, edges, lanes, size: [w, h] } = data.graph;
  const width = Math.max(...lanes.map((x) => x[4]), 1), height = Math.max(...lanes.map((x) => x[5]), 1);
  let scale = 0, x0 = 0, y0 = 0, over = -1;
  const cell = 400, grid = new Map();  // which nodes and edges are where
  const put = (kind, k, a, b, c, d) => {
    for (let i = Math.floor(a / cell); i <= Math.floor(c / cell); i++)
      for (let j = Math.floor(b / cell); j <= Math.floor(d / cell); j++) {
        const key = i * 1e6 + j;
        if (!grid.has(key)) grid.set(key, { node: [], edge: [] });
        grid.get(key)[kind].push(k);
      }
  };
  nodes.forEach(([x, y], k) => put("node", k, x, y, x + w, y + h));
  const ends = edges.map(([a, b]) => {
    const [ax, ay, , , al] = nodes[a], [bx, by, , , bl] = nodes[b];
    const across = lanes[al][1] !== lanes[bl][1], up = lanes[al][1] && !across;
    if (across) return [ax + w, ay + h / 2, bx, by + h / 2, true];
    return up ? [ax + w / 2, ay, bx + w / 2, by + h, false] : [ax + w / 2, ay + h, bx + w / 2, by, false];
  });
  const at = (e) => {
    const box = canvas.getBoundingClientRect(), x = (e.clientX - box.left - x0) / scale, y = (e.clientY - box.top - y0) / scale;
    const near = grid.get(Math.floor(x / cell) * 1e6 + Math.floor(y / cell));
    return near ? near.node.find((k) => x >= nodes[k][0] && x <= nodes[k][0] + w && y >= nodes[k][1] && y <= nodes[k][1] + h) ?? -1 : -1;
  };
  let onPaper = false;
  const room = () => onPaper ? [1000, 640] : [canvas.clientWidth, canvas.clientHeight];
  const fit = (all) => {
    const [across, down] = room(), a = (across - 50) / width, b = (down - 70) / height;
    scale = Math.min(1.2, all ? Math.min(a, b) : Math.max(Math.min(a, b), Math.min(a, 0.45)));
    x0 = (across - width * scale) / 2;
    y0 = 20 + Math.max(28, (down - height * scale) / 2 - 10);
    if (scale > b) y0 = 60 - (lanes.find((x) => !x[1]) || lanes[0])[3] * scale;  // begin with the inputs
    draw();
  };
  const zoom = (by, x, y) => {
    const to = Math.min(4, Math.max(0.002, scale * by));
    x0 = x - (x - x0) * to / scale;
    y0 = y - (y - y0) * to / scale;
    scale = to;
    draw();
  };
  let waiting = false;
  const draw = () => { if (!waiting) { waiting = true; requestAnimationFrame(paint); } };
  const curve = ([ax, ay, bx, by, across]) => {
    pen.moveTo(ax, ay);
    if (across) { const m = (bx - ax) * 0.4; pen.bezierCurveTo(ax + m, ay, bx - m, by, bx, by); }
    else { const m = (by - ay) * 0.45; pen.bezierCurveTo(ax, ay + m, bx, by - m, bx, by); }
  };
  function paint() {
    waiting = false;
    const dpr = onPaper ? 2 : window.devicePixelRatio || 1, [cw, ch] = room();
    if (!cw) return;
    if (!scale) fit(false);
    if (canvas.width !== cw * dpr || canvas.height !== ch * dpr) { canvas.width = cw * dpr; canvas.height = ch * dpr; }
    pen.setTransform(dpr, 0, 0, dpr, 0, 0);
    pen.clearRect(0, 0, cw, ch);
    pen.translate(x0, y0);
    pen.scale(scale, scale);
    const [ink, faint, line, pane, forward, reverse, chosen, edge, nearby, back] =
      ["--ink", "--faint", "--line", "--pane", "--forward", "--reverse", "--chosen", "--chosen-edge", "--near", "--back"].map(css);
    const left = -x0 / scale, top = -y0 / scale, right = left + cw / scale, bottom = top + ch / scale;
    const titles = [];
    for (const [name, is, a, b, c, d] of lanes) {
      pen.fillStyle = back;
      pen.strokeStyle = line;
      pen.lineWidth = 1 / Math.min(scale, 1);
      pen.beginPath();
      pen.roundRect(a - 14, b - 14, c - a + 28, d - b + 28, 12);
      pen.fill();
      pen.stroke();
      // Its name stays in sight, above it or at the top.
      const font = 12.5 / Math.min(scale, 1), title = name + (is ? " ↑" : "");
      titles.push([title, (a + c) / 2, Math.max(b - 40, Math.min(top + font * 1.3, d)), c - a + 66, font, is ? reverse : forward]);
    }
    const sets = [links.near, links.chosen].filter(Boolean);
    const lit = (k) => k === over || (nodes[k][3] >= 0 && sets.some((s) => s.call.has(nodes[k][3])));
    const some = sets.length > 0 || over >= 0;
    const seen = { node: new Set(), edge: new Set() };
    if ((right - left) * (bottom - top) / cell / cell < 4 * grid.size) {
      for (let i = Math.floor(left / cell) - 1; i <= right / cell; i++)
        for (let j = Math.floor(top / cell) - 1; j <= bottom / cell; j++)
          for (const k of grid.get(i * 1e6 + j)?.node || []) seen.node.add(k);
    } else nodes.forEach((_, k) => seen.node.add(k));
    const strokes = [[], []];
    ends.forEach((e, k) => {
      if (Math.max(e[0], e[2]) < left || Math.min(e[0], e[2]) > right || Math.max(e[1], e[3]) < top || Math.min(e[1], e[3]) > bottom) return;
      strokes[+(some && (lit(edges[k][0]) || lit(edges[k][1])))].push(e);
    });
    strokes.forEach((own, k) => {
      pen.beginPath();
      pen.strokeStyle = k ? edge : faint;
      pen.globalAlpha = k ? 1 : some ? 0.25 : 0.5;
      pen.lineWidth = (k ? 1.8 : 1) / Math.max(0.35, Math.min(scale, 1));
      own.forEach(curve);
      pen.stroke();
    });
    pen.globalAlpha = 1;
    pen.textBaseline = "middle";
    pen.font = '12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
    for (const k of seen.node) {
      const [x, y, label, call, lane] = nodes[k], is = lanes[lane][1];
      pen.fillStyle = some && lit(k) ? chosen : pane;
      pen.strokeStyle = some && lit(k) ? edge : call < 0 ? faint : is ? reverse : forward;
      pen.lineWidth = 1.2;
      pen.beginPath();
      if (scale < 0.12) { pen.fillStyle = pen.strokeStyle; pen.rect(x, y, w, h); pen.fill(); continue; }
      pen.roundRect(x, y, w, h, call < 0 ? 13 : 6);
      pen.fill();
      pen.stroke();
      if (scale < 0.3) continue;
      pen.fillStyle = ink;
      pen.textAlign = "center";
      pen.fillText(label.length > 24 ? `${label.slice(0, 23)}…` : label, x + w / 2, y + h / 2 + 1);
    }
    pen.textBaseline = "alphabetic";
    pen.strokeStyle = pane;
    pen.lineJoin = "round";
    for (const [title, x, y, room, font, colour] of titles) {
      pen.font = `600 ${font}px system-ui, "DejaVu Sans", sans-serif`;
      pen.fillStyle = colour;
      pen.textAlign = "center";
      pen.lineWidth = font / 3;
      pen.strokeText(title, x, y + 18, room);
      pen.fillText(title, x, y + 18, room);
    }
  }
  let held = null, moved = false;
  canvas.onpointerdown = (e) => { held = [e.clientX - x0, e.clientY - y0]; moved = false; canvas.setPointerCapture(e.pointerId); };
  canvas.onpointermove = (e) => {
    if (held) { moved = true; x0 = e.clientX - held[0]; y0 = e.clientY - held[1]; return draw(); }
    const k = at(e);
    if (k === over) return;
    over = k;
    near(k >= 0 && nodes[k][3] >= 0 ? ["call", nodes[k][3]] : null);
    tip(k >= 0 ? [e, nodes[k][3] >= 0 ? data.text[nodes[k][3]] : nodes[k][2]] : null);
    draw();
  };
  canvas.onpointerup = () => { held = null; if (!moved) choose(over >= 0 ? ["call", nodes[over][3]] : null); };
  canvas.onpointerleave = () => { over = -1; near(null); tip(null); draw(); };
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); const b = canvas.getBoundingClientRect(); zoom(Math.exp(-e.deltaY / 400), e.clientX - b.left, e.clientY - b.top); }, { passive: false });
  canvas.ondblclick = () => fit(true);
  const middle = (by) => by ? zoom(by, canvas.clientWidth / 2, canvas.clientHeight / 2) : fit(true);
  canvas.onkeydown = (e) => {
    const by = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
    if (by) { x0 += by[0]; y0 += by[1]; draw(); }
    else if (e.key === "+" || e.key === "=") middle(1.4);
    else if (e.key === "-") middle(0.7);
    else if (e.key === "0") middle(0);
    else return;
    e.preventDefault();
  };
  for (const b of document.querySelectorAll("#graph .tools button")) b.onclick = () => middle(+b.dataset.zoom);
  new ResizeObserver(draw).observe(canvas);
  links.after.push(draw);
  links.printing = (on) => {
    onPaper = on;
    fit(on);
    paint();
  };
  // A call that is chosen elsewhere comes into view
  const reveal = { mark: () => {}, fill: () => {}, reveal: () => {
    const k = nodes.findIndex((x) => x[3] >= 0 && links.chosen.call.has(x[3]));
    if (k < 0 || !scale || !canvas.clientWidth) return;
    const [x, y] = nodes[k], px = x * scale + x0, py = y * scale + y0;
    if (px < 0 || py < 0 || px > canvas.clientWidth - w * scale || py > canvas.clientHeight - h) {
      x0 = canvas.clientWidth / 2 - (x + w / 2) * scale;
      y0 = canvas.clientHeight / 2 - y * scale;
      draw();
    }
  } };
  links.lists.push(reveal);
}

// ---- charts

const SVG = "http://www.w3.org/2000/svg";
const shape = (parent, tag, attributes, text) => {
  const el = parent.appendChild(document.createElementNS(SVG, tag));
  for (const [k, v] of Object.entries(attributes)) el.setAttribute(k, v);
  if (text !== undefined) el.textContent = text;
  return el;
};
const svg = (parent, w, h, label) => shape(parent, "svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label });

function drawMemory() {
  const { live, half, report } = data.memory, W = 1000, H = 320, L = 70, B = 36, n = Math.max(live.length, 1);
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
    `Intermediate values of the tape, played call by call; views take none. In all: ${report.replace("memory: ", "")}.`;
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
  const { parts, bandwidth, peak, nbytes, flops, seconds } = data.speed, total = parts.reduce((a, x) => a + x.seconds, 0) || 1;
  const table = document.querySelector("#speed .parts").appendChild(make("table"));
  const head = table.appendChild(make("tr"));
  for (const [text, cls] of [["Part"], ["Time", "right"], ["Share", "right"], [""], ["Threads", "right"], ["Operations", "right"], ["Bytes", "right"], ["Lines"]]) head.append(make("th", cls, text));
  for (const { name, seconds: s, lines, flops: f, nbytes: b, threads, waiting } of parts) {
    const row = table.appendChild(make("tr"));
    for (const [text, cls] of [[name], [time(s), "right"], [percent(s / total), "right"]]) row.append(make("td", cls, text));
    const bar = row.appendChild(make("td")).appendChild(make("div", "bar"));
    bar.style.width = `${160 * s / total}px`;
    row.append(make("td", "right", threads > 1 ? `${threads}, ${percent(waiting)} waiting` : ""), make("td", "right", f ? amount(f, "") : ""), make("td", "right", b ? amount(b, "B") : ""), make("td", "", byFile(lines)));
    const own = lines.map((x) => data.program.findIndex((y) => y[0] === x && y[1])).filter((x) => x >= 0);
    row.onmouseenter = () => { links.nearAt = null; links.near = { line: new Set(own), call: new Set(), step: new Set(), row: new Set(), kernel: new Set() }; changed(); };
    row.onmouseleave = () => near(null) || (links.near = null, changed());
  }
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
  document.querySelector("#machine .note").textContent = note;
  document.querySelector("#machine .pane").hidden = !kernels.length;
  const show = (k) => {
    [...bar.children].forEach((b, j) => b.setAttribute("aria-selected", j === k));
    const [, , lines, further] = kernels[k];
    const rows = lines.map((x) => [x, -1]);
    if (further) rows.push([`... ${further} more`, -1]);
    links.lists = links.lists.filter((x) => !x.machine);
    const el = document.querySelector("#machine .list"), width = Math.max(...rows.map((x) => x[0].length));
    new List(el, rows.length, (row, j) => {
      const [, address, word, rest] = rows[j][0].match(/^(\s*[\da-f]+\s\s)?(\S+\s*)?(.*)$/);
      row.append(make("span", "c", address || ""), make("span", /^(j|call|ret|b\.|bl)/.test(word) ? "v" : "f", word || ""), rest);
    }, () => ["kernel", -1], width, "Machine code").machine = true;
    el.onmousemove = () => near(["kernel", k]);  // all of it is of the lines of its kernel
    el.onclick = () => choose(["kernel", k]);
  };
  kernels.forEach(([name, bytes], k) => {
    const b = bar.appendChild(make("button", "", `${name}  ${amount(bytes, "B")}`));
    b.setAttribute("role", "option");
    b.onclick = () => show(k);
  });
  links.after.push(() => [...bar.children].forEach((b, k) => {
    b.classList.toggle("near", marks(links.near, ["kernel", k]));
    b.classList.toggle("chosen", marks(links.chosen, ["kernel", k]));
  }));
  if (kernels.length) show(0);
}

// ---- the page

function tip(found) {
  const el = $("tip");
  el.classList.toggle("on", !!found);
  if (!found) return;
  el.textContent = found[1];
  el.style.left = `${Math.min(found[0].clientX + 14, innerWidth - el.offsetWidth - 8)}px`;
  el.style.top = `${Math.min(found[0].clientY + 16, innerHeight - el.offsetHeight - 8)}px`;
}

const drawn = {}, DRAW = { passes: drawPasses, graph: drawGraph, memory: drawMemory, speed: drawSpeed, machine: drawMachine, why: drawWhy };
const panels = [...document.querySelectorAll('[role="tabpanel"]')];
function open(id) {
  for (const p of panels) p.hidden = p.id !== id;
  for (const b of document.querySelectorAll("nav button")) {
    b.setAttribute("aria-selected", b.dataset.id === id);
    b.tabIndex = b.dataset.id === id ? 0 : -1;
  }
  if (DRAW[id] && !drawn[id]) { drawn[id] = true; DRAW[id](); }
  for (const l of links.lists) l.fill();
  changed();
}

const KEYS = [["1 … 7", "what is shown"], ["↑ ↓ Enter", "go along lines; keep one marked"], ["Esc", "mark nothing"], ["Tab", "to the next list"],
  ["[ ]", "the pass before, the next one"], ["+ − 0", "in the graph: closer, farther, all of it"], ["t", "dark or light"], ["?", "these keys"]];
function keys() {
  $("keys").querySelector("dl").replaceChildren(...KEYS.flatMap(([k, text]) => [make("dt", "", k), make("dd", "", text)]));
  $("keys").showModal();
}
const isDark = () => document.documentElement.dataset.theme === "dark";
function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  changed();
}

async function unpacked() {
  const bytes = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
let data;
async function start() {
  theme(matchMedia("(prefers-color-scheme: dark)").matches);
  data = await unpacked();
  const push = (table, key, value) => (table[key] ??= []).push(value);
  Object.assign(data, { callsOfLine: {}, stepsOfCall: {}, rowsOfStep: {}, text: {} });
  data.calls.forEach((line, call) => { if (line >= 0) push(data.callsOfLine, line, call); });
  data.steps.forEach((calls, s) => calls.forEach((c) => push(data.stepsOfCall, c, s)));
  data.source.forEach(([, steps], row) => steps.forEach((s) => push(data.rowsOfStep, s, row)));
  let kernel = -1;
  const names = data.machine.kernels.map((x) => `def ${x[0]}(`);
  data.kernelOfRow = data.source.map(([text]) => {
    if (/^(def |# )/.test(text)) kernel = names.findIndex((x) => text.startsWith(x));
    return kernel;
  });
  for (const [text, call] of data.tape) if (call >= 0) data.text[call] = text.trim();
  const { seconds, bandwidth, peak, nbytes, flops } = data.speed;
  const facts = [[time(seconds), "a call"], [`${data.calls.length}`, "calls on the tape"],
    [`${data.kernels}`, data.kernels === 1 ? "kernel" : "kernels"], [amount(Math.max(0, ...data.memory.live), "B"), "at the peak, played"],
    [percent(nbytes / seconds / bandwidth), "of the bandwidth"]];
  if (flops !== null) facts.push([percent(flops / seconds / peak), "of peak operations"]);
  for (const [value, label] of facts) {
    const div = $("facts").appendChild(make("div"));
    div.append(make("dt", "", label), make("dd", "", value));
  }
  const nav = document.querySelector("nav");
  panels.forEach((p) => {
    const b = nav.appendChild(make("button", "", p.dataset.title));
    b.dataset.id = p.id;
    b.setAttribute("role", "tab");
    b.setAttribute("aria-controls", p.id);
    b.onclick = () => open(p.id);
  });
  drawProgram();
  list(document.querySelector("#tape .list"), data.tape, "call", "Tape");
  const none = [["There is no plan: this is played by NumPy.", -1]];
  list(document.querySelector("#plan .list"), data.plan.length ? data.plan : none, "step", "Plan");
  list(document.querySelector("#source .list"), data.source.length ? data.source : [["There is no source.", []]], (k) => ["row", data.source.length ? k : -1], "Source");
  open("code");
  $("theme").onclick = () => theme(!isDark());
  $("help").onclick = keys;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
    if (e.key === "Escape") choose(null);
    else if (e.key === "t") theme(!isDark());
    else if (e.key === "?") keys();
    else if (e.key === "[" || e.key === "]") { open("passes"); step(e.key === "]" ? 1 : -1); }
    else if (panels[+e.key - 1]) open(panels[+e.key - 1].id);
    else if (e.target.closest("nav") && (e.key === "ArrowRight" || e.key === "ArrowLeft")) {
      const k = panels.findIndex((p) => !p.hidden) + (e.key === "ArrowRight" ? 1 : -1);
      const to = panels[(k + panels.length) % panels.length];
      open(to.id);
      document.querySelector(`nav [data-id="${to.id}"]`).focus();
    }
  });
  const divider = $("divider"), widen = (px) => document.body.style.setProperty("--program", `${Math.max(180, Math.min(innerWidth - 320, px))}px`);
  divider.onpointerdown = (e) => { divider.setPointerCapture(e.pointerId); divider.onpointermove = (m) => widen(m.clientX - 14); };
  divider.onpointerup = () => { divider.onpointermove = null; };
  divider.onkeydown = (e) => { const by = { ArrowLeft: -40, ArrowRight: 40 }[e.key]; if (by) widen($("program").offsetWidth + by); };
  addEventListener("beforeprint", () => {
    theme(false);
    for (const p of panels) { p.hidden = false; if (DRAW[p.id] && !drawn[p.id]) { drawn[p.id] = true; DRAW[p.id](); } }
    links.printing(true);
    links.printed = PRINTED;
    for (const l of links.lists) l.fill();
  });
  addEventListener("afterprint", () => { links.printed = 0; links.printing(false); open("code"); });
  document.documentElement.dataset.ready = "yes";
}
start().catch((error) => {
  console.error(error);
  document.body.prepend(make("p", "note", `This page can't be shown: ${error}. It takes a browser of 2023 or later.`));
});
