package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

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

// TestHostileTextsRunNothing puts each text into everything that devices and callers name: devices, labels, users,
// tools, schemas, results, reports and errors. Nothing of it runs in the views of devices, tools and calls.
func TestHostileTextsRunNothing(t *testing.T) {
	t.Parallel()
	texts := hostileTexts()
	if len(texts) != 200 {
		t.Fatalf("%d texts", len(texts))
	}
	p := startPod(t, "FARHAND_MAX_SCHEMA=512KiB")
	connectHostile(t, p.url, texts)
	b := startPageBrowser(t)
	b.size(1280, "light")
	b.open(p.url + "/console/")
	b.fill("Key or token", fleetToken)
	b.press("Sign in")
	b.see("41 of 41 connected", texts[0])
	b.open(p.url + "/console/devices?group=label%3Ahostile&q=" + "onerror")
	b.see("onerror")
	b.open(p.url + "/console/devices/hostile-0")
	b.see("About", "Tools (100)", "Paired identity")
	b.open(p.url + "/console/devices/hostile-0/tools/form")
	b.until("all fields", fmt.Sprintf("document.querySelectorAll('.form .form-group').length > %d", len(texts)))
	b.press("Call")
	b.see("Succeeded", texts[2])
	b.press("Text")
	b.press("Tree")
	for _, form := range []string{"CLI", "TypeScript", "Python", "MCP"} {
		b.press(form)
	}
	b.press("Open the call")
	b.see("Received by", "Decisions")
	b.open(p.url + "/console/devices/hostile-0/tools/reports")
	b.press("Call")
	b.see("Failed", texts[1])
	b.open(p.url + "/console/calls")
	b.see("reports")
	if n := eval[int](b, "document.querySelectorAll('script').length"); n != 1 {
		b.Errorf("the page has %d scripts", n)
	}
	b.quiet()
	eval[bool](b, "alert(1) || true") // would be noticed
	if len(b.heard()) == 0 {
		t.Error("code that runs is not noticed")
	}
}

// connectHostile connects 41 devices that have the texts as attributes, and one of them as those of its tools.
func connectHostile(t *testing.T, url string, texts []string) {
	user := func(i int) client.Option {
		status, made := request(t, http.MethodPost, url+"/api/keys",
			fmt.Sprintf(`{"name":%s,"roles":["device"],"user_id":%s}`, quoted(texts[i]), quoted(texts[i])))
		var key struct{ Key string }
		if err := json.Unmarshal(made, &key); err != nil || status != http.StatusCreated {
			t.Fatalf("no key for the user %s: %d %s", texts[i], status, made)
		}
		return client.WithToken(key.Key)
	}
	for i := range 40 {
		connectDevice(t, url, fmt.Sprintf("named-%d", i), echoTool(), user(5*i),
			client.WithDevice(fmt.Sprint("id", texts[5*i+1]), texts[5*i+2], texts[5*i+3]),
			client.WithLabels(map[string]string{"hostile": texts[5*i+4]}))
	}
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
