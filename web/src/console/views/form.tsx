// The form of a JSON Schema. It is loaded when a tool with arguments is opened.

import Rjsf from "@rjsf/core/lib/components/Form.js";
import {
  type ErrorSchema,
  type IconButtonProps,
  type RJSFSchema,
  type RJSFValidationError,
  toErrorSchema,
  type ValidatorType,
} from "@rjsf/utils";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { Button } from "../../ui/parts";
import { words } from "../../words/en";
import type { Args, OnCall } from "./tool";
import { fits, type Violation, withoutPatternProperties } from "./validate";

const text = words.tool;

function errorOf({ pointer, keyword, message }: Violation): RJSFValidationError {
  const property = pointer
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    .join(".");
  return { name: keyword, message, property, stack: `${pointer || "/"} ${message}` };
}

/** A missing property is shown at that property, not at its object. */
function placed(violation: Violation): Violation {
  const missing = violation.keyword === "required" && /property "(.*)"/.exec(violation.message)?.[1];
  return missing ? { ...violation, pointer: violation.pointer + "/" + missing } : violation;
}

const validator: ValidatorType<Args> = {
  isValid: (schema, data, root) => {
    if (typeof schema === "boolean") return schema;
    const { $schema, $defs, definitions } = root ?? {};
    return fits({ ...($schema && { $schema }), $defs, definitions, ...schema }, data ?? {});
  },
  rawValidation: () => ({ errors: [] }),
  validateFormData: () => ({ errors: [], errorSchema: {} }), // the page does it, because it may take long
};

function icon(label: string, sign: string) {
  return ({ onClick, disabled, id }: IconButtonProps) => (
    <Button
      small
      aria-label={label}
      title={label}
      {...(id ? { id } : {})}
      disabled={disabled === true}
      onClick={(event) => {
        onClick?.(event as never);
      }}
    >
      {sign}
    </Button>
  );
}

const templates = {
  ButtonTemplates: {
    AddButton: icon(text.add, "+ " + text.add),
    RemoveButton: icon(text.remove, "✕"),
    MoveUpButton: icon(text.up, "↑"),
    MoveDownButton: icon(text.down, "↓"),
  },
};

interface FormProps {
  schema: object;
  args: Args;
  onChange: (args: Args) => void;
  onCall: OnCall;
  footer: ComponentChildren;
}

export default function Form({ schema, args, onChange, onCall, footer }: FormProps) {
  const [found, setFound] = useState<ErrorSchema<Args>>();
  useEffect(() => {
    document.querySelector<HTMLElement>(".form .has-error :is(input, select, textarea)")?.focus();
  }, [found]);
  const shown = useMemo(() => withoutPatternProperties(schema) as RJSFSchema, [schema]);
  const send = async (given: Args) => {
    const violations = await onCall(given);
    setFound(toErrorSchema<Args>(violations.map((violation) => errorOf(placed(violation)))));
  };
  return (
    <Rjsf<Args>
      className="form"
      schema={shown}
      formData={args}
      validator={validator}
      templates={templates as never}
      showErrorList={false}
      noHtml5Validate
      {...(found && { extraErrors: found })}
      extraErrorsBlockSubmit={false}
      idPrefix="argument"
      onChange={({ formData }) => onChange(formData ?? {})}
      onError={() => {}}
      onSubmit={({ formData }) => void send(formData ?? {})}
    >
      {footer as never}
    </Rjsf>
  );
}
