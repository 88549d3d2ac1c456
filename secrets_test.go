package farhand_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/farhand/farhand"
)

// Whatever prints a configuration prints asterisks: every verb, JSON, and both handlers of logs.
func TestSecretsPrintAsAsterisks(t *testing.T) {
	const canary = "canary-of-a-secret"
	var cfg farhand.Config
	value, secrets := reflect.ValueOf(&cfg).Elem(), 0
	for _, f := range reflect.VisibleFields(value.Type()) {
		if f.Type == reflect.TypeFor[farhand.Secret]() {
			value.FieldByIndex(f.Index).SetString(canary)
			secrets++
		}
	}
	if secrets < 3 {
		t.Fatalf("%d secrets", secrets)
	}
	var out bytes.Buffer
	for _, verb := range strings.Fields("%v %+v %#v %s %q %d %x %X %t %c %U %e %o %b %T %20s %.3v") {
		fmt.Fprintf(&out, verb, cfg)
		fmt.Fprintf(&out, verb, &cfg)
		fmt.Fprintf(&out, verb, cfg.Token)
		fmt.Fprintf(&out, verb, []any{cfg.Token, &cfg.Token, map[farhand.Secret]farhand.Secret{cfg.Token: cfg.Token}})
	}
	text, err := json.Marshal([]any{cfg, &cfg, cfg.Token, &cfg.Token})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "token", cfg.Token, "cfg", cfg, "pointer", &cfg, "error", fmt.Errorf("%v", cfg.Token))
	}
	if got := strings.ToLower(out.String()); strings.Contains(got, canary) ||
		strings.Contains(got, fmt.Sprintf("%x", canary)) || !strings.Contains(got, farhand.Masked) {
		t.Errorf("%.3000s", got)
	}
}
