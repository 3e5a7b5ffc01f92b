"use strict";
// Tabs, sorting, the choice of a file, and the drawing of graphs. Everything here is also in the page's tables.
(() => {
  document.documentElement.classList.add("js");
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const svgElement = (tag, attributes = {}) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const units = (value, names, base) => {
    let power = 0;
    while (value >= base && power < names.length - 1) { value /= base; power += 1; }
    return `${value >= 100 || !power ? Math.round(value) : value.toPrecision(3)} ${names[power]}`;
  };
  const bytes = (n) => units(n, ["B", "KiB", "MiB", "GiB"], 1024);
  const counted = (n) => units(n, ["", "K", "M", "G", "T"], 1000).trim();
  const figure = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));
  const time = (ms) => (!ms ? "0 s" : ms >= 1000 ? `${figure(ms / 1000)} s` : ms >= 1 ? `${figure(ms)} ms` : ms >= 1e-3 ? `${figure(ms * 1e3)} µs` : `${figure(ms * 1e6)} ns`);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const styles = new Map(); // a lookup costs more than drawing a box: until the scheme changes, values are stored
  dark.addEventListener("change", () => styles.clear());
  const css = (name) => {
    if (!styles.has(name)) styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return styles.get(name);
  };

  // ------------------------------------------------------------------------------------------------------ tabs
  const nav = document.querySelector("nav");
  const tabs = [...document.querySelectorAll("nav a")];
  const panels = tabs.map((tab) => byId(tab.hash.slice(1)));
  const onShow = [];
  const show = (at, focus) => {
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === at);
      tab.tabIndex = i === at ? 0 : -1;
      panels[i].hidden = i !== at;
    });
    if (focus) tabs[at].focus();
    nav.scrollLeft = tabs[at].offsetLeft - nav.offsetLeft - (nav.clientWidth - tabs[at].offsetWidth) / 2; // a phone has no room for all
    if (byId("chooser")) byId("chooser").hidden = ["compare", "sweep"].includes(panels[at].id); // they are about all files
    onShow.forEach((action) => action());
  };
  nav.setAttribute("role", "tablist");
  tabs.forEach((tab, i) => {
    tab.setAttribute("role", "tab");
    tab.id = `tab-${panels[i].id}`;
    tab.setAttribute("aria-controls", panels[i].id);
    panels[i].setAttribute("role", "tabpanel");
    panels[i].setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", (event) => { event.preventDefault(); history.replaceState(null, "", tab.hash); show(i); });
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show((to + tabs.length) % tabs.length, true);
    });
  });

  const chooser = byId("file");
  if (chooser) {
    const choose = () => {
      document.querySelectorAll(".file").forEach((part) => { part.hidden = part.dataset.file !== chooser.value; });
      onShow.forEach((action) => action());
    };
    chooser.addEventListener("change", choose);
    choose();
  }

  // --------------------------------------------------------------------------------------------------- sorting
  const sort = (head, index) => {
    const body = head.closest("table").tBodies[0];
    const descending = head.getAttribute("aria-sort") === "descending" ||
      (!head.hasAttribute("aria-sort") && !head.classList.contains("n")) ? 1 : -1;
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending === 1 ? "ascending" : "descending");
    const key = (row) => {
      const cell = row.cells[index];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === ""); // what is not known comes last
      return descending * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    });
    body.append(...rows.map(([, row]) => row));
  };
  document.querySelectorAll("thead th").forEach((head) => {
    const button = make("button", { type: "button" }, head.textContent);
    head.dataset.text = head.textContent; // for print: browsers do not draw buttons in heads that they repeat on each page
    head.replaceChildren(button);
    button.addEventListener("click", () => sort(head, head.cellIndex));
  });

  // ----------------------------------------------------------------------------------------------- flame chart
  document.querySelectorAll(".flame").forEach((chart) => {
    const spans = [...chart.querySelectorAll(".cut")], times = [...chart.querySelectorAll(".time")];
    const total = Math.max(...spans.map((g) => Number(g.dataset.s) + Number(g.dataset.l)), 1e-9);
    let focus = null;
    const draw = (start, length) => {
      const wide = chart.getBoundingClientRect().width;
      spans.forEach((g) => {
        const left = Math.max((100 * (g.dataset.s - start)) / length, 0);
        const right = Math.min((100 * (Number(g.dataset.s) + Number(g.dataset.l) - start)) / length, 100);
        g.style.display = right < 0 || left > 100 ? "none" : "";
        g.setAttribute("x", `${left}%`);
        g.setAttribute("width", `${Math.max(right - left, 0.05)}%`);
        g.querySelector("text")?.remove();
        if ((right - left) * wide > 3000) {
          const text = svgElement("text", { x: 4, y: 16 });
          text.textContent = g.dataset.n;
          g.append(text);
        }
      });
      times.forEach((text, i) => { text.textContent = time((start + (length * i) / (times.length - 1)) / 1e3); });
    };
    chart.addEventListener("click", (event) => {
      const g = event.target.closest(".cut");
      focus = !g || focus === g ? null : g;
      draw(focus ? Number(g.dataset.s) : 0, focus ? Math.max(Number(g.dataset.l), 1e-3) : total);
    });
    const start = () => { if (!focus && chart.getBoundingClientRect().width) draw(0, total); };
    onShow.push(start);
    addEventListener("resize", start);
  });

  // ----------------------------------------------------------------------------------------------- graph model
  const SEARCH = 1e6; // boxes that are looked at while the operators of a module are divided
  // A module holds operators and modules; what is closed is drawn as one box.
  const buildTree = (graph) => {
    const root = { name: "", path: "", key: "", children: [], parent: null, open: true, depth: 0, first: 0 };
    const modules = new Map([["", root]]);
    const ops = graph.nodes.map((node, index) => ({ node, index, first: index, name: node.n, segments: graph.texts[node.m] ? graph.texts[node.m].split(".") : [] }));
    divide(root, ops, graph.nodes, modules);
    for (const op of ops) {
      for (let m = op.parent; m; m = m.parent) {
        m.count = (m.count || 0) + 1;
        for (const key of ["c", "b", "w", "t", "y"]) if (op.node[key]) m[key] = (m[key] || 0) + op.node[key];
        if (op.node.e !== undefined) m.e = Math.min(m.e ?? Infinity, op.node.e);
        (m.places ??= new Map()).set(op.node.p, (m.places.get(op.node.p) || 0) + 1);
      }
    }
    flatten(root, modules);
    return { graph, root, modules, ops };
  };
  // Puts operators into a module and into the modules in it. What runs between operators of a module, such as a delegate
  // between two kernel calls, divides it into parts: a box that reads what another box makes of its own results could not
  // be drawn above or below that.
  const divide = (box, ops, nodes, modules) => {
    const homes = new Map(), current = new Map(); // the child of each operator; the last part of each module
    let steps = SEARCH;
    const leadsTo = (part, starts) => {
      const seen = new Set(starts), stack = [...seen];
      while (stack.length && steps > 0) {
        steps -= 1;
        const item = stack.pop();
        if (item === part) return true;
        for (const before of item.reads) if (!seen.has(before)) { seen.add(before); stack.push(before); }
      }
      return steps <= 0; // too long to search: another part is never wrong
    };
    for (const op of ops) {
      const inputs = (nodes[op.index].i || []).map((from) => homes.get(from)).filter(Boolean);
      let home = op;
      if (op.segments.length > box.depth) {
        const name = op.segments[box.depth];
        home = current.get(name);
        const others = new Set(inputs.filter((item) => item !== home));
        if (!home || (others.size && leadsTo(home, others))) {
          const path = op.segments.slice(0, box.depth + 1).join(".");
          home = { name, path, key: `${path}\n${op.index}`, children: [], parent: box, open: false, depth: box.depth + 1, first: op.index, ops: [] };
          current.set(name, home);
          modules.set(home.key, home);
          box.children.push(home);
        }
        home.ops.push(op);
      } else {
        op.parent = box;
        op.depth = box.depth + 1;
        box.children.push(op);
      }
      home.reads ??= new Set();
      inputs.forEach((item) => { if (item !== home) home.reads.add(item); });
      homes.set(op.index, home);
    }
    for (const child of box.children) {
      child.reads = null;
      if (!isModule(child)) continue;
      divide(child, child.ops, nodes, modules);
      child.ops = null;
    }
  };
  // A module of one operator is that operator, and a module of one module is that module.
  const flatten = (module, modules) => {
    module.children = module.children.map((child) => {
      let item = child, name = child.name;
      while (isModule(item) && item.children.length === 1) {
        modules.delete(item.key);
        [item] = item.children;
        name = isModule(item) ? `${name}.${item.name}` : name;
      }
      item.parent = module;
      if (isModule(item)) item.name = name;
      else if (item !== child) item.label = name;
      return item;
    });
    for (const child of module.children) {
      child.depth = module.depth + 1;
      if (isModule(child)) flatten(child, modules);
    }
  };
  const isModule = (item) => item.children !== undefined;
  const shown = (item) => { // the box that stands for an item
    let best = item;
    for (let m = item.parent; m; m = m.parent) if (!m.open) best = m;
    return best;
  };

  // ------------------------------------------------------------------------------------------- layered layout
  const GAP_X = 28, GAP_Y = 34, PAD = 20, TITLE = 22;
  // The rank of a box: one more than that of any box that it reads.
  const ranksOf = (boxes, sources) => {
    const rank = new Map(), readers = new Map(), left = new Map();
    for (const box of boxes) {
      const from = sources.get(box) || [];
      left.set(box, from.size || 0);
      for (const source of from) { if (!readers.has(source)) readers.set(source, []); readers.get(source).push(box); }
    }
    const ready = boxes.filter((box) => !left.get(box));
    ready.forEach((box) => rank.set(box, 0));
    for (let at = 0; at < ready.length; at += 1) {
      for (const reader of readers.get(ready[at]) || []) {
        rank.set(reader, Math.max(rank.get(reader) || 0, rank.get(ready[at]) + 1));
        left.set(reader, left.get(reader) - 1);
        if (!left.get(reader)) ready.push(reader);
      }
    }
    for (const box of boxes) if (!rank.has(box)) rank.set(box, 0); // of a cycle, which no program has
    return rank;
  };
  const layout = (tree, measure) => {
    const links = new Map(); // per open module: edges between its children
    const visible = new Map(); // edges between boxes
    tree.graph.nodes.forEach((node, to) => (node.i || []).forEach((from) => {
      const a = tree.ops[from], b = tree.ops[to];
      if (!a) return;
      const source = shown(a), target = shown(b);
      if (source === target) return;
      let x = source, y = target;
      while (x.depth > y.depth) x = x.parent;
      while (y.depth > x.depth) y = y.parent;
      while (x.parent !== y.parent) { x = x.parent; y = y.parent; }
      if (x !== y) {
        if (!links.has(x.parent)) links.set(x.parent, new Map());
        const list = links.get(x.parent);
        if (!list.has(y)) list.set(y, new Set());
        list.get(y).add(x);
      }
      visible.set(`${source.key ?? source.index}\n\n${target.key ?? target.index}`, [source, target]);
    }));
    const place = (box) => {
      const children = [...box.children].sort((a, b) => a.first - b.first);
      children.forEach((child) => { if (isModule(child) && child.open) place(child); else [child.w2, child.h2] = measure(child); });
      const sources = links.get(box) || new Map();
      const rank = ranksOf(children, sources), rows = [];
      for (const child of children) (rows[rank.get(child)] ??= []).push(child);
      let y = PAD + TITLE, width = 0;
      for (const row of rows) {
        for (const item of row) {
          const from = [...(sources.get(item) || [])].filter((s) => rank.get(s) < rank.get(item));
          item.wish = from.length ? from.reduce((sum, s) => sum + s.x + s.w2 / 2, 0) / from.length : item.wish ?? 0;
        }
        row.sort((a, b) => a.wish - b.wish || a.first - b.first);
        let x = 0;
        row.forEach((item) => { item.x = x; x += item.w2 + GAP_X; });
        const shift = row.reduce((sum, i) => sum + i.wish - i.x - i.w2 / 2, 0) / row.length;
        row.forEach((item) => { item.x += shift; item.y = y; });
        y += Math.max(...row.map((i) => i.h2)) + GAP_Y;
      }
      const left = Math.min(...children.map((c) => c.x)), right = Math.max(...children.map((c) => c.x + c.w2));
      children.forEach((c) => { c.x += PAD - left; });
      width = right - left + 2 * PAD;
      box.w2 = Math.max(width, 90);
      box.h2 = y - GAP_Y + PAD;
    };
    if (tree.root.children.length) place(tree.root);
    const boxes = [];
    const absolute = (box, dx, dy) => box.children.forEach((c) => {
      c.ax = dx + c.x; c.ay = dy + c.y;
      boxes.push(c);
      if (isModule(c) && c.open) absolute(c, c.ax, c.ay);
    });
    absolute(tree.root, 0, 0);
    const solid = boxes.filter((b) => !(isModule(b) && b.open)).sort((a, b) => a.ay - b.ay);
    const after = (y) => { // the first box below y
      let low = 0, high = solid.length;
      while (low < high) { const middle = (low + high) >> 1; if (solid[middle].ay < y) low = middle + 1; else high = middle; }
      return low;
    };
    const blocked = (a, b) => { // something is between them: the line goes around it
      const x = (a.ax + a.w2 / 2 + b.ax + b.w2 / 2) / 2;
      for (let i = after(a.ay + a.h2); i < solid.length && solid[i].ay + solid[i].h2 < b.ay; i += 1) {
        if (solid[i].ax < x && x < solid[i].ax + solid[i].w2) return solid[i].ax + solid[i].w2;
      }
      return 0;
    };
    return { boxes, edges: [...visible.values()].map(([a, b]) => [a, b, blocked(a, b)]) };
  };

  // ----------------------------------------------------------------------------------------------- the drawing
  const CIVIDIS = [[0, 34, 78], [66, 78, 108], [125, 124, 120], [187, 175, 113], [255, 234, 70]];
  const ramp = (part) => {
    const at = Math.min(Math.max(part, 0), 1) * (CIVIDIS.length - 1), low = Math.min(Math.floor(at), CIVIDIS.length - 2);
    return CIVIDIS[low].map((c, i) => Math.round(c + (CIVIDIS[low + 1][i] - c) * (at - low)));
  };
  const MEASURES = {
    placement: null,
    time: { key: "t", text: (v) => time(v), title: "time on this machine" },
    macs: { key: "c", text: counted, title: "multiply-accumulates" },
    weights: { key: "w", text: bytes, title: "bytes of weights" },
    cycles: { key: "y", text: (v) => `${counted(v)} cycles`, title: "cycles on the device, estimated" },
    error: { key: "e", text: (v) => `${v.toFixed(1)} dB`, title: "error introduced (SQNR; less is worse)", inverse: true },
  };

  const EXACT = 200; // decibels from which a result counts as exact: they would leave no colors for errors
  const exact = (m, value) => m.inverse && value >= EXACT;
  const PRINTED = 60, PAPER = [700, 500]; // boxes of a printed graph; pixels of a page, with a heading
  const textAt = (text, x, y, most, style) => { // shortened: a printed text does not shrink as a canvas's does
    const element = svgElement("text", { x, y, class: style });
    const fits = Math.floor(most / (style === "small" ? 5.4 : 6.6));
    element.textContent = text.length > fits ? `${text.slice(0, fits - 1)}…` : text;
    return element;
  };
  // An edge from a to b, around what is between them; the pen is a canvas, or makes a path for print.
  const drawEdge = (pen, a, b, around) => {
    const x1 = a.ax + a.w2 / 2, y1 = a.ay + a.h2, x2 = b.ax + b.w2 / 2, y2 = b.ay, bend = Math.max(14, Math.min((y2 - y1) / 2, 60));
    pen.moveTo(x1, y1);
    if (around) {
      const side = Math.max(a.ax + a.w2, b.ax + b.w2, around) + 8 + Math.min((y2 - y1) / 40, 24);
      pen.bezierCurveTo(x1 + 6, y1 + 16, side, y1 + 10, side, y1 + 40);
      pen.lineTo(side, y2 - 40);
      pen.bezierCurveTo(side, y2 - 10, x2 + 6, y2 - 16, x2, y2);
    } else pen.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    pen.moveTo(x2 - 4, y2 - 6);
    pen.lineTo(x2, y2);
    pen.lineTo(x2 + 4, y2 - 6);
  };

  const hueByName = new Map(); // a backend has one color in all graphs of a page
  const hueOf = (name) => {
    if (name === "cpu") return "--c4";
    if (!hueByName.has(name)) hueByName.set(name, ["--c0", "--c1", "--c2", "--c3"][hueByName.size % 4]);
    return hueByName.get(name);
  };

  const drawGraph = (place, graph) => {
    const tree = buildTree(graph);
    const canvas = make("canvas", { tabindex: "0", role: "application", "aria-label":
      "Graph. Arrow keys pan, plus and minus zoom, 0 fits, N and P select the next and previous operator, Enter opens or closes a module, slash searches." });
    const context = canvas.getContext("2d");
    const detail = make("div", { class: "detail", "aria-live": "polite", tabindex: "0", role: "region", "aria-label": `Selected operator of the ${graph.title}` });
    const search = make("input", { type: "search", placeholder: "name, operator, module, rule", "aria-label": "Search the graph" });
    const color = make("select", { "aria-label": "Color by" });
    for (const [key, m] of Object.entries(MEASURES)) {
      if (!m || graph.nodes.some((n) => n[m.key] !== undefined)) color.append(make("option", { value: key }, `color: ${m ? m.title : "where it runs"}`));
    }
    const hits = make("ul", { class: "hits", "aria-label": "Search results" });
    const key = make("div", { class: "key" });
    const button = (text, label, action) => {
      const made = make("button", { type: "button", "aria-label": label }, text);
      made.addEventListener("click", action);
      return made;
    };
    let view = { x: 0, y: 0, zoom: 1 }, drawn = { boxes: [], edges: [] }, selected = null, pending = 0, ready = false;
    const places = [...new Set(graph.nodes.map((n) => n.p))];
    const hues = places.map((p) => hueOf(graph.texts[p]));

    const measure = (item) => {
      context.font = "13px system-ui, sans-serif";
      const [first, second] = lines(item);
      const width = Math.max(context.measureText(first).width, context.measureText(second).width);
      return [Math.min(Math.max(width + 20, 70), 320), 44];
    };
    const lines = (item) => isModule(item)
      ? [item.name, `${item.count} operators`]
      : [(item.label ? `${item.label}: ` : "") + graph.texts[item.node.o].replace(/^aten::|\.out$/g, ""), (item.node.s || [""])[0].split(" scale")[0]];
    const arrange = () => { drawn = layout(tree, measure); request(); };
    const request = () => { if (!pending) pending = requestAnimationFrame(() => { pending = 0; paint(); }); };
    const resize = () => {
      const scale = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
      if (!box.width) return false;
      canvas.width = box.width * scale;
      canvas.height = box.height * scale;
      return true;
    };
    const fit = () => {
      const box = canvas.getBoundingClientRect(), root = tree.root;
      const whole = Math.min(box.width / (root.w2 + 20), box.height / (root.h2 + 20), 1.2);
      view.zoom = Math.max(whole, Math.min(0.85, box.width / (root.w2 + 20))); // readable: long graphs start at their top
      view.x = (box.width - root.w2 * view.zoom) / 2;
      view.y = whole < view.zoom ? 4 : (box.height - root.h2 * view.zoom) / 2;
      request();
    };
    const ranges = new Map();
    const range = (m) => {
      if (!ranges.has(m.key)) {
        let low = Infinity, high = -Infinity;
        for (const { [m.key]: v } of graph.nodes) if (v !== undefined && !exact(m, v)) { low = Math.min(low, v); high = Math.max(high, v); }
        ranges.set(m.key, low <= high ? [low, high] : [0, 0]);
      }
      return ranges.get(m.key);
    };
    const fill = (item, css) => {
      const m = MEASURES[color.value];
      const data = isModule(item) ? item : item.node;
      if (!m) {
        const p = isModule(item) ? [...item.places].sort((a, b) => b[1] - a[1])[0][0] : item.node.p;
        return [css(hues[places.indexOf(p)]), 0.5, css("--text")];
      }
      const value = data[m.key];
      if (value === undefined) return [css("--panel"), 1, css("--text")];
      const [low, high] = range(m);
      let part = exact(m, value) || high === low ? 1 : (value - low) / (high - low);
      if (m.inverse) part = 1 - part;
      const rgb = ramp(Math.sqrt(part));
      const light = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2] > 125;
      return [`rgb(${rgb})`, 1, light ? "#111" : "#fff"];
    };
    const paint = () => {
      const scale = devicePixelRatio || 1, { x, y, zoom } = view;
      const box = { width: canvas.width / scale, height: canvas.height / scale };
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.fillStyle = css("--bg");
      context.fillRect(0, 0, box.width, box.height);
      context.setTransform(scale * zoom, 0, 0, scale * zoom, scale * x, scale * y);
      const inside = (b, m = 0) => (b.ax + b.w2 + m) * zoom + x > 0 && (b.ax - m) * zoom + x < box.width && (b.ay + b.h2 + m) * zoom + y > 0 && (b.ay - m) * zoom + y < box.height;
      const line = css("--dim"), text = css("--text"), mark = css("--select");
      for (const b of drawn.boxes) {
        if (!(isModule(b) && b.open) || !inside(b)) continue;
        context.globalAlpha = 0.5;
        context.fillStyle = css("--panel");
        context.fillRect(b.ax, b.ay, b.w2, b.h2);
        context.globalAlpha = 1;
        context.strokeStyle = b === selected ? mark : css("--line");
        context.lineWidth = (b === selected ? 3 : 1) / Math.min(zoom, 1);
        context.strokeRect(b.ax, b.ay, b.w2, b.h2);
        context.fillStyle = text;
        context.font = "600 13px system-ui, sans-serif";
        if (zoom > 0.25) context.fillText(`− ${b.name}`, b.ax + 8, b.ay + 17, b.w2 - 12);
      }
      context.strokeStyle = line;
      context.lineWidth = 1 / Math.min(zoom, 1);
      context.globalAlpha = 0.75;
      context.beginPath();
      for (const [a, b, around] of drawn.edges) {
        if (!inside(a, 400) && !inside(b, 400)) continue;
        if (zoom < 0.08) {
          context.moveTo(a.ax + a.w2 / 2, a.ay + a.h2);
          context.lineTo(b.ax + b.w2 / 2, b.ay);
        } else drawEdge(context, a, b, around);
      }
      context.stroke();
      context.globalAlpha = 1;
      for (const b of drawn.boxes) {
        if ((isModule(b) && b.open) || !inside(b)) continue;
        const [back, alpha, front] = fill(b, css);
        if (zoom < 0.15 && b !== selected) { // too small for rounded corners and borders, and there may be thousands
          context.globalAlpha = Math.max(alpha, 0.7);
          context.fillStyle = back;
          context.fillRect(b.ax, b.ay, b.w2, b.h2);
          context.globalAlpha = 1;
          continue;
        }
        context.beginPath();
        context.roundRect(b.ax, b.ay, b.w2, b.h2, isModule(b) ? 3 : 9);
        context.fillStyle = css("--bg");
        context.fill();
        context.globalAlpha = alpha;
        context.fillStyle = back;
        context.fill();
        context.globalAlpha = 1;
        const onCpu = isModule(b) ? false : graph.texts[b.node.p] === "cpu";
        context.setLineDash(onCpu ? [5, 3] : []); // not by color alone
        context.strokeStyle = b === selected ? mark : line;
        context.lineWidth = (b === selected ? 4 : isModule(b) ? 2 : 1) / Math.min(zoom, 1);
        context.stroke();
        context.setLineDash([]);
        if (zoom < 0.3) continue;
        const [first, second] = lines(b);
        context.fillStyle = front;
        context.font = `${isModule(b) ? "600 " : ""}13px system-ui, sans-serif`;
        context.fillText(isModule(b) ? `+ ${first}` : first, b.ax + 10, b.ay + (second ? 18 : 26), b.w2 - 16);
        context.font = "11px system-ui, sans-serif";
        context.fillText(second, b.ax + 10, b.ay + 34, b.w2 - 16);
      }
    };

    // ------------------------------------------------------------------------------------------- selection
    const entry = (list, name, value) => { if (value !== undefined && value !== "") list.append(make("dt", {}, name), make("dd", {}, value)); };
    const bars = (h) => {
      const [title, low, high, counts, values, sampled] = h, most = Math.max(...counts, 1);
      const svg = svgElement("svg", { viewBox: "0 0 240 70", preserveAspectRatio: "none", role: "img", "aria-label": `Histogram of ${title}` });
      counts.forEach((count, i) => {
        const height = (68 * count) / most, wide = 240 / counts.length;
        svg.append(svgElement("rect", { x: i * wide, y: 70 - height, width: wide - 1, height }));
      });
      const part = sampled < values ? `, ${sampled.toLocaleString("en")} of ${values.toLocaleString("en")} sampled` : "";
      return make("dd", {}, svg, `${low.toPrecision(4)} to ${high.toPrecision(4)}${part}`);
    };
    const describe = () => {
      if (!selected) {
        detail.replaceChildren(make("p", {}, "Select an operator to see its shapes, quantization, source and rules. Double-click or Enter opens and closes a module."));
        return;
      }
      const list = make("dl");
      const node = selected.node;
      if (isModule(selected)) {
        entry(list, "operators", String(selected.count));
        entry(list, "runs on", [...selected.places].map(([p, n]) => `${graph.texts[p]}: ${n}`).join(", "));
        entry(list, "MACs", selected.c && counted(selected.c));
        entry(list, "weights", selected.w && bytes(selected.w));
        entry(list, "time of its products here", selected.t && time(selected.t));
        entry(list, "cycles on the device, estimated", selected.y && counted(selected.y));
      } else {
        entry(list, "name", node.n);
        entry(list, "module", graph.texts[node.m]);
        entry(list, "runs on", graph.texts[node.p]);
        (node.s || []).forEach((s) => entry(list, "result", s));
        (node.q || []).forEach((q) => entry(list, "quantization", q));
        entry(list, "source", node.l === undefined ? "" : graph.texts[node.l]);
        (node.r || []).forEach((r) => entry(list, "not delegated", graph.texts[r]));
        entry(list, "MACs", node.c && node.c.toLocaleString("en"));
        entry(list, "result bytes", node.b && bytes(node.b));
        entry(list, "weights", node.w && bytes(node.w));
        entry(list, "time here", node.t && time(node.t));
        entry(list, "error it introduces", node.e !== undefined ? (node.e >= EXACT ? "none" : `${node.e.toFixed(1)} dB SQNR`) : "");
        entry(list, "cycles", node.y && node.y.toLocaleString("en"));
        (node.h || []).forEach((h) => list.append(make("dt", {}, h[0]), bars(h)));
      }
      detail.replaceChildren(make("h4", {}, isModule(selected) ? selected.path : graph.texts[node.o]), list);
    };
    const select = (item, center) => {
      selected = item;
      describe();
      if (item && center) {
        let closed = false;
        for (let m = item.parent; m; m = m.parent) if (!m.open) { m.open = true; closed = true; }
        if (closed) arrange();
        const box = canvas.getBoundingClientRect();
        view.zoom = Math.max(view.zoom, 0.7);
        view.x = box.width / 2 - (item.ax + item.w2 / 2) * view.zoom;
        view.y = box.height / 2 - (item.ay + item.h2 / 2) * view.zoom;
      }
      request();
    };
    const toggle = (item) => { if (item && isModule(item)) { item.open = !item.open; arrange(); } };
    const at = (px, py) => {
      const x = (px - view.x) / view.zoom, y = (py - view.y) / view.zoom;
      return drawn.boxes.findLast((b) => x >= b.ax && x <= b.ax + b.w2 && y >= b.ay && y <= b.ay + b.h2) || null;
    };
    const zoomAt = (factor, px, py) => {
      const zoom = Math.min(Math.max(view.zoom * factor, 0.02), 4), by = zoom / view.zoom;
      view = { zoom, x: px - (px - view.x) * by, y: py - (py - view.y) * by };
      request();
    };
    const zoomMiddle = (factor) => { const box = canvas.getBoundingClientRect(); zoomAt(factor, box.width / 2, box.height / 2); };

    // --------------------------------------------------------------------------------------------- pointers
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, e); moved = 0; });
    canvas.addEventListener("pointermove", (e) => {
      const before = pointers.get(e.pointerId);
      if (!before) return;
      const others = [...pointers.values()].filter((p) => p.pointerId !== e.pointerId);
      if (others.length) {
        const o = others[0], box = canvas.getBoundingClientRect();
        const far = (p) => Math.hypot(p.clientX - o.clientX, p.clientY - o.clientY);
        zoomAt(far(e) / Math.max(far(before), 1), (e.clientX + o.clientX) / 2 - box.left, (e.clientY + o.clientY) / 2 - box.top);
      } else {
        view.x += e.clientX - before.clientX;
        view.y += e.clientY - before.clientY;
      }
      moved += Math.abs(e.clientX - before.clientX) + Math.abs(e.clientY - before.clientY);
      pointers.set(e.pointerId, e);
      request();
    });
    const release = (e) => pointers.delete(e.pointerId);
    canvas.addEventListener("pointerup", (e) => { release(e); if (moved < 5) select(at(e.offsetX, e.offsetY)); });
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("dblclick", (e) => toggle(at(e.offsetX, e.offsetY)));
    canvas.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && document.activeElement !== canvas) return; // the page scrolls past a graph that nobody uses
      e.preventDefault();
      zoomAt(Math.exp(-e.deltaY / 400), e.offsetX, e.offsetY);
    }, { passive: false });

    // --------------------------------------------------------------------------------------------- keyboard
    const step = (by) => {
      const items = drawn.boxes.filter((b) => !(isModule(b) && b.open)).sort((a, b) => a.first - b.first);
      const now = items.indexOf(selected);
      select(items[Math.min(Math.max(now + by, 0), items.length - 1)], true);
    };
    const keys = {
      ArrowLeft: () => { view.x += 60; }, ArrowRight: () => { view.x -= 60; }, ArrowUp: () => { view.y += 60; }, ArrowDown: () => { view.y -= 60; },
      "+": () => zoomMiddle(1.25), "=": () => zoomMiddle(1.25), "-": () => zoomMiddle(0.8), 0: fit,
      n: () => step(1), p: () => step(-1), Enter: () => toggle(selected), "/": () => search.focus(), Escape: () => select(null),
    };
    canvas.addEventListener("keydown", (e) => {
      const action = keys[e.key];
      if (!action || e.ctrlKey || e.metaKey) return;
      e.preventDefault();
      action();
      request();
    });

    // ----------------------------------------------------------------------------------------------- search
    const find = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      hits.replaceChildren();
      if (!words.length) return;
      const found = tree.ops.filter(({ node }) => {
        const text = [node.n, graph.texts[node.o], graph.texts[node.m], graph.texts[node.p], ...(node.r || []).map((r) => graph.texts[r]), node.l === undefined ? "" : graph.texts[node.l]].join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      });
      const wanted = words.join(" "); // conv2 is found before the conv2d of conv1
      const named = ({ node }) => [node.n, graph.texts[node.m], graph.texts[node.m].split(".").pop()].some((name) => name.toLowerCase() === wanted);
      const matches = [...found.filter(named), ...found.filter((op) => !named(op))];
      matches.slice(0, 12).forEach((op) => hits.append(make("li", {}, button(`${graph.texts[op.node.m] || op.name}: ${graph.texts[op.node.o]}`, `Go to ${op.name}`, () => select(op, true)))));
      hits.append(make("li", {}, matches.length > 12 ? `and ${matches.length - 12} more` : matches.length ? "" : "nothing found"));
    };
    search.addEventListener("input", find);
    search.addEventListener("keydown", (e) => { if (e.key === "Enter") hits.querySelector("button")?.click(); });

    // ------------------------------------------------------------------------------------------------ setup
    const legend = () => {
      key.replaceChildren();
      const m = MEASURES[color.value];
      const add = (name, back) => { const made = make("span", {}, name); made.style.setProperty("--k", back); key.append(made); };
      if (!m) places.forEach((p, i) => add(graph.texts[p] + (graph.texts[p] === "cpu" ? " (dashed)" : ""), `color-mix(in srgb, var(${hues[i]}) 50%, var(--bg))`));
      else {
        const [low, high] = range(m);
        [0, 0.5, 1].forEach((part) => add(m.text(low + (high - low) * (m.inverse ? 1 - part * part : part * part)), `rgb(${ramp(part)})`));
        add("none, or not known", "var(--panel)");
      }
      request();
    };
    color.addEventListener("change", legend);
    const openAll = () => { tree.modules.forEach((m) => { m.open = true; }); arrange(); fit(); };
    const closeAll = () => { tree.modules.forEach((m) => { m.open = m === tree.root; }); arrange(); fit(); };
    const buttons = [button("+", "Zoom in", () => zoomMiddle(1.25)), button("−", "Zoom out", () => zoomMiddle(0.8)), button("fit", "Fit the graph", fit),
      button("open all", "Open all modules", openAll), button("close all", "Close all modules", closeAll)];
    place.append(make("div", { class: "tools" }, search, color, ...buttons), hits, make("div", { class: "bench" }, canvas, detail), key);
    const openSome = (tree, limit, most) => { // modules from the outside in, as long as the boxes are few
      const queue = [tree.root];
      let boxes = 0;
      while (queue.length) {
        const m = queue.shift();
        if (boxes + m.children.length > (boxes > 1 ? limit : most) && m !== tree.root) continue; // a single box says nothing
        m.open = true;
        boxes += m.children.length;
        queue.push(...m.children.filter(isModule));
      }
    };
    openSome(tree, 80, 2000);
    describe();
    legend(); // in print also of a graph that was not shown on the screen
    const start = () => {
      if (!resize()) return;
      if (!ready) { ready = true; arrange(); fit(); } else request();
    };
    onShow.push(start);
    addEventListener("resize", start);
    dark.addEventListener("change", request);
    place.graph = { tree, select, openAll, sheet: () => sheet(), get boxes() { return drawn.boxes.length; }, get edges() { return drawn.edges; } };

    // ---------------------------------------------------------------------------------------------- for print
    // The graph as SVG, in columns as in a newspaper: paper does not scroll. Colors are variables, since paper is white
    // whatever the screen is.
    const sheet = () => {
      const paper = buildTree(graph);
      openSome(paper, PRINTED, 2 * PRINTED);
      const { boxes, edges } = layout(paper, measure), variable = (name) => `var(${name})`;
      const solid = boxes.filter((b) => !(isModule(b) && b.open));
      const wide = paper.root.w2 + 40, scale = Math.min(0.62, PAPER[0] / wide), high = PAPER[1] / scale;
      const body = svgElement("g");
      for (const b of boxes) {
        if (!(isModule(b) && b.open)) continue;
        body.append(svgElement("rect", { x: b.ax, y: b.ay, width: b.w2, height: b.h2, class: "frame" }), textAt(b.name, b.ax + 8, b.ay + 16, b.w2 - 12, "bold"));
      }
      const pen = { d: "", moveTo(...p) { this.d += `M${p.map(Math.round)}`; }, lineTo(...p) { this.d += `L${p.map(Math.round)}`; }, bezierCurveTo(...p) { this.d += `C${p.map(Math.round)}`; } };
      edges.forEach(([a, b, around]) => drawEdge(pen, a, b, around));
      body.append(svgElement("path", { d: pen.d, class: "wire" }));
      for (const b of solid) {
        const [back, alpha, front] = fill(b, variable), [first, second] = lines(b);
        const onCpu = !isModule(b) && graph.texts[b.node.p] === "cpu";
        const box = svgElement("rect", { x: b.ax, y: b.ay, width: b.w2, height: b.h2, rx: isModule(b) ? 3 : 9, class: onCpu ? "box oncpu" : "box" });
        box.style.fill = back;
        box.style.fillOpacity = alpha;
        const title = textAt(first, b.ax + 10, b.ay + (second ? 18 : 26), b.w2 - 16, isModule(b) ? "bold" : ""), type = textAt(second, b.ax + 10, b.ay + 34, b.w2 - 16, "small");
        title.style.fill = type.style.fill = front;
        body.append(box, title, type);
      }
      const rows = solid.map((b) => [b.ay, b.ay + b.h2]).sort((a, b) => a[0] - b[0]);
      const made = make("div", { class: "sheet", role: "img", "aria-label": `Graph of the ${graph.title}` });
      for (let top = 0; top < paper.root.h2;) {
        let end = Math.min(top + high, paper.root.h2);
        if (end < paper.root.h2) {
          const cut = rows.filter(([from, to]) => from < end && to > end);
          const above = Math.min(end, ...cut.map(([from]) => from - GAP_Y / 2));
          if (above > top) end = above;
        }
        const column = svgElement("svg", { viewBox: `0 ${top} ${wide} ${end - top}`, width: wide * scale, height: (end - top) * scale });
        column.append(body.cloneNode(true));
        made.append(column);
        top = end;
      }
      return made;
    };
  };

  const data = JSON.parse(byId("data").textContent);
  document.querySelectorAll(".graph").forEach((place) => {
    const graph = data[place.dataset.key];
    if (graph && graph.nodes.length) drawGraph(place, graph);
  });

  // ---------------------------------------------------------------------------------------------------- print
  let opened = [];
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".graph").forEach((place) => { if (place.graph) place.append(place.graph.sheet()); });
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((d) => { d.open = true; });
    panels.forEach((p) => { p.hidden = false; });
  });
  addEventListener("afterprint", () => {
    opened.forEach((d) => { d.open = false; });
    document.querySelectorAll(".sheet").forEach((drawing) => drawing.remove());
    show(Math.max(tabs.findIndex((t) => t.getAttribute("aria-selected") === "true"), 0));
  });
  show(Math.max(tabs.findIndex((tab) => tab.hash === location.hash), 0));
})();
