package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/provider/scripted"
	"github.com/farhand/farhand/ws/client"
)

// hostileTexts returns 200 texts that run code in a page that takes them for HTML, a link, a template or a script.
func hostileTexts() (all []string) {
	vectors := strings.Split(strings.TrimSpace(`
<script>alert(1)</script>
<script src=data:text/javascript,alert(1)></script>
<img src=x onerror=alert(1)>
<svg onload=alert(1)>
<svg><script>alert(1)</script></svg>
<svg><animate onbegin=alert(1) attributeName=x dur=1s>
<svg><use href="data:image/svg+xml,<svg id='x' xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>#x">
<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>
<iframe src="javascript:parent.alert(1)"></iframe>
<object data="javascript:alert(1)"></object>
<embed src="javascript:alert(1)">
<body onload=alert(1)>
<input autofocus onfocus=alert(1)>
<select autofocus onfocus=alert(1)>
<textarea autofocus onfocus=alert(1)>
<details open ontoggle=alert(1)>
<video><source onerror=alert(1)></video>
<audio src=x onerror=alert(1)>
<marquee onstart=alert(1)>
<a href="javascript:alert(1)">x</a>
<a href="data:text/html,<script>alert(1)</script>">x</a>
<form action="javascript:alert(1)"><button>x</button></form>
<button formaction="javascript:alert(1)" form=x>x</button>
<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>
<noscript><p title="</noscript><img src=x onerror=alert(1)>">
<template><script>alert(1)</script></template>
<style>@import'javascript:alert(1)';*{background:url(javascript:alert(1))}</style>
<link rel=stylesheet href="data:text/css,*{color:red}">
<base href="javascript:alert(1)//">
<meta http-equiv=refresh content="0;javascript:alert(1)">
<div style="width:expression(alert(1))" onmouseover=alert(1)>
<x contenteditable onblur=alert(1) tabindex=1>x</x>
javascript:alert(1)
data:text/html,<script>alert(1)</script>
{{constructor.constructor('alert(1)')()}}
${alert(1)}
#{alert(1)}
<%= alert(1) %>
[x](javascript:alert(1))
![x](x"onerror="alert(1))
<!--><img src=x onerror=alert(1)>-->
<![CDATA[<img src=x onerror=alert(1)>]]>
&lt;img src=x onerror=alert(1)&gt;
%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E
\u003cimg src=x onerror=alert(1)\u003e
<img src=x onerror=&#97;lert(1)>
<scr<script>ipt>alert(1)</scr</script>ipt>
<img/src=x/onerror=alert(1)//
__proto__<img src=x onerror=alert(1)>
constructor"><img src=x onerror=alert(1)>
`), "\n")
	for _, vector := range vectors {
		for _, form := range []string{"%s", `"'>%s`, "</script></textarea></style></title>%s", "'-alert(1)-'%s`"} {
			all = append(all, fmt.Sprintf(form, vector))
		}
	}
	return all
}

// TestHostileTextsRunNothing puts each text into everything that devices, callers, models and files of the operator
// name. Nothing of it runs in any view or becomes an element or an attribute, and the page asks no other site.
func TestHostileTextsRunNothing(t *testing.T) {
	t.Parallel()
	texts := hostileTexts()
	if len(texts) != 200 {
		t.Fatalf("%d texts", len(texts))
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	policy := `{"version":1,"tools":[{"id":"asks","names":"reports","approval":"always","reason":` +
		quoted(texts[10]) + `}]}`
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &hostileStage{texts: texts}
	h.url = startPod(t, append(agentSettings(providerOpenAI, scripted.OpenAIFunc(t, h.model)),
		"FARHAND_MAX_SCHEMA=512KiB",
		"FARHAND_PAIRING=open", "FARHAND_POLICY_FILE="+file, "FARHAND_MAX_TOOLS=5000", "FARHAND_MAX_TOOL_BYTES=8MiB",
		"FARHAND_MAX_OUTPUT=16MiB", hostileUpstream(t, texts))...).url
	connectHostile(t, h.url, texts)
	h.pageBrowser = startPageBrowser(t)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"devices, tools and calls", h.devices}, {"approvals", h.approvals}, {"access", h.access}, {"chat", h.chat},
		{"tools that are traps", h.traps}, {"MCP servers", h.mcpServers}, {"large lists and results", h.large},
		{"what runs is noticed", h.noticed},
	} {
		if !t.Run(step.name, func(t *testing.T) { h.TB = t; step.do(); h.quiet() }) {
			t.Fatal("the other steps need this one")
		}
	}
}

// hostileStage is an admin in front of the console of a gateway to which everything hostile is connected.
type hostileStage struct {
	*pageBrowser
	url   string
	texts []string
}

func (h *hostileStage) view(path string) { h.Helper(); h.open(h.url + "/console" + path) }

// inert fails the test if the page has elements, attributes or addresses that it does not make itself.
func (h *hostileStage) inert() {
	h.Helper()
	strange := eval[[]string](h.pageBrowser, `[...document.querySelectorAll("body, body *")].filter(e => !e.matches("body > noscript") && (
		!/^(body|div|main|header|footer|nav|section|article|aside|h[1-6]|p|span|a|b|strong|em|del|code|pre|ul|ol|li|dl|dt|dd|table|`+
		`thead|tbody|tr|th|td|caption|form|fieldset|legend|label|input|select|option|datalist|textarea|button|details|summary|`+
		`time|progress|dialog|figure|figcaption|img|svg|path|hr|br|blockquote|canvas)$/.test(e.localName) ||
		[...e.attributes].some(a => !/^[a-z-]+$/.test(a.name) || /^(on|srcdoc$|action$|formaction$|background$|ping$)/.test(a.name) ||
			/^(src|xlink:href|poster)$/.test(a.name) && !/^(blob:|\/blobs\/)/.test(a.value) ||
			a.name === "href" && !/^(\/|https?:|mailto:)/.test(a.value)) ||
		e.localName === "a" && e.host !== location.host && !e.closest(".markdown"))
	).map(e => e.outerHTML.slice(0, 200))`)
	if len(strange) > 0 {
		h.Errorf("%d elements are strange: %.2000q", len(strange), strange)
	}
	if n := eval[int](h.pageBrowser, "document.querySelectorAll('script').length"); n != 1 {
		h.Errorf("the page has %d scripts", n)
	}
	away := eval[[]string](h.pageBrowser, `performance.getEntriesByType("resource").map(e => e.name)
		.filter(url => !url.startsWith(location.origin) && !url.startsWith("blob:" + location.origin))`)
	if len(away) > 0 {
		h.Errorf("the page asked %q", away)
	}
	if eval[bool](h.pageBrowser, `["polluted", "x"].some(name => ({})[name] !== undefined)`) {
		h.Error("all objects have a property of a device")
	}
}

func (h *hostileStage) devices() {
	h.size(1280, "light")
	h.view("/")
	h.fill("Key or token", fleetToken)
	h.press("Sign in")
	h.see("42 of 42 connected", h.texts[0])
	h.inert()
	h.view("/devices?group=label%3Ahostile&q=" + "onerror")
	h.see("onerror")
	h.inert()
	h.view("/devices/hostile-0")
	h.see("About", "Tools (100)", "Paired identity")
	h.inert()
	h.view("/devices/hostile-0/tools/form")
	h.until("all fields", fmt.Sprintf("document.querySelectorAll('.form .form-group').length > %d", len(h.texts)))
	h.press("Call")
	h.see("Succeeded", h.texts[2])
	h.press("Text")
	h.press("Tree")
	for _, form := range []string{"CLI", "TypeScript", "Python", "MCP"} {
		h.press(form)
	}
	h.inert()
	h.press("Open the call")
	h.see("Received by", "Decisions")
	h.inert()
}

// approvals: a caller with a hostile name asks with all texts as arguments; the answers are hostile, too.
func (h *hostileStage) approvals() {
	robot := keyOf(h, h.url, h.texts[8], "caller")
	ask := func() (call, approval string) {
		args, _ := json.Marshal(map[string]any{"texts": h.texts, "__proto__": map[string]any{"polluted": true}})
		r, _ := http.NewRequest(http.MethodPost, h.url+"/api/sessions/hostile-0/tools/reports/call",
			strings.NewReader(`{"mode":"async","args":`+string(args)+`}`))
		r.Header.Set("Authorization", "Bearer "+robot)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			h.Fatal(err)
		}
		defer resp.Body.Close()
		var a struct {
			CallID     string `json:"call_id"`
			ApprovalID string `json:"approval_id"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.ApprovalID == "" {
			h.Fatal(resp.Status, err)
		}
		return a.CallID, a.ApprovalID
	}
	_, denied := ask()
	h.view("/approvals/" + denied)
	h.see(h.texts[10], h.texts[8])
	h.inert()
	callTool(h, h.url, "/api/approvals/"+denied, `{"decision":"deny","comment":`+quoted(h.texts[3])+`}`)
	h.see(h.texts[3])
	h.inert()
	call, allowed := ask()
	callTool(h, h.url, "/api/approvals/"+allowed, `{"decision":"allow-always","scope":"tool","expires_in_ms":3600000}`)
	h.view("/approvals/grants")
	h.see("reports")
	h.inert()
	h.view("/calls/" + call)
	h.see("Failed", h.texts[1])
	h.inert()
	h.view("/calls")
	h.see("reports")
	h.inert()
}

func (h *hostileStage) access() {
	for i := range 3 {
		status, raw := request(h, http.MethodPost, h.url+"/pair", fmt.Sprintf(
			`{"device_id":%s,"device_name":%s,"platform":%s,"tools":["x"]}`, quoted(fmt.Sprint("pair ", i, h.texts[i])),
			quoted(h.texts[i+1]), quoted(h.texts[i+2])))
		if status != http.StatusCreated {
			h.Fatal(status, string(raw))
		}
	}
	h.view("/access/pairing")
	h.see(h.texts[1])
	h.press("Review")
	h.see("Tools it may offer")
	h.inert()
	for _, view := range []string{
		"/access/devices", "/access/keys", "/access/policy", "/access/audit", "/access/usage", "/operate/pods",
		"/operate/checks", "/tools", "/devices/%2525zz", "/calls/%25", "/chat/%25",
	} {
		h.view(view)
		h.until(view, `document.querySelector("main.view").innerText.length > 20 && !document.querySelector(".loading")`)
		h.inert()
	}
	h.view("/access/keys")
	h.see(h.texts[0], h.texts[195])
}

// bombs are texts of models that take much time, or too deep a stack, to be read as Markdown; and some that name
// others' pictures.
func bombs() map[string]string {
	deep := strings.Repeat
	return map[string]string{
		"quotes": deep(">", 20_000), "brackets": deep("[", 20_000), "stars": deep("*a ", 20_000),
		"code": deep("`a``", 10_000), "lists": deep("- ", 10_000), "links": deep("[a](", 10_000),
		"pictures": deep("![a](https://mallory.example/", 2000), "underscores": deep("_a__", 10_000), "tables": "|" +
			deep("a|", 5000) + "\n|" + deep("-|", 5000), "angles": deep("<", 40_000), "wide table": deep("|a", 5000) +
			"\n" + deep("|-", 5000) + "\n" + deep("|\n", 5000),
		"addresses": "![x](https://mallory.example/a.png) ![y][z] <https://mallory.example/b> www.mallory.example\n\n" +
			"[z]: https://mallory.example/c.png\n[a](javascript:alert(1)) [b](data:text/html,x) " +
			"[c](JaVaScRiPt&colon;alert(1)) [d](\x01javascript:alert(1)) [e](vbscript:x) <javascript:alert(1)> " +
			"[f](//mallory.example) [g](blob:x) [h](/blobs/x)",
	}
}

// model answers with the bomb that it is asked for, or with all texts.
func (h *hostileStage) model(r scripted.Request) scripted.Step {
	role, content := lastOf(r)
	switch {
	case role == "tool":
		return scripted.Reply(scripted.Text(strings.Join(h.texts, "\n\n")))
	case bombs()[content] != "":
		return scripted.Reply(scripted.Text(bombs()[content]))
	default:
		return scripted.Reply(scripted.Calls(scripted.Call{Name: "form", Args: `{"__proto__":{"polluted":1}}`}))
	}
}

func (h *hostileStage) chat() {
	turnOverHTTP(h, h.url, "hostile-0", h.texts[5])
	h.view("/chat/hostile-0")
	h.see(h.texts[5], h.texts[0], h.texts[199])
	h.inert()
	eval[bool](h.pageBrowser, saved)
	h.press("Export Markdown")
	h.until("a file", "window.saved")
	for name := range bombs() {
		turnOverHTTP(h, h.url, "named-0", name)
	}
	h.view("/chat/named-0")
	h.until("all answers", fmt.Sprintf("document.querySelectorAll('.bubble.assistant').length === %d", len(bombs())))
	h.inert()
	if bad := eval[[]string](h.pageBrowser, `[...document.querySelectorAll(".markdown a[href]")].map(e => e.getAttribute("href"))
		.filter(url => !/^(https?:|mailto:)/.test(url))`); len(bad) > 0 {
		h.Errorf("links lead to %q", bad)
	}
}

// traps: what a tool's schema or result makes of the page ends soon, and people can go on.
func (h *hostileStage) traps() {
	for tool := range trapSchemas() {
		h.view("/devices/traps-0/tools/" + tool)
		h.see("Arguments")
		if shown := eval[bool](h.pageBrowser, `!document.querySelector("textarea.code")`); shown == strings.HasPrefix(tool, "large") {
			h.Errorf("%s has a form: %v", tool, shown)
		}
		h.press("Call")
		h.see("Succeeded")
		h.inert()
	}
}

func (h *hostileStage) noticed() {
	eval[bool](h.pageBrowser, strings.TrimSuffix(strings.TrimPrefix(h.texts[0], "<script>"), "</script>")+" || true")
	if len(h.heard()) == 0 {
		h.Error("code that runs is not noticed")
	}
}

// keyOf makes a key.
func keyOf(t testing.TB, url, name, role string) string {
	t.Helper()
	status, made := request(t, http.MethodPost, url+"/api/keys",
		fmt.Sprintf(`{"name":%s,"roles":[%q],"user_id":%s}`, quoted(name), role, quoted(name)))
	var key struct{ Key string }
	if err := json.Unmarshal(made, &key); err != nil || status != http.StatusCreated {
		t.Fatalf("no key for %s: %d %s", name, status, made)
	}
	return key.Key
}

// connectHostile connects 40 devices that have the texts as attributes, one that has them in its tools, and one whose
// tools are traps.
func connectHostile(t *testing.T, url string, texts []string) {
	for i := range 40 {
		connectDevice(t, url, fmt.Sprintf("named-%d", i), echoTool(),
			client.WithToken(keyOf(t, url, texts[5*i], "device")),
			client.WithDevice(fmt.Sprint("id", texts[5*i+1]), texts[5*i+2], texts[5*i+3]),
			client.WithLabels(map[string]string{"hostile": texts[5*i+4]}))
	}
	var traps []client.Option
	for name, schema := range trapSchemas() {
		traps = append(traps, client.WithTool(client.Tool{Name: name, Parameters: json.RawMessage(schema)},
			func(context.Context, client.Call) (any, error) {
				return map[string]any{"text": strings.Repeat(texts[2], 40_000),
					"__proto__": map[string]any{"polluted": 1}}, nil
			}))
	}
	connectFully(t, url, "traps-0", traps...)
	connectDevice(t, url, "hostile-0", append(hostileTools(texts), client.WithDevice("hostile", texts[0], ""))...)
}

func hostileTools(texts []string) (all []client.Option) {
	properties, output := make(map[string]any), make(map[string]any)
	for i, text := range texts {
		properties[fmt.Sprintf("p%d%s", i, text)] = map[string]any{
			"type": "string", "title": text, "description": text, "default": text, "examples": []string{text},
		}
		if i%4 == 0 {
			properties[fmt.Sprintf("p%d%s", i, text)] = map[string]any{
				"title": text, "description": text, "enum": []string{text, "other"}, "default": text,
			}
		}
		output[text] = []string{text}
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties, "title": texts[0]})
	all = append(all,
		client.WithTool(client.Tool{Name: "form", Description: strings.Join(texts[:8], "\n"), Parameters: schema},
			func(context.Context, client.Call) (any, error) {
				return client.Result{Output: output, Parts: []client.Part{
					{Type: client.PartFile, MIMEType: "text/html", Name: texts[0], Data: []byte(texts[0])},
					{Type: client.PartFile, MIMEType: "image/svg+xml", Name: texts[1], Data: []byte(texts[3])},
					{Type: client.PartImage, MIMEType: "image/png", Name: texts[2], Data: []byte(texts[2])},
				}}, nil
			}),
		client.WithTool(client.Tool{Name: "reports"}, func(_ context.Context, call client.Call) (any, error) {
			for i, text := range texts {
				call.Progress(float64(i), float64(len(texts)), text)
				call.Chunk(text)
			}
			return nil, errors.New(strings.Join(texts, "\n"))
		}))
	for i := range 98 {
		all = append(all, client.WithTool(client.Tool{Name: fmt.Sprintf("t%d", i), Description: texts[2*i] + texts[2*i+1]},
			func(context.Context, client.Call) (any, error) { return texts[i], nil }))
	}
	return all
}

// trapSchemas are schemas, by the name of their tool, that stop a page which takes them as they come.
func trapSchemas() map[string]string {
	laughs, wide := `"d0":{"type":"string"}`, `"w":{"type":"string"}`
	for i := range 11 {
		laughs += fmt.Sprintf(`,"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%[2]d"}}}`, i+1, i)
	}
	for i := range 3000 {
		wide += fmt.Sprintf(`,"w%d":{"type":"string","title":"field %d"}`, i, i)
	}
	slow := `{"type":"string","pattern":"^(a+)+$","default":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`
	return map[string]string{
		"slow-pattern": `{"properties":{"a":` + slow + `,"b":{"anyOf":[` + slow +
			`,{"type":"number"}],"default":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}}}`,
		"unknown-pattern": `{"properties":{"a":{"type":"string","pattern":"(?i)^abc$","default":"ABC"}}}`,
		"slow-name": `{"properties":{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!":{"type":"string"}},` +
			`"patternProperties":{"^(a+)+$":{}}}`,
		"large-laughs":  `{"properties":{"x":{"$ref":"#/$defs/d11"}},"$defs":{` + laughs + `}}`,
		"large-endless": `{"properties":{"x":{"type":"array","minItems":1000000,"items":{"type":"string"}}}}`,
		"large-negative": `{"default":{"minItems":-1000000000000},"properties":{"x":{"$ref":"#/$defs/d11"}},"$defs":{` +
			laughs + `}}`,
		"large-escaped": `{"properties":{"x":{"$ref":"#/%24defs/d11"}},"$defs":{` + laughs + `}}`,
		"large-named":   `{"properties":{"definitions":{"$ref":"#/$defs/d11"}},"$defs":{` + laughs + `}}`,
		"large-self":    `{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"}}}`,
		"large-within":  `{"properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"items":{"$ref":"#/$defs/n"}}}}}`,
		"tree": `{"properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":{"name":{"type":"string"},` +
			`"n":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
		"large-by-id": `{"$schema":"https://json-schema.org/draft/2020-12/schema",` +
			`"properties":{"x":{"$ref":"https://x.example/x"}},"$defs":{"x":{"$id":"https://x.example/x","properties":{"y":{"$ref":"#/$defs/d11"}},"$defs":{` + laughs + `}}}}`,
		"large-wide": `{"properties":{` + wide + `}}`,
		"prototype": `{"properties":{"__proto__":{"type":"object","default":{"polluted":1},"properties":{"polluted":{"default":1}}},` +
			`"constructor":{"type":"object","properties":{"prototype":{"type":"object","default":{"polluted":1}}}}}}`,
		"large-none": `{"properties":{}}`,
	}
}
