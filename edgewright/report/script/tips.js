// What a chart says about the place under the pointer. Browsers show titles late, and never on a phone.
import { make } from "./page.js";

const NEAR = 24, MARGIN = 12; // pixels from a dot that is meant, and from the pointer
const tip = make("div", { class: "tip", hidden: "" });

const hide = () => { tip.hidden = true; document.querySelectorAll(".near").forEach((dot) => dot.classList.remove("near")); };
const place = (x, y, lines) => {
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + MARGIN + width > innerWidth ? x - MARGIN - width : x + MARGIN;
  tip.style.left = `${Math.max(Math.min(left, innerWidth - width - 4), 4)}px`;
  tip.style.top = `${y + MARGIN + height > innerHeight ? Math.max(y - MARGIN - height, 4) : y + MARGIN}px`;
};

const nearest = (dots, x, y) => {
  let best = null, least = NEAR;
  for (const dot of dots) {
    const box = dot.getBoundingClientRect(), far = Math.hypot(box.x + box.width / 2 - x, box.y + box.height / 2 - y);
    if (far < least) [best, least] = [dot, far];
  }
  return best;
};

// `about`: lines about a horizontal position, besides the shape that is there.
export const addTips = (chart, about = () => []) => {
  const titles = new Map([...chart.querySelectorAll("title")].map((title) => [title.parentNode, title.textContent]));
  const dots = [...chart.querySelectorAll(".dot")];
  chart.querySelectorAll("title").forEach((title) => title.remove()); // instead of the browser's
  const show = (event) => {
    hide();
    let shape = nearest(dots, event.clientX, event.clientY) ?? event.target;
    shape.classList.toggle("near", dots.includes(shape));
    while (shape !== chart && !titles.has(shape)) shape = shape.parentNode;
    const lines = [...about(event), ...(titles.has(shape) ? [titles.get(shape)] : [])];
    if (lines.length) place(event.clientX, event.clientY, lines);
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  chart.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
};

export const showTips = () => {
  document.body.append(tip);
  addEventListener("scroll", hide, { capture: true, passive: true });
  addEventListener("pointerdown", (event) => { if (!event.target.closest(".chart")) hide(); });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
};
