package provenance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/internal/testkit"
)

// TestWorkGrowsWithLength: four times the text costs about four times the processor time, whatever pattern the text
// repeats. With a cost that grows with the square, it would be sixteen times.
func TestWorkGrowsWithLength(t *testing.T) {
	const short, long, most = 8 << 10, 32 << 10, 9
	for _, unit := range []string{
		"a&", "-//a&", "//a/", "a=", "{a,", "{a", "](", "](\n", "src=", `="`, "=\"\t", "url(\n", "%41", "%", "&#10;",
		"&amp;", "@", "a@", "a @", "@ ", "0x", "1.", "://", "a://b@", "=?", "=?x?q?a?= ", `\/`, `\.`, `\u0041`, "[1-",
		"a.", "a;", "http:", "data:", "#", "a://{", "a. & ", "1 ", "1-", "x.y&.", "&@", "a.b/&", "\\\\a", "a\n@",
		"= \"", "a:// ", "a://b.c\\", "\u00a0@", `//a.bc\n`, "//a.bc @", `//a.bc "@a.bc:`, "//a.bc\n/", "//a.bc",
		"](//", "](//\n", "url(\t", "=\n",
		"=\"//\t", "&#10;//", `a\.`, "1–", "٠", "(a)@",
		"!@a.bc/", "a@b.cd/", "a@b.cd:1&", "x@", "\u200b", "a.b/\u200b", "ａ", "\ufdfa", "a\u0301\u200d ",
	} {
		for name, edges := range map[string][2]string{"between": {"x.y ", "x.yy \n"}, "behind": {"a.b/"}} {
			cost := func(n int) time.Duration {
				half := strings.Repeat(unit, n/2/len(unit))
				text := edges[0] + half + half + edges[1]
				if edges[1] == "" {
					text = edges[0] + strings.Repeat("b", n/2) + half + ".@"
				}
				args, _ := json.Marshal(map[string]string{"v": text})
				return testkit.CPU(t, func() { said(text, text).Origins(provenance.Call{Args: args}) })
			}
			var less, more time.Duration
			for try := range 5 { // the memory's collector works in some of them: the least of several runs counts
				if d := cost(short); try == 0 || d < less {
					less = d
				}
				if d := cost(long); try == 0 || d < more {
					more = d
				}
				if more < most*less {
					break
				}
			}
			if more >= most*less && more > 50*time.Millisecond {
				t.Errorf("%q, %s: %v for %d KiB, %v for %d KiB", unit, name, less, short>>10, more, long>>10)
			}
			if more > 2*time.Second {
				t.Errorf("%q, %s: %v for %d KiB", unit, name, more, long>>10)
			}
		}
	}
}

// TestWorkOfLongNames: a name is part of the pointer to each value below it. The work for a call or an approved one is
// that of its length, and not the length times the values.
func TestWorkOfLongNames(t *testing.T) {
	for _, size := range []int{1 << 10, 256 << 10} {
		args := json.RawMessage(`{"` + strings.Repeat("k", size) + `":` + many(200_000) + `}`)
		c := said("Read it.", "Nothing.")
		c.Approve("tool", "an approved call", args)
		took := testkit.CPU(t, func() { c.Origins(provenance.Call{Tool: "tool", Args: args}) })
		if took > 10*time.Second {
			t.Errorf("a name of %d KiB takes %v", size>>10, took)
		}
		if c.Size() > 8<<20 {
			t.Errorf("a name of %d KiB takes %d MiB of memory", size>>10, c.Size()>>20)
		}
	}
}

// TestWorkOfManyAlternatives: a schema of many parts is not searched as a whole for every value.
func TestWorkOfManyAlternatives(t *testing.T) {
	schema := `{"properties":{"v":{"items":{"anyOf":[` + strings.Repeat(`{},`, 20_000) + `{"enum":["abc def"]}]}}}}`
	c := said("Read it.", "Nothing.")
	call := provenance.Call{Args: json.RawMessage(`{"v":` + many(4000) + `}`), Schema: json.RawMessage(schema)}
	if took := testkit.CPU(t, func() { c.Origins(call) }); took > 4*time.Second {
		t.Errorf("it takes %v", took)
	}
}

// TestWorkOfDefinitions: many addresses in a call are looked for in many of definitions in bounded time.
func TestWorkOfDefinitions(t *testing.T) {
	var called, defined strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&called, "https://a%d.example.org/path ", i)
		fmt.Fprintf(&defined, "https://b%d.example.org/path ", i)
	}
	c := provenance.New()
	args, _ := json.Marshal(map[string]string{"v": called.String()})
	took := testkit.CPU(t, func() { c.Defined(provenance.Call{Args: args}, defined.String) })
	if took > 10*time.Second {
		t.Errorf("it takes %v", took)
	}
}
