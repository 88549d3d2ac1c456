package redisconn

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// What a script answers is read as what it is, or as nothing: a server that answers something else crashes nobody.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		answer any
		want   int64
	}{
		{int64(7), 7}, {"-7", -7}, {"1795332808403367", 1795332808403367}, {"1.795332808403e+12", 1795332808403},
		{"", 0}, {"x", 0}, {nil, 0}, {[]any{int64(1)}, 0},
	} {
		if got := Int(tt.answer); got != tt.want {
			t.Errorf("%v: %d", tt.answer, got)
		}
	}
	if got := Strings([]any{"a", nil, int64(1), "b"}); !slices.Equal(got, []string{"a", "", "", "b"}) {
		t.Errorf("%q", got)
	}
	if got := Strings("a"); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if got := Map([]any{"a", "1", "b", nil, "odd"}); !maps.Equal(got, map[string]string{"a": "1", "b": ""}) {
		t.Errorf("%v", got)
	}
}

// No part of a key can end it, reach another one or look like one: each byte that is not plain is encoded, and no two
// parts become the same.
func TestEscape(t *testing.T) {
	for part, want := range map[string]string{
		"": "", "aZ0._-": "aZ0._-", "a:b": "a%3Ab", "{a}": "%7Ba%7D", "%3A": "%253A", "é\x00\n*": "%C3%A9%00%0A%2A",
	} {
		got := Escape(part)
		back, err := url.PathUnescape(got)
		if got != want || err != nil || back != part {
			t.Errorf("%q: %q, back %q, %v", part, got, back, err)
		}
	}
}

// No error of the client library leaves the store, and what is translated stays as it is.
func TestUnavailable(t *testing.T) {
	if err := Unavailable("claim", nil); err != nil {
		t.Error(err)
	}
	known := error(registry.NotConnected())
	if err := Unavailable("claim", known); err != known {
		t.Error(err)
	}
	err := Unavailable("claim", redis.ErrClosed)
	if e := registry.AsError(err); e.Code != registry.CodeStoreUnavailable || strings.Contains(e.Message, "redis") ||
		!errors.Is(err, redis.ErrClosed) {
		t.Errorf("%+v", e)
	}
}
