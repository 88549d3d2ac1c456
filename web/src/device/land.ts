import { feature } from "topojson-client";
import type { Topology } from "topojson-specification";
import land from "world-atlas/land-110m.json";

const round = (value: number): number => Math.round(value * 100) / 100;

/** Lets a coast go on beyond 180 degrees, instead of jumping to the other edge of the map. */
function unroll(ring: number[][]): string[] {
  let [turn, before] = [0, ring[0]![0]!];
  return ring.map(([x = 0, y = 0]) => {
    if (Math.abs(x - before) > 180) turn += x < before ? 360 : -360;
    before = x;
    return `${round(x + turn)} ${round(-y)}`;
  });
}

/** The coasts as the path of an SVG, in degrees: x is the longitude, y the negative latitude. */
export function coasts(): string {
  const topology = land as unknown as Topology;
  const shape = feature(topology, topology.objects["land"]!);
  const features = shape.type === "FeatureCollection" ? shape.features : [shape];
  let path = "";
  for (const { geometry } of features) {
    if (geometry.type !== "MultiPolygon" && geometry.type !== "Polygon") continue;
    const polygons = geometry.type === "MultiPolygon" ? geometry.coordinates : [geometry.coordinates];
    for (const ring of polygons.flat()) {
      path += "M" + unroll(ring).join("L") + "z";
    }
  }
  return path;
}
