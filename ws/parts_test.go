package ws_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/client"
)

// TestSDKParts: what a Go device returns beside its text arrives as it was.
func TestSDKParts(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	sent := []client.Part{
		{Type: client.PartImage, MIMEType: "image/png", Name: "Küche.png",
			Data: bytes.Repeat([]byte{0, 0xff}, 100_000)},
		{Type: client.PartAudio, MIMEType: "audio/ogg", Data: []byte("x")},
	}
	_, states, _ := g.runSDK(client.WithSession("sdk"), client.WithTool(client.Tool{Name: "camera"},
		func(_ context.Context, c client.Call) (any, error) {
			return client.Result{Output: c.Args, Parts: sent}, nil
		}))
	connected(t, states, 1)
	o := await(t, g.call("sdk", "camera", `{"n":1}`))
	if o.err != nil || o.result.Structured.String() != `{"n":1}` || len(o.result.Parts) != len(sent) {
		t.Fatalf("%+v", o)
	}
	for i, want := range sent {
		if got := o.result.Parts[i]; !reflect.DeepEqual(got, registry.Part{
			Type: registry.PartType(want.Type), MIMEType: want.MIMEType, Name: want.Name, Data: want.Data,
			Size: int64(len(want.Data)),
		}) {
			t.Errorf("part %d: %.200v", i, got)
		}
	}
}

// TestPartsThatAreTooLong: the bytes of all parts are bounded together, and what does not fit is an answer that cannot
// be understood.
func TestPartsThatAreTooLong(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, tc := range map[string]struct {
		sizes []int
		fits  bool
	}{
		"all of it":     {[]int{registry.MaxInlinePart}, true},
		"in two":        {[]int{registry.MaxInlinePart / 2, registry.MaxInlinePart / 2}, true},
		"one too many":  {[]int{registry.MaxInlinePart + 1}, false},
		"two too many":  {[]int{registry.MaxInlinePart - 1, 2}, false},
		"far too much":  {[]int{registry.MaxInlinePart, registry.MaxInlinePart}, false},
		"nothing there": {[]int{1, 0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := g.connectWithTools("big", "t")
			d.t = t
			done := g.call("big", "t", `{}`)
			id := d.expect("tool_call_request")["id"]
			var parts []string
			for _, n := range tc.sizes {
				parts = append(parts, fmt.Sprintf(`{"type":"file","mime_type":"a/b","data":"%s"}`,
					base64.StdEncoding.EncodeToString(make([]byte, n))))
			}
			d.send(fmt.Sprintf(`{"type":"tool_result","id":"%s","parts":[%s]}`, id, strings.Join(parts, ",")))
			got := receive(t, done)
			if tc.fits {
				if got.err != nil || registry.InlineSize(got.result.Parts) != registry.MaxInlinePart {
					t.Errorf("%d parts, %v", len(got.result.Parts), got.err)
				}
				d.expect("result_acknowledged")
				return
			}
			if !errors.Is(got.err, registry.CodeInvalidResult) || !strings.Contains(got.err.Error(), "parts[") {
				t.Errorf("%d parts, %v", len(got.result.Parts), got.err)
			}
			d.expectError("INVALID_MESSAGE", "parts[")
			d.alive()
		})
	}
}
