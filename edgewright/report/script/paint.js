// A graph on a canvas: frames of open modules, lines, boxes. What is out of sight is not drawn, and details that are too
// small to see are left out, since there may be thousands of boxes.
import { css } from "./page.js";
import { drawLine } from "./routes.js";
import { isModule } from "./tree.js";

const ROUGH = 0.08, SMALL = 0.15, TITLES = 0.25, TEXTS = 0.3; // zoom from which lines, boxes and texts are drawn in detail
const REACH = 400; // pixels around a box in which its lines are drawn

const text = (context, string, x, y, most, style) => {
  context.font = `${style} system-ui, sans-serif`;
  context.fillText(string, x, y, most);
};

// `view` is a transform of d3-zoom; `scene` has boxes, edges, what is selected and colors, and says a box's two lines of text.
export const paint = (context, view, scene) => {
  const scale = devicePixelRatio || 1, { x, y, k } = view;
  const width = context.canvas.width / scale, height = context.canvas.height / scale;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = css("--bg");
  context.fillRect(0, 0, width, height);
  context.setTransform(scale * k, 0, 0, scale * k, scale * x, scale * y);
  const inside = (b, m = 0) => (b.ax + b.w2 + m) * k + x > 0 && (b.ax - m) * k + x < width && (b.ay + b.h2 + m) * k + y > 0 && (b.ay - m) * k + y < height;
  for (const b of scene.boxes) if (isModule(b) && b.open && inside(b)) paintFrame(context, b, k, b === scene.selected);
  paintLines(context, scene.edges, k, (a, b) => inside(a, REACH) || inside(b, REACH));
  for (const b of scene.boxes) if (!(isModule(b) && b.open) && inside(b)) paintBox(context, b, k, scene);
};

const paintFrame = (context, b, k, selected) => {
  context.globalAlpha = 0.5;
  context.fillStyle = css("--panel");
  context.fillRect(b.ax, b.ay, b.w2, b.h2);
  context.globalAlpha = 1;
  context.strokeStyle = selected ? css("--select") : css("--line");
  context.lineWidth = (selected ? 3 : 1) / Math.min(k, 1);
  context.strokeRect(b.ax, b.ay, b.w2, b.h2);
  context.fillStyle = css("--text");
  if (k > TITLES) text(context, `− ${b.name}`, b.ax + 8, b.ay + 17, b.w2 - 12, "600 13px");
};

const paintLines = (context, edges, k, near) => {
  context.strokeStyle = css("--dim");
  context.lineWidth = 1 / Math.min(k, 1);
  context.globalAlpha = 0.75;
  context.beginPath();
  for (const [a, b, points] of edges) {
    if (!near(a, b)) continue;
    if (k < ROUGH) {
      context.moveTo(...points[0]);
      context.lineTo(...points[points.length - 1]);
    } else drawLine(context, points);
  }
  context.stroke();
  context.globalAlpha = 1;
};

const paintBox = (context, b, k, scene) => {
  const [back, alpha, front] = scene.colors.of(b, css), selected = b === scene.selected;
  if (k < SMALL && !selected) {
    context.globalAlpha = Math.max(alpha, 0.7);
    context.fillStyle = back;
    context.fillRect(b.ax, b.ay, b.w2, b.h2);
    context.globalAlpha = 1;
    return;
  }
  context.beginPath();
  context.roundRect(b.ax, b.ay, b.w2, b.h2, isModule(b) ? 3 : 9);
  context.fillStyle = css("--bg");
  context.fill();
  context.globalAlpha = alpha;
  context.fillStyle = back;
  context.fill();
  context.globalAlpha = 1;
  context.setLineDash(scene.onCpu(b) ? [5, 3] : []); // not by color alone
  context.strokeStyle = selected ? css("--select") : css("--dim");
  context.lineWidth = (selected ? 4 : isModule(b) ? 2 : 1) / Math.min(k, 1);
  context.stroke();
  context.setLineDash([]);
  if (k < TEXTS) return;
  const [first, second] = scene.lines(b);
  context.fillStyle = front;
  text(context, isModule(b) ? `+ ${first}` : first, b.ax + 10, b.ay + (second ? 18 : 26), b.w2 - 16, isModule(b) ? "600 13px" : "13px");
  text(context, second, b.ax + 10, b.ay + 34, b.w2 - 16, "11px");
};
