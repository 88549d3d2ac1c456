package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// pairGateway is the part of a gateway that pairs: it answers the questions for a status one after the other.
func pairGateway(t *testing.T, statuses ...int) (url string, asks *atomic.Int64) {
	t.Helper()
	asks = new(atomic.Int64)
	var polls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pair":
			asks.Add(1)
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"secret": "s", "code": "ABCD-2345", "device_id": "d-1", "expires_in": 300, "interval": 0,
			})
		case "/pair/status":
			status := statuses[min(int(polls.Add(1)), len(statuses))-1]
			if status != http.StatusOK {
				w.WriteHeader(status)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{
				"status": "approved", "device_id": "d-1", "credential": "fhd_x",
			})
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, asks
}

// A code that expires is followed by another one, and a gateway that is away for a while by another question.
func TestPairAsksAgain(t *testing.T) {
	t.Parallel()
	url, asks := pairGateway(t, http.StatusNotFound, http.StatusBadGateway, http.StatusOK)
	file := FileStore(filepath.Join(t.TempDir(), "sub", "credential.json"))
	var shown []string
	options := PairOptions{Store: file, Show: func(code string, _ time.Time) { shown = append(shown, code) }}
	c, err := Pair(t.Context(), url, options)
	if err != nil || c.Token != "fhd_x" || c.DeviceID != "d-1" || asks.Load() != 2 || len(shown) != 2 {
		t.Fatalf("%+v, %v; asked %d times, shown %v", c.DeviceID, err, asks.Load(), shown)
	}
	again, err := file.Load(t.Context())
	if err != nil || again.Token != c.Token || !slices.Equal(again.Key, c.Key) {
		t.Errorf("what was kept differs: %v", err)
	}
	info, err := os.Stat(string(file))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
}

func TestPairEnds(t *testing.T) {
	t.Parallel()
	url, _ := pairGateway(t, http.StatusForbidden)
	var refused *RefusedError
	if _, err := Pair(t.Context(), url, PairOptions{Show: func(string, time.Time) {}}); !errors.As(err, &refused) {
		t.Errorf("a refusal: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := func(string, time.Time) { cancel() }
	if _, err := Pair(ctx, url, PairOptions{Show: stop}); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if _, err := Pair(t.Context(), url, PairOptions{}); err == nil {
		t.Error("a code that nobody sees")
	}
}

func TestFileStoreRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) FileStore {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return FileStore(path)
	}
	if c, err := FileStore(filepath.Join(dir, "none")).Load(t.Context()); err != nil || c.Token != "" {
		t.Errorf("no file: %v", err)
	}
	for name, f := range map[string]FileStore{
		"read by others": write("a", `{"token":"t"}`, 0o644), "no JSON": write("b", "x", 0o600),
		"no token": write("c", "{}", 0o600), "damaged key": write("d", `{"token":"t","private_key":"AA"}`, 0o600),
	} {
		if c, err := f.Load(t.Context()); err == nil || c.Token != "" {
			t.Errorf("%s was taken", name)
		}
	}
}
