import { useEffect, useState } from "preact/hooks";

const checks = 100; // ms
const still = 4; // px that do not count as a move

/**
 * useArmed reports whether an element has been in sight, at its place, for so many ms that a click on it is on purpose:
 * not meant for what was there before.
 */
export function useArmed(element: { current: HTMLElement | null }, calm: number): boolean {
  const [armed, setArmed] = useState(false);
  useEffect(() => {
    let place: DOMRect | undefined;
    let since = performance.now();
    const check = () => {
      const now = element.current?.getBoundingClientRect();
      const moved =
        !now || !place || Math.abs(now.top - place.top) > still || Math.abs(now.left - place.left) > still;
      place = now;
      if (moved || document.hidden || !document.hasFocus()) since = performance.now();
      setArmed(performance.now() - since >= calm);
    };
    check();
    const timer = setInterval(check, checks);
    return () => clearInterval(timer);
  }, []);
  return armed;
}
