// A chart over time. This file is loaded only where a chart is shown.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./chart.css";

interface ChartProps {
  label: string;
  times: number[]; // Unix seconds
  names: string[];
  values: number[][]; // of each name
  unit: (n: number) => string;
  bars?: boolean;
  /** The time that is shown, in seconds up to the last value; all of it by default. */
  span?: number;
}

const height = 220; // px
const halfDay = 43_200; // s
const colors = ["--accent", "--warn", "--good"];
const dark = matchMedia("(prefers-color-scheme: dark)");

export function Chart({ label, times, names, values, unit, bars, span }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const data = [times, ...values] as uPlot.AlignedData;
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const options = optionsOf({ names, unit, bars, span, width: box.current!.clientWidth });
      plot.current = new uPlot(options, latest.current, box.current!);
    };
    make();
    const resized = new ResizeObserver(() => {
      const width = box.current?.clientWidth ?? 0;
      if (width > 0 && width !== plot.current?.width) plot.current?.setSize({ width, height });
    });
    resized.observe(box.current!);
    const themed = new MutationObserver(make);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    dark.addEventListener("change", make);
    return () => {
      resized.disconnect();
      themed.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names.join("\n"), unit, bars]);
  useEffect(() => plot.current?.setData(data), [times, values]);
  return <div class="chart" ref={box} role="img" aria-label={label} />;
}

interface Look {
  names: string[];
  unit: (n: number) => string;
  bars: boolean | undefined;
  span: number | undefined;
  width: number;
}

/** The colours are computed: a canvas knows neither variables nor light-dark(). */
function color(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  return computed;
}

function optionsOf({ names, unit, bars, span, width }: Look): uPlot.Options {
  const { fontFamily } = getComputedStyle(document.body);
  const axis: uPlot.Axis = {
    stroke: color("--muted"),
    font: `12px ${fontFamily}`,
    grid: { stroke: color("--edge"), width: 1 },
    ticks: { show: false },
  };
  const paths = bars ? uPlot.paths.bars!({ size: [0.7, 40], align: 0 }) : uPlot.paths.spline!();
  return {
    width,
    height,
    tzDate: (at) => (bars ? uPlot.tzDate(new Date(at * 1000), "UTC") : new Date(at * 1000)),
    padding: [12, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false } },
    scales: {
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.08 : 5] },
      x: { range: (_plot, min, max) => (bars ? [min - halfDay, max + halfDay] : [span ? max - span : min, max]) },
    },
    axes: [
      { ...axis, grid: { show: false } },
      { ...axis, size: 64, values: (_plot, ticks) => ticks.map((tick) => unit(tick)) },
    ],
    series: [
      {},
      ...names.map((name, i): uPlot.Series => {
        const stroke = color(colors[i % colors.length]!);
        return {
          label: name,
          stroke,
          width: bars ? 0 : 1.5,
          ...(bars ? { fill: stroke } : {}),
          paths,
          points: { show: false },
          value: (_plot, value) => (value === null ? "–" : unit(value)),
        };
      }),
    ],
  };
}
