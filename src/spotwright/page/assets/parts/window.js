// What the window does to a part: its size changes, and it is printed.
import { useLayoutEffect, useState } from "preact/hooks";

// The inner size of the element of a ref, in pixels; `start` until it is known, and where it has no size.
export function useSize(box, start) {
  const [size, setSize] = useState(start);
  useLayoutEffect(() => {
    const look = () => setSize({ width: box.current?.clientWidth || start.width, height: box.current?.clientHeight || start.height });
    look();
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return size;
}

// Whether the window is being printed: paper has no scrolling.
export function usePrinted() {
  const [isPrinted, setPrinted] = useState(false);
  useLayoutEffect(() => {
    const before = () => setPrinted(true);
    const after = () => setPrinted(false);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, []);
  return isPrinted;
}
