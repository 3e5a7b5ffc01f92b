// Tabs, and the choice of a file among several.
import { byId, shownAgain } from "./page.js";

export const tabs = [...document.querySelectorAll("nav a")];
export const panels = tabs.map((tab) => byId(tab.hash.slice(1)));
const nav = document.querySelector("nav");

export const current = () => Math.max(tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true"), 0);

export const show = (at, focus) => {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", i === at);
    tab.tabIndex = i === at ? 0 : -1;
    panels[i].hidden = i !== at;
  });
  if (focus) tabs[at].focus();
  nav.scrollLeft = tabs[at].offsetLeft - nav.offsetLeft - (nav.clientWidth - tabs[at].offsetWidth) / 2; // a phone has no room for all
  if (byId("chooser")) byId("chooser").hidden = ["compare", "sweep"].includes(panels[at].id); // they are about all files
  shownAgain();
};

export const addTabs = () => {
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
};

export const addChooser = () => {
  const chooser = byId("file");
  if (!chooser) return;
  const choose = () => {
    document.querySelectorAll(".file").forEach((part) => { part.hidden = part.dataset.file !== chooser.value; });
    shownAgain();
  };
  chooser.addEventListener("change", choose);
  choose();
};
