import { useEffect, useRef } from "preact/hooks";

/** useCurrentInSight scrolls a navigation, which may be wider than the screen, to the entry of the current view. */
export function useCurrentInSight(location: string) {
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    const show = () => {
      const current = nav.current?.querySelector<HTMLElement>("[aria-current]");
      if (!nav.current || !current) return;
      const middle = current.offsetLeft - nav.current.offsetLeft + current.offsetWidth / 2;
      nav.current.scrollLeft = middle - nav.current.clientWidth / 2;
    };
    show();
    addEventListener("resize", show);
    return () => removeEventListener("resize", show);
  }, [location]);
  return nav;
}
