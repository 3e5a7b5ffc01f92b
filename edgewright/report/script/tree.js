// The tree of a graph: modules hold operators and modules, as the operators' names say. A closed module is one box.
const SEARCH = 1e6; // boxes that are looked at while the operators of a module are divided
const SUMS = ["c", "b", "w", "t", "y"]; // figures of operators that a module has the sum of

export const isModule = (item) => item.children !== undefined;

export const buildTree = (graph) => {
  const root = { name: "", path: "", key: "", children: [], parent: null, open: true, depth: 0, first: 0 };
  const modules = new Map([["", root]]);
  const ops = graph.nodes.map((node, index) => {
    const module = graph.texts[node.m];
    return { node, index, first: index, name: node.n, segments: module ? module.split(".") : [] };
  });
  divide(root, ops, graph.nodes, modules);
  for (const op of ops) for (let m = op.parent; m; m = m.parent) count(m, op.node);
  flatten(root, modules);
  return { graph, root, modules, ops };
};

const count = (module, node) => {
  module.count = (module.count || 0) + 1;
  for (const key of SUMS) if (node[key]) module[key] = (module[key] || 0) + node[key];
  if (node.e !== undefined) module.e = Math.min(module.e ?? Infinity, node.e);
  module.places ??= new Map();
  module.places.set(node.p, (module.places.get(node.p) || 0) + 1);
};

// Puts operators into a module and into the modules in it. What runs between operators of a module, such as a delegate
// between two kernel calls, divides it into parts: a box that reads what another box makes of its own results could not
// be drawn above or below that.
const divide = (box, ops, nodes, modules) => {
  const homes = new Map(), current = new Map(); // the child of each operator; the last part of each module
  const leadsTo = search();
  for (const op of ops) {
    const inputs = (nodes[op.index].i || []).map((from) => homes.get(from)).filter(Boolean);
    let home = op;
    if (op.segments.length > box.depth) {
      const name = op.segments[box.depth];
      home = current.get(name);
      const others = new Set(inputs.filter((item) => item !== home));
      if (!home || (others.size && leadsTo(home, others))) {
        home = addPart(box, op, name);
        current.set(name, home);
        modules.set(home.key, home);
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

const addPart = (box, op, name) => {
  const path = op.segments.slice(0, box.depth + 1).join(".");
  const part = { name, path, key: `${path}\n${op.index}`, children: [], parent: box, open: false, depth: box.depth + 1, first: op.index, ops: [] };
  box.children.push(part);
  return part;
};

// A function that tells whether what is in `starts` was computed from a part.
const search = () => {
  let steps = SEARCH;
  return (part, starts) => {
    const seen = new Set(starts), stack = [...seen];
    while (stack.length && steps > 0) {
      steps -= 1;
      const item = stack.pop();
      if (item === part) return true;
      for (const before of item.reads) if (!seen.has(before)) { seen.add(before); stack.push(before); }
    }
    return steps <= 0; // too long to search: another part is never wrong
  };
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

// The box that stands for an item: the outermost closed module around it, or the item.
export const shown = (item) => {
  let best = item;
  for (let m = item.parent; m; m = m.parent) if (!m.open) best = m;
  return best;
};

// Opens modules from the outside in, as long as the boxes are at most `limit`, or `most` while there is only one.
export const openSome = (tree, limit, most) => {
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
