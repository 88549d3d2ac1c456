// A place on a map of the coasts (Natural Earth, public domain). It is drawn here: tiles of a map service would tell it
// who is shown which place.

import { useEffect, useState } from "preact/hooks";
import { words } from "../words/device";

interface Place {
  latitude: number;
  longitude: number;
  label?: string;
}

const wide = 70; // degrees that the map shows
const high = 40;

export function WorldMap({ latitude, longitude, label }: Place) {
  const [land, setLand] = useState("");
  useEffect(() => {
    // Without a network the place is shown without coasts.
    void import("./land").then(({ coasts }) => setLand(coasts()), () => {});
  }, []);
  const y = Math.min(Math.max(-latitude - high / 2, -90), 90 - high);
  const numbers = `${latitude.toFixed(5)}, ${longitude.toFixed(5)}`;
  return (
    <figure class="map">
      <svg viewBox={`${longitude - wide / 2} ${y} ${wide} ${high}`} role="img" aria-label={label ?? numbers}>
        {[-360, 0, 360].map((turn) => (
          <path key={turn} class="land" d={land} transform={`translate(${turn} 0)`} />
        ))}
        <circle class="halo" cx={longitude} cy={-latitude} r={2} />
        <circle class="point" cx={longitude} cy={-latitude} r={0.8} />
      </svg>
      <figcaption>
        <span>
          {label && <strong class="plain">{label}</strong>}
          <span class="muted number">{numbers}</span>
        </span>
        <a class="button small" href={`geo:${latitude},${longitude}?q=${latitude},${longitude}`}>
          {words.shown.map}
        </a>
      </figcaption>
    </figure>
  );
}
