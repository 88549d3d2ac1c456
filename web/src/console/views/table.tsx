// A table of a few hundred rows. On a narrow screen each row is a block, with the column's title before each value.

import type { ComponentChildren } from "preact";
import { classes } from "../../ui/parts";
import "./table.css";

export interface Column<T> {
  title: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean;
  /** The widest text of the row, which may wrap. */
  wide?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string;
  /** What can be done with a row. */
  actions?: (row: T) => ComponentChildren;
}

export function Table<T>({ label, columns, rows, keyOf, actions }: TableProps<T>) {
  return (
    <table class="table" aria-label={label}>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.title} scope="col" class={classes(column.number && "number")}>
              {column.title}
            </th>
          ))}
          {actions && <td />}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)}>
            {columns.map((column, i) => (
              <td
                key={column.title}
                data-title={i === 0 ? undefined : column.title}
                class={classes(i === 0 && "lead", column.number && "number", column.wide && "wide")}
              >
                <div>{column.cell(row)}</div>
              </td>
            ))}
            {actions && <td class="row-actions">{actions(row)}</td>}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
