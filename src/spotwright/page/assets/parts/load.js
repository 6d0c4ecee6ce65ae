// A document of the server for a view: loaded when the view opens, again while the run goes on and the window is visible.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api.js";

// `every`: milliseconds between loads while `live`; 0 loads once.
export function useDocument(path, params = {}, { live = false, every = 2000 } = {}) {
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [again, setAgain] = useState(0);
  const asked = JSON.stringify([path, params]);
  useEffect(() => setAnswer(null), [asked]);
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const load = async () => {
      try {
        if (!document.hidden || !answer) setAnswer(await get(path, params, { signal: stop.signal }));
        setError(null);
      } catch (problem) {
        if (problem.name === "AbortError") return;
        setError(problem);
      }
      if (live && every) timer = setTimeout(load, every);
    };
    load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [asked, live, again]);
  return { answer, error, retry: () => setAgain(again + 1) };
}
