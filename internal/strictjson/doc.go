// Package strictjson reads JSON that others wrote. It takes only what no two parsers read differently (I-JSON, RFC
// 7493): valid grammar, valid UTF-8, no lone surrogates, and no name twice in one object, at any depth. It imports
// nothing of this module.
//
// Check says what is wrong with a text, Decode makes a value of it, Members and Items take an object or an array apart
// without copying. The grammar is that of encoding/json/jsontext, by the module it was developed in, so that Go 1.26
// builds it too.
package strictjson
