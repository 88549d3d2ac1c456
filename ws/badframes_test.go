package ws

import (
	"fmt"
	"strings"
)

// BadFrame is a frame that must be answered with an error frame while the socket stays open. The fuzz target starts
// from them, and the tests over real sockets send them.
type BadFrame struct {
	Name, Frame string
	Code        string
	Names       string // what the message must mention
}

// BadFrames returns all of them.
func BadFrames() []BadFrame {
	return []BadFrame{
		{"empty", ``, "INVALID_JSON", "JSON"},
		{"not JSON", `hello`, "INVALID_JSON", "JSON"},
		{"truncated", `{"type":"connect"`, "INVALID_JSON", "JSON"},
		{"two values", `{"type":"abort"} {}`, "INVALID_JSON", "JSON"},
		{"array", `[]`, "INVALID_JSON", "object"},
		{"string", `"connect"`, "INVALID_JSON", "object"},
		{"null", `null`, "INVALID_JSON", "object"},
		{"deep array", `{"type":"abort","x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "INVALID_JSON",
			"64"},
		{"very deep", strings.Repeat(`{"a":`, 100_000), "INVALID_JSON", "64"},
		{"type twice", `{"type":"abort","type":"connect"}`, "INVALID_JSON", "type"},
		{"type in two cases", `{"type":"tool_result","TYPE":"register_tools","id":"1"}`, "INVALID_JSON", "TYPE"},
		{"type escaped twice", `{"type":"abort","\u0074ype":"connect"}`, "INVALID_JSON", "type"},
		{"id in two cases", `{"type":"tool_result","id":"1","ID":"2"}`, "INVALID_JSON", "ID"},
		{"id in two cases with a long s", "{\"type\":\"abort\",\"session\":1,\"\u017fession\":2}", "INVALID_JSON",
			"ession"},
		{"too many fields", `{"type":"abort"` + manyFields(64) + `}`, "INVALID_JSON", "64"},
		{"no type", `{}`, "INVALID_MESSAGE", "type"},
		{"upper-case type only", `{"TYPE":"abort"}`, "INVALID_MESSAGE", "type"},
		{"number type", `{"type":1}`, "INVALID_MESSAGE", "type"},
		{"null type", `{"type":null}`, "INVALID_MESSAGE", "type"},
		{"unknown type", `{"type":"frobnicate"}`, "UNKNOWN_MESSAGE_TYPE", "frobnicate"},
		{"server's own type", `{"type":"session_start"}`, "UNKNOWN_MESSAGE_TYPE", "session_start"},
		{"empty type", `{"type":""}`, "UNKNOWN_MESSAGE_TYPE", ""},
		{"huge type", `{"type":"` + strings.Repeat("é", 10_000) + `"}`, "UNKNOWN_MESSAGE_TYPE", "é"},

		{"connect v", `{"type":"connect","v":"1"}`, "INVALID_MESSAGE", "v:"},
		{"connect device_name", `{"type":"connect","device_name":7}`, "INVALID_MESSAGE", "device_name"},
		{"connect device_id", `{"type":"connect","device_id":{}}`, "INVALID_MESSAGE", "device_id"},
		{"connect platform", `{"type":"connect","platform":[]}`, "INVALID_MESSAGE", "platform"},
		{"connect session_id", `{"type":"connect","session_id":5}`, "INVALID_MESSAGE", "session_id"},
		{"connect capabilities", `{"type":"connect","capabilities":"ack"}`, "INVALID_MESSAGE", "capabilities"},
		{"connect capability", `{"type":"connect","capabilities":["ack",1]}`, "INVALID_MESSAGE", "capabilities[1]"},
		{"connect labels", `{"type":"connect","labels":[]}`, "INVALID_MESSAGE", "labels"},
		{"connect label value", `{"type":"connect","labels":{"room":1}}`, "INVALID_MESSAGE", "labels.room"},
		{"connect label twice", `{"type":"connect","labels":{"room":"a","room":"b"}}`, "INVALID_JSON", "labels.room"},
		{"connect label key", `{"type":"connect","labels":{"a b":"x"}}`, "INVALID_MESSAGE", "labels"},
		{"connect name too long", `{"type":"connect","device_name":"` + strings.Repeat("x", 257) + `"}`,
			"INVALID_MESSAGE", "device_name"},
		{"connect invisible name", "{\"type\":\"connect\",\"device_name\":\"a\u202eb\"}", "INVALID_MESSAGE",
			"device_name"},

		{"register without tools", `{"type":"register_tools"}`, "INVALID_MESSAGE", "tools"},
		{"register object", `{"type":"register_tools","tools":{}}`, "INVALID_MESSAGE", "tools"},
		{"register null", `{"type":"register_tools","tools":null}`, "INVALID_MESSAGE", "tools"},
		{"register far too many", `{"type":"register_tools","tools":[0` + strings.Repeat(",0", 1024) + `]}`,
			"INVALID_MESSAGE", "tools"},
		{"unregister without names", `{"type":"unregister_tools"}`, "INVALID_MESSAGE", "names"},
		{"unregister a string", `{"type":"unregister_tools","names":"a"}`, "INVALID_MESSAGE", "names"},
		{"unregister a number", `{"type":"unregister_tools","names":["a",2]}`, "INVALID_MESSAGE", "names[1]"},

		{"result without id", `{"type":"tool_result","output":"x"}`, "INVALID_MESSAGE", "id"},
		{"result with a number as id", `{"type":"tool_result","id":1,"output":"x"}`, "INVALID_MESSAGE", "id"},
		{"result with an empty id", `{"type":"tool_result","id":"","output":"x"}`, "INVALID_MESSAGE", "id"},
		{"result success", `{"type":"tool_result","id":"1","success":"yes"}`, "INVALID_MESSAGE", "success"},
		{"result error", `{"type":"tool_result","id":"1","success":false,"error":3}`, "INVALID_MESSAGE", "error"},
		{"parts no array", result(`{}`), "INVALID_MESSAGE", "parts"},
		{"part no object", result(`[7]`), "INVALID_MESSAGE", "parts[0]"},
		{"part twice a field", result(`[{"type":"file","type":"image"}]`), "INVALID_JSON", "type"},
		{"part field in two cases", result(`[{"type":"file","TYPE":"image"}]`), "INVALID_MESSAGE", "TYPE"},
		{"part without type", part(`"mime_type":"a/b","data":"AA=="`), "INVALID_MESSAGE", "parts[0]: type"},
		{"part of an unknown type", part(`"type":"video","mime_type":"a/b","data":"AA=="`), "INVALID_MESSAGE", "type"},
		{"part without mime_type", part(`"type":"file","data":"AA=="`), "INVALID_MESSAGE", "mime_type"},
		{"part mime_type", part(`"type":"file","mime_type":"a/b\r\nx: y","data":"AA=="`), "INVALID_MESSAGE",
			"mime_type"},
		{"part of two kinds", part(`"type":"image","mime_type":"text/html","data":"AA=="`), "INVALID_MESSAGE",
			"mime_type"},
		{"part name", part(`"type":"file","mime_type":"a/b","data":"AA==","name":"a\u202eb"`), "INVALID_MESSAGE",
			"name"},
		{"part without data", part(`"type":"file","mime_type":"a/b"`), "INVALID_MESSAGE", "data"},
		{"part with a link of its own",
			part(`"type":"file","mime_type":"a/b","url":"http://169.254.169.254/","size":1`),
			"INVALID_MESSAGE", "url"},
		{"part with a short slot", part(`"type":"file","mime_type":"a/b","url":"/uploads/AAAA","size":1`),
			"INVALID_MESSAGE", "url"},
		{"part of a slot without size", part(`"type":"file","mime_type":"a/b","url":"/uploads/` +
			strings.Repeat("A", 43) + `"`), "INVALID_MESSAGE", "size"},
		{"wake of a device that did not declare it", `{"type":"register_wake","wake":{"kind":"webhook"}}`, "INVALID_MESSAGE", "wake"},
		{"upload without id", `{"type":"upload_request","mime_type":"a/b","size":1}`, "INVALID_MESSAGE", "id"},
		{"upload without type", `{"type":"upload_request","id":"1","size":1}`, "INVALID_MESSAGE", "mime_type"},
		{"upload of nothing", `{"type":"upload_request","id":"1","mime_type":"a/b","size":0}`,
			"INVALID_MESSAGE", "size"},
		{"upload without size", `{"type":"upload_request","id":"1","mime_type":"a/b"}`, "INVALID_MESSAGE", "size"},
		{"part without bytes", part(`"type":"file","mime_type":"a/b","data":""`), "INVALID_MESSAGE", "data"},
		{"part data", part(`"type":"file","mime_type":"a/b","data":"A"`), "INVALID_MESSAGE", "data"},
		{"part data number", part(`"type":"file","mime_type":"a/b","data":7`), "INVALID_MESSAGE", "data"},
		{"part data URL", part(`"type":"file","mime_type":"a/b","data":"data:a/b;base64,AA=="`), "INVALID_MESSAGE",
			"data"},
		{"part data of URLs", part(`"type":"file","mime_type":"a/b","data":"_-8="`), "INVALID_MESSAGE", "data"},
		{"part data unpadded", part(`"type":"file","mime_type":"a/b","data":"AAA"`), "INVALID_MESSAGE", "data"},
		{"part data with spare bits", part(`"type":"file","mime_type":"a/b","data":"AB=="`), "INVALID_MESSAGE", "data"},
		{"part data in lines", part(`"type":"file","mime_type":"a/b","data":"AAAA\nAAAA"`), "INVALID_MESSAGE", "data"},
		{"part size", part(`"type":"file","mime_type":"a/b","data":"AA==","size":2`), "INVALID_MESSAGE", "size"},
		{"part size text", part(`"type":"file","mime_type":"a/b","data":"AA==","size":"1"`), "INVALID_MESSAGE", "size"},
		{"parts too many", result(`[` + strings.Repeat(`{"type":"file","mime_type":"a/b","data":"AA=="},`, 16) +
			`{"type":"file","mime_type":"a/b","data":"AA=="}]`), "INVALID_MESSAGE", "parts"},
		{"error without id", `{"type":"tool_error","error":"x"}`, "INVALID_MESSAGE", "id"},
		{"error text", `{"type":"tool_error","id":"1","error":{}}`, "INVALID_MESSAGE", "error"},
		{"accepted without id", `{"type":"tool_call_accepted"}`, "INVALID_MESSAGE", "id"},
		{"progress without id", `{"type":"tool_progress","progress":1}`, "INVALID_MESSAGE", "id"},
		{"progress text", `{"type":"tool_progress","id":"1","progress":"half"}`, "INVALID_MESSAGE", "progress"},
		{"progress total", `{"type":"tool_progress","id":"1","total":true}`, "INVALID_MESSAGE", "total"},
		{"progress message", `{"type":"tool_progress","id":"1","message":1}`, "INVALID_MESSAGE", "message"},

		{"message without content", `{"type":"message"}`, "INVALID_MESSAGE", "content"},
		{"message with a number", `{"type":"message","content":1}`, "INVALID_MESSAGE", "content"},
		{"message debug", `{"type":"message","content":"x","debug":1}`, "INVALID_MESSAGE", "debug"},
		{"empty message", `{"type":"message","content":" \n"}`, "EMPTY_CONTENT", "content"},
		{"message without an agent", `{"type":"message","content":"hi"}`, "AGENT_INIT_FAILED", "provider"},
		{"regenerate without an agent", `{"type":"regenerate"}`, "AGENT_INIT_FAILED", "provider"},
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":0`, i)
	}
	return b.String()
}

// result is an answer with the given parts, part one with a single part.
func result(parts string) string { return `{"type":"tool_result","id":"1","parts":` + parts + `}` }

func part(fields string) string { return result(`[{` + fields + `}]`) }
