package textsafe_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/registry/textsafe"
)

func TestClean(t *testing.T) {
	for said, want := range map[string]string{
		"":                "",
		"plain\n\ttext ~": "plain\n\ttext ~",
		"Größe, 天気, नमस्ते, 😀":     "Größe, 天気, नमस्ते, 😀",
		"a\r\nb\rc\u2028d\u2029e":  "a\nb\nc\nd\ne",
		"a\x00b\x08c\x7fd\u0085e":  "abcde",
		"\x1b[2J\x1b]0;t\x07x\x1b": "x",
		"\u009b31mred\u009b0m":     "red",
		"a\xffb\xc3":               "a\uFFFDb\uFFFD",
		"a\u202eb\u2066c\u200fd":   "abcd",
		"a\u200bb\u2060c\ufeffd":   "abcd",
		"a\u00adb\u034fc\u3164d":   "abcd",
		"\U000E0041\U000E0042x":    "x",
		"a\ufe0fb\U000E0100":       "ab",
		"a\u200db\u200cc":          "abc",
		"\u200d\u200c\ufe0f":       "",
		// What belongs to how something is written stays, but once.
		"می\u200cخواهم":             "می\u200cخواهم",
		"می\u200c\u200cخواهم":       "می\u200cخواهم",
		"می\u200c خواهم\u200c":      "می خواهم",
		"क्\u200dष":                 "क्\u200dष",
		"👨\u200d👩\u200d👧":           "👨\u200d👩\u200d👧",
		"👩🏽\u200d⚕\ufe0f":           "👩🏽\u200d⚕\ufe0f",
		"❤\ufe0f\u200d🔥":            "❤\ufe0f\u200d🔥",
		"❤\ufe0f\ufe0f\ufe0e":       "❤\ufe0f",
		"1\ufe0f\u20e3":             "1\ufe0f\u20e3",
		"🏴\U000E0067\U000E007F":     "🏴",
		"\u0601\u0661":              "\u0601\u0661",
		"non\u00a0breaking":         "non\u00a0breaking",
		strings.Repeat("\u202e", 9): "",
	} {
		got := textsafe.Clean(said)
		if got != want {
			t.Errorf("Clean(%+q) = %+q, want %+q", said, got, want)
		}
		if hides := said != want; !strings.Contains(said, "\r") && textsafe.Hides(said) != hides {
			t.Errorf("Hides(%+q) = %v", said, !hides)
		}
	}
	if got := textsafe.Line("a\nb\t\u202ec\r\n"); got != "a b c " {
		t.Errorf("a line: %q", got)
	}
	for _, said := range []string{"a\r\nb", "a\tb\n", "ü"} {
		if textsafe.Hides(said) {
			t.Errorf("%q hides something", said)
		}
	}
}

func TestCleanTerminals(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\n\ttext é 漢", "plain\n\ttext é 漢"},
		{"\x1b[31;1mred\x1b[0m", "red"},
		{"\x1b]0;title\x07x", "x"},
		{"\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"\x1b]never ended", "never ended"},
		{"\x1b]a\x1b]b\x1b]c", "abc"},
		{"\x1b(Bx\x1bc\x1b", "x"},
		{"\x1bP1$q\x1b\\x", "x"},
		{"\u009b31mx\u0085", "x"},
		{"a\x00b\x08c\x7fd", "abcd"},
		{"one\r\ntwo\rthree", "one\ntwo\nthree"},
		{"bad \xff\xfe utf8 \xc3", "bad \uFFFD utf8 \uFFFD"},
		{"\xc3\x1b[31m", "\uFFFD"},
	} {
		if got := textsafe.Clean(c.in); got != c.want {
			t.Errorf("Clean(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

// TestCleanIsLinear reads what would be read again and again if unended strings were searched to the end each time.
func TestCleanIsLinear(t *testing.T) {
	began := time.Now()
	textsafe.Clean(strings.Repeat("\x1b]", 1<<20))
	textsafe.Clean(strings.Repeat("\x1b[", 1<<20))
	if took := time.Since(began); took > 20*time.Second { // quadratic: an hour
		t.Errorf("took %v", took)
	}
}

func TestSkeletons(t *testing.T) {
	alike := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
	}
	for _, pair := range [][2]string{
		{"time", "TIME"}, {"time", "tirne"}, {"paypal", "pаypal"}, {"scope", "ѕсоре"}, {"TIME", "TlME"}, {"x_0", "x_o"},
		{"getUser", "getuser"},
	} {
		if !alike(textsafe.Skeletons(pair[0]), textsafe.Skeletons(pair[1])) {
			t.Errorf("%s and %s do not look alike", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"time", "t1me"}, {"time", "times"}, {"axis_i", "axis_1"}, {"schon", "schön"},
		{"天气", "天氣"}} {
		if alike(textsafe.Skeletons(pair[0]), textsafe.Skeletons(pair[1])) {
			t.Errorf("%s and %s look alike", pair[0], pair[1])
		}
	}
	if !alike(textsafe.AnySkeletons("time"), textsafe.Skeletons("ТІМЕ")) { // in Cyrillic
		t.Error("capitals that look alike are told apart")
	}
}

func TestPlain(t *testing.T) {
	for r, want := range map[rune]string{
		'o': "o", 'O': "o", '0': "o", 'о': "o", 'т': "t", 'ⓣ': "t", 'ｔ': "t", '𝐭': "t", 'ü': "u", '＜': "<", '‹': "<",
		'⁄': "/", '天': "天",
	} {
		if got := textsafe.Plain(r); got != want {
			t.Errorf("Plain(%c) = %q, want %q", r, got, want)
		}
	}
}

func TestExpose(t *testing.T) {
	for said, want := range map[string]string{
		"a\x1b[31mb\n\tc": "a\uFFFD[31mb\n\tc", "a\u202eb\rc\xff": "a\uFFFDb\uFFFDc\uFFFD",
		"می\u200cخواهم": "می\u200cخواهم", "❤\ufe0f\ufe0f": "❤\ufe0f\uFFFD",
	} {
		if got := textsafe.Expose(said); got != want || textsafe.Hides(got) {
			t.Errorf("Expose(%+q) = %+q, want %+q", said, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "\x1b[", "\x1b]x\x07", "\xff", "\u009b1m\r\r\n", "می\u200cخواهم", "👨\u200d👩",
		"❤\ufe0f\ufe0f", "\x1b\u200b[31m", "\u200d\x1b[m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := textsafe.Clean(s)
		if !utf8.ValidString(got) || textsafe.Hides(got) || textsafe.Clean(got) != got {
			t.Fatalf("Clean(%+q) = %+q", s, got)
		}
		if shown := textsafe.Expose(s); textsafe.Hides(shown) {
			t.Fatalf("Expose(%+q) = %+q", s, shown)
		}
		if len(got) > 3*len(s) {
			t.Fatalf("%d bytes of %d", len(got), len(s))
		}
	})
}
