package chat

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// pictured returns a picture with n bytes behind its end.
func pictured(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2))); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), make([]byte, n)...)
}

func imagePart(data []byte) registry.Part {
	return registry.Part{Type: registry.PartImage, MIMEType: "image/jpeg", Data: data, Size: int64(len(data))}
}

// returnsParts is a tool that returns text and parts.
func returnsParts(parts ...registry.Part) func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
	return func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
		return agent.Outcome{Result: registry.Result{Success: true, Output: "click", Parts: parts}}, nil
	}
}

// TestImagesOfResults: the model is shown what vendors take, whatever the tool calls it, and reads of all the rest. The
// bytes are in no text, no event, no report and nothing that is stored.
func TestImagesOfResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		photo := pictured(t, 100)
		page := []byte("<html>secret")
		r := newRig(t, Limits{}, use(tool("a", "camera", "{}")), text("a cat"), text("still a cat"))
		r.tools.set("camera", returnsParts(imagePart(photo), imagePart(page), imagePart([]byte("\x89PNG\r\n\x1a\nno")),
			registry.Part{Type: registry.PartFile, MIMEType: "video/mp4", URL: "https://x/1", Size: 12_345_678},
			registry.Part{Type: registry.PartImage, MIMEType: "image/png", Size: 5_000}))
		ev := &events{}
		reply, err := r.engine.Ask(t.Context(), Ask{Key: key, Content: "look", Debug: true}, ev.emit)
		if err != nil {
			t.Fatal(err)
		}
		sent := r.model.plain()[1].Messages
		result := sent[len(sent)-1]
		want := toolText("camera", fmt.Sprintf("click\n[image, image/jpeg, %d B]\n"+
			"[image, image/jpeg, 12 B, not shown]\n"+
			"[image, image/jpeg, 10 B, not shown]\n[file, video/mp4, 12.3 MB]\n[image, image/png, 5 kB, not shown]",
			len(photo)))
		if result.Content != want || len(result.Attachments) > 0 {
			t.Errorf("the model reads\n%s\nwant\n%s", result.Content, want)
		}
		if len(result.Pictures) != 1 || result.Pictures[0].MIMEType != "image/png" ||
			!bytes.Equal(result.Pictures[0].Data, photo) {
			t.Errorf("the model is shown %d images", len(result.Pictures))
		}

		r.must("and now?") // in a later turn it reads that there was one
		later := r.model.asked()[2].Messages
		if m := later[2]; len(m.Pictures) > 0 || !strings.Contains(m.Content, "B, not shown]\n") {
			t.Errorf("in the next turn: %+v", m)
		}

		stored, err := r.store.Conversation(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		all, err := json.Marshal(map[string]any{"events": ev.all, "reply": reply, "stored": stored})
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{photo, page} {
			for _, text := range []string{base64.StdEncoding.EncodeToString(data)[:12], string(data[:12])} {
				if bytes.Contains(all, []byte(text)) {
					t.Errorf("%q is told", text)
				}
			}
		}
		parts := ev.of(EventToolResult)[0].Parts
		if len(parts) != 5 || parts[3].URL != "https://x/1" || !slices.EqualFunc(parts, reply.Calls[0].Parts,
			func(a, b registry.Part) bool { return a.MIMEType == b.MIMEType && a.Size == b.Size }) {
			t.Errorf("people are told of %+v, and %+v", parts, reply.Calls[0].Parts)
		}
	})
}

// TestImagesInTextAreNotRead: a device that has an image in its output costs a prompt a line, not all of its base64.
func TestImagesInTextAreNotRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		photo := pictured(t, 100)
		r := newRig(t, Limits{}, use(tool("a", "camera", "{}")), text("a cat"))
		r.tools.set("camera", func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
			output := registry.MustJSON(`{"photo":"data:image/png;base64,` +
				base64.StdEncoding.EncodeToString(photo) + `"}`)
			return agent.Outcome{Result: registry.NewResult(true, output, "")}, nil
		})
		r.must("look")
		sent := r.model.plain()[1].Messages
		want := toolText("camera", fmt.Sprintf(`{"photo":"data:image/png;base64,[image/png, %d bytes]"}`, len(photo)))
		if got := sent[len(sent)-1].Content; got != want {
			t.Errorf("the model reads\n%s\nwant\n%s", got, want)
		}
	})
}

// TestImagesAreForeign: a model that has seen an image has read something from outside, also if there was no text.
func TestImagesAreForeign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("a", "camera", "{}")), text("a cat"))
		photo := pictured(t, 0)
		r.tools.set("camera", func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
			return agent.Outcome{Result: registry.Result{Success: true, Parts: []registry.Part{imagePart(photo)}}}, nil
		})
		r.must("look")
		c, err := r.store.Conversation(context.Background(), key)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range decode(c.Messages, r.engine.cfg.Log)[2:] {
			if !m.Tainted {
				t.Errorf("message %d is not from outside: %+v", i+2, m)
			}
		}
	})
}

// TestNewestImagesAreShown: one request has a bounded number of images, and of their bytes.
func TestNewestImagesAreShown(t *testing.T) {
	for name, tc := range map[string]struct{ calls, size, want int }{
		"many":  {2 * maxPictures, 10, maxPictures},
		"large": {6, registry.MaxInlinePart - 1000, maxPictureBytes / registry.MaxInlinePart},
	} {
		bubble(t, func(t *testing.T) {
			var steps []step
			for i := range tc.calls {
				steps = append(steps, use(tool(fmt.Sprint(i), "camera", "{}")))
			}
			r := newRig(t, Limits{}, append(steps, text("done"))...)
			r.tools.set("camera", returnsParts(imagePart(pictured(t, tc.size))))
			r.must("look")
			requests := r.model.asked()
			last := requests[len(requests)-1].Messages
			var shown []string
			for _, m := range last {
				if len(m.Pictures) > 0 {
					shown = append(shown, m.ToolCallID)
				} else if m.Role == provider.RoleTool && !strings.Contains(m.Content, "not shown") {
					t.Errorf("%s: nothing says that the image of %s is not shown", name, m.ToolCallID)
				}
			}
			if len(shown) != tc.want || shown[len(shown)-1] != fmt.Sprint(tc.calls-1) {
				t.Errorf("%s: the images of %v are shown", name, shown)
			}
		})
	}
}

// TestImagesAreLeftOutFirst: where a request is too long, its oldest images go before any text.
func TestImagesAreLeftOutFirst(t *testing.T) {
	messages := []provider.Message{user("look")}
	for i := range 4 {
		id := fmt.Sprint(i)
		messages = append(messages, assistant("", tool(id, "camera", "{}")), provider.Message{
			Role: provider.RoleTool, ToolCallID: id, Content: "what tool " + id + " said",
			Pictures: []provider.Picture{{MIMEType: "image/png", Data: []byte("x")}},
		})
	}
	kept := trim(messages, 2*imageTokens+500)
	for i := range 4 {
		m := kept[2+2*i]
		if !strings.HasPrefix(m.Content, fmt.Sprintf("what tool %d said", i)) ||
			(len(m.Pictures) > 0) != (i >= 2) || strings.Contains(m.Content, noteImage) != (i < 2) {
			t.Errorf("result %d: %q with %d images", i, m.Content, len(m.Pictures))
		}
	}
	if len(messages[2].Pictures) != 1 {
		t.Error("the conversation itself was changed")
	}
}
