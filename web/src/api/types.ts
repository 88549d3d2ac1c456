// The types of the HTTP API are those of @farhand/client, which are generated from the OpenAPI document.
export type * from "../../../sdk/typescript/client/src/types";
