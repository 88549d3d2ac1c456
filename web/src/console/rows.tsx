// A table of any length: only the rows in sight are in the document. It scrolls with the page.

import { useWindowVirtualizer } from "@tanstack/react-virtual";
import type { ComponentChildren, JSX } from "preact";
import { memo } from "preact/compat";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { classes } from "../ui/parts";
import "./rows.css";

const narrow = matchMedia("(max-width: 44rem)");
const row = { wide: 36, narrow: 60, group: 36 }; // px; rows.css has the same heights

export interface Column {
  name: string;
  title: string;
  number?: boolean;
}

interface RowsProps<T> {
  label: string;
  look: string;
  columns: Column[];
  items: T[];
  keyOf: (item: T) => string;
  /** The text of a row that heads a group; undefined: the row has cells. */
  group?: ((item: T) => string | undefined) | undefined;
  /** The cells of a row, in the order of columns. Another function makes all rows again. */
  cells: (item: T) => ComponentChildren[];
}

export function Rows<T>({ label, look, columns, items, keyOf, group, cells }: RowsProps<T>) {
  const size = useNarrow() ? row.narrow : row.wide;
  const body = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  useLayoutEffect(() => {
    const top = body.current!.getBoundingClientRect().top + scrollY;
    if (Math.abs(top - margin) > 1) setMargin(top);
  });
  const getItemKey = useCallback((index: number) => keyOf(items[index]!), [items]); // a new one measures all rows
  const virtual = useWindowVirtualizer({
    count: items.length,
    estimateSize: (index) => (group?.(items[index]!) === undefined ? size : row.group),
    overscan: 8,
    scrollMargin: margin,
    getItemKey,
  });
  useEffect(() => virtual.measure(), [size, items]);
  return (
    <div class={classes("rows", look)} role="table" aria-label={label} aria-rowcount={items.length + 1}>
      <div role="rowgroup" class="rows-head">
        <div role="row" class="cells" aria-rowindex={1}>
          {columns.map((column) => (
            <span key={column.name} role="columnheader" class={classes(column.name, column.number && "number")}>
              {column.title}
            </span>
          ))}
        </div>
      </div>
      <div role="rowgroup" ref={body} class="rows-body" style={{ height: virtual.getTotalSize() + "px" }}>
        {virtual.getVirtualItems().map((at) => (
          <Row
            key={at.key}
            item={items[at.index]!}
            index={at.index}
            top={at.start - margin}
            columns={columns}
            group={group}
            cells={cells}
          />
        ))}
      </div>
    </div>
  );
}

interface RowProps<T> extends Pick<RowsProps<T>, "columns" | "group" | "cells"> {
  item: T;
  index: number;
  top: number;
}

/** Scrolling adds and removes rows; those that stay are not made again. */
const Row = memo(function Row<T>({ item, index, top, columns, group, cells }: RowProps<T>) {
  const heading = group?.(item);
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      class={classes("cells", heading !== undefined && "group")}
      style={{ transform: `translateY(${top}px)` }}
    >
      {heading !== undefined ? (
        <strong role="cell" aria-colspan={columns.length} class="cut">
          {heading}
        </strong>
      ) : (
        cells(item).map((cell, i) => (
          <span
            key={columns[i]!.name}
            role="cell"
            class={classes("cut", columns[i]!.name, columns[i]!.number && "number")}
          >
            {cell}
          </span>
        ))
      )}
    </div>
  );
}) as <T>(props: RowProps<T> & { key: unknown }) => JSX.Element;

function useNarrow(): boolean {
  const [is, set] = useState(narrow.matches);
  useEffect(() => {
    const change = () => set(narrow.matches);
    narrow.addEventListener("change", change);
    return () => narrow.removeEventListener("change", change);
  }, []);
  return is;
}
