// The form of a JSON Schema. It is loaded when a tool with arguments is opened.

import Rjsf from "@rjsf/core/lib/components/Form.js";
import {
  createErrorHandler,
  type IconButtonProps,
  type RJSFSchema,
  type RJSFValidationError,
  toErrorSchema,
  unwrapErrorHandler,
  validationDataMerge,
  type ValidatorType,
} from "@rjsf/utils";
import type { ComponentChildren } from "preact";
import { Button } from "../../ui/parts";
import { words } from "../../words/en";
import type { Args } from "./tool";
import { check, fits, type Violation } from "./validate";

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
    const definitions = typeof schema === "object" ? { $defs: root?.$defs, definitions: root?.definitions } : {};
    return fits({ ...definitions, ...schema }, data ?? {});
  },
  rawValidation: <Result,>(schema: RJSFSchema, data?: Args) => ({
    errors: check(schema, data ?? {}).map((violation) => errorOf(placed(violation))) as Result[],
  }),
  validateFormData: (data, schema, custom, transform, ui) => {
    let errors = check(schema, data ?? {}).map((violation) => errorOf(placed(violation)));
    if (transform) errors = transform(errors, ui);
    const found = { errors, errorSchema: toErrorSchema<Args>(errors) };
    if (!custom) return found;
    const own = unwrapErrorHandler<Args>(custom(data ?? {}, createErrorHandler<Args>(data ?? {}), ui));
    return validationDataMerge<Args>(found, own);
  },
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
  onCall: (args: Args) => Promise<void>;
  footer: ComponentChildren;
}

export default function Form({ schema, args, onChange, onCall, footer }: FormProps) {
  return (
    <Rjsf<Args>
      className="form"
      schema={schema as RJSFSchema}
      formData={args}
      validator={validator}
      templates={templates as never}
      showErrorList={false}
      noHtml5Validate
      focusOnFirstError
      idPrefix="argument"
      onChange={({ formData }) => onChange(formData ?? {})}
      onError={() => {}}
      onSubmit={({ formData }) => void onCall(formData ?? {})}
    >
      {footer as never}
    </Rjsf>
  );
}
