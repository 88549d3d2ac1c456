// Package schema compiles the JSON Schemas of tools and validates arguments against them. Both are written by
// strangers, so everything that grows faster than the text is bounded: what a schema takes when it is compiled, and the
// work and the memory of a validation, which also ends with its caller.
//
// Schemas are compiled, and checked against their metaschema, by github.com/santhosh-tekuri/jsonschema. Its validator
// cannot be ended and builds every violation there is; the one here walks the compiled schema in its place.
//
// Validator (validator.go) keeps schemas compiled and shares out the pod's cores and memory; that is where to start.
// Schema (schema.go) is one compiled schema, walk.go the validation. The package imports registry only.
package schema
