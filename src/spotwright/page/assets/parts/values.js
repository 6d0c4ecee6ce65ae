// Values and words that several views of one run show alike.
import { html } from "htm/preact";
import { causeLetter, causeText, classOf } from "../words.js";

// How an attempt ended, as a letter, a word and a colour.
export const Cause = ({ cause }) =>
  cause ? html`<span class=${`chip cause ${classOf("cause", cause)} ${classOf("status", cause)}`}><span class="letter" aria-hidden="true">${causeLetter(cause)}</span> ${causeText(cause)}</span>` : null;

// A value of the journal: texts as they are, everything else as JSON.
export function Value({ value }) {
  if (value === null || value === undefined) return html`<span class="note">none</span>`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value === "" ? html`<span class="note">empty</span>` : value.includes("\n") ? html`<pre tabindex="0">${value}</pre>` : value;
  if (typeof value === "number") return String(value);
  const text = JSON.stringify(value, null, 2);
  return text.length < 80 ? html`<code>${JSON.stringify(value)}</code>` : html`<pre tabindex="0">${text}</pre>`;
}

// An address outside of the page: only http and https, with its host, and without telling where it was clicked. Others are text.
export function Outside({ address, children }) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // it is no address
  }
  if (!url || !["http:", "https:"].includes(url.protocol)) return html`<code class="uri">${address}</code>`;
  return html`<a class="uri" href=${url.href} target="_blank" rel="noopener noreferrer">${children ?? address}</a> <span class="note">(${url.host})</span>`;
}

// A page of the documentation: an address, or a file of the repository with a heading.
export function Document({ at }) {
  if (/^https?:/.test(at)) return html`<${Outside} address=${at}>Documentation<//>`;
  const [file, heading] = at.split("#");
  return html`<span class="note">(<code>${file}</code>${heading ? `, ${heading.replaceAll("-", " ")}` : ""})</span>`;
}
