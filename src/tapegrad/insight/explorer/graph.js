// The graph: a canvas that draws the calls that are in sight.

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
