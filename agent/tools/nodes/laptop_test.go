package nodes_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/client"
)

// What `farhand device --simulate` offers is what the tools ask for: each action is carried out by it.
func TestLaptopIsANode(t *testing.T) {
	h := newHouse(t, options{})
	ran := ""
	options := []client.Option{
		client.WithToken("anna"), client.WithSession("laptop"), client.WithDevice("pixel", "", ""),
	}
	var names []string
	for _, tool := range nodetools.Tools(nodetools.Config{
		Canvas: nodetools.NewCanvas(false), Location: &nodetools.Location{Latitude: 1}, Notify: func(string, string) {},
		Confirm: func(_ context.Context, command string) bool { ran = command; return true },
	}) {
		names = append(names, tool.Name)
		options = append(options, client.WithTool(tool.Tool, tool.Handler))
	}
	c, err := client.New(h.http.URL, options...)
	h.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-c.Ready():
	case <-time.After(testTimeout):
		t.Fatal("the laptop does not get in")
	}
	for _, a := range actions() {
		if strings.Contains(a.args, "phone") || strings.Contains(a.args, "gong") {
			continue // another device's name, and a parameter that not every device has
		}
		res, err := h.talk("anna", "laptop", "", a.tool, a.args)
		if strings.Contains(a.args, `"eval"`) { // nobody has opened the page
			if err != nil || res.Success || !strings.Contains(res.Output, "no page is open") {
				t.Errorf("%s: %+v, %v", a.args, res, err)
			}
			continue
		}
		if err != nil || !res.Success {
			t.Errorf("%s: %+v, %v", a.args, res, err)
		}
		pictures := strings.Contains(a.args, "snap") || strings.Contains(a.args, "clip") ||
			strings.Contains(a.args, "record")
		if pictures != (len(res.Parts) > 0) || registry.InlineSize(res.Parts) > registry.MaxInlinePart {
			t.Errorf("%s: %d parts", a.args, len(res.Parts))
		}
	}
	if ran != "uname -a" {
		t.Errorf("asked about %q", ran)
	}
	told, err := os.ReadFile("../../../docs/devices.md")
	h.must(err)
	for _, name := range allCommands() { // the conventional ones
		name, confirmed := strings.CutSuffix(name, "!")
		if !slices.Contains(names, name) {
			t.Errorf("the laptop does not offer %s", name)
		}
		_, row, found := strings.Cut(string(told), "\n| `"+name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		if !found || strings.Contains(row, "user_confirm") != confirmed {
			t.Errorf("docs/devices.md says of %s: %s", name, row)
		}
	}
}
